"""`remit status`: how the Hub stands."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.cli.errors import DONE, UNAVAILABLE
from tests.cli.running import lines, run
from tests.client.hub_service import HubDesk
from tests.client.service import serve
from tests.hub.service import Hub, running


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running(tmp_path_factory.mktemp("status") / "home") as hub:
        hub.observe("a talk")
        yield hub


def test_people_read_a_calm_summary(hub: Hub) -> None:
    shown = lines(run(hub.home, "status").stdout)
    named = [line[:12].strip() for line in shown]
    assert named == ["hub", "home", "sessions", "reviews", "latest", "", "verified", "adapters", "next"]
    assert shown[0].split()[1] == hub.url
    assert shown[4].split()[1:] == ["compliant,", "browser_observe", "https://chat.example/c/1"]


def test_programs_get_the_status_of_the_hub(hub: Hub) -> None:
    result = run(hub.home, "status", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (DONE, "")
    asked = hub.told("/v1/status")
    assert {**told, "verification": None} == {**asked, "verification": None}
    assert told["verification"].keys() == asked["verification"].keys()
    assert hub.token not in result.output


@pytest.mark.parametrize("words", [[], ["--export"], ["--export", "evidence.json"]], ids=str)
def test_a_hub_that_does_not_run_is_unavailable_and_nobody_is_asked(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    desk = HubDesk()
    with serve(desk) as port:
        run(tmp_path / "home", "setup", "--port", str(port))
        result = run(tmp_path / "home", "status", "--json", *words)
    assert (result.exit_code, json.loads(result.stdout)["error_code"]) == (UNAVAILABLE, "hub_unavailable")
    assert desk.seen == []
    assert "remit up" in run(tmp_path / "home", "status", *words).stderr
    assert not (tmp_path / "evidence.json").exists()
