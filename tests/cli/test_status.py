"""`remit status`: how the Hub stands, and an export that is whole or not there."""

import gzip
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.cli.errors import DONE, UNAVAILABLE, USAGE
from remit.http.record import noted
from remit.ledger.home import open_home
from tests.cli.running import lines, piped, run
from tests.client.hub_service import EXPORT, HubDesk, packed
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
    assert named == ["hub", "home", "sessions", "reviews", "latest", "", "adapters", "next"]
    assert shown[0].split()[1] == hub.url
    assert shown[4].split()[1:] == ["compliant,", "browser_observe", "https://chat.example/c/1"]


def test_programs_get_the_status_of_the_hub(hub: Hub) -> None:
    result = run(hub.home, "status", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (DONE, "")
    assert told == hub.told("/v1/status")
    assert hub.token not in result.output


@pytest.mark.parametrize("words", [["--export"], ["--export", "-"], ["--export", "--json"]], ids=" ".join)
def test_all_evidence_goes_to_stdout(hub: Hub, words: list[str]) -> None:
    result = piped(hub.home, "status", *words)
    assert (result.returncode, result.stderr) == (DONE, b"")
    assert len(json.loads(result.stdout)["receipts"]) == 1


def test_all_evidence_goes_to_a_file_that_is_its_owners_alone(hub: Hub, tmp_path: Path) -> None:
    file = tmp_path / "evidence.json"
    file.write_text("old", encoding="utf-8")
    told = json.loads(run(hub.home, "status", "--export", str(file), "--json").stdout)
    assert told == {"ok": True, "file": str(file), "bytes": file.stat().st_size}
    assert json.loads(file.read_bytes())["ok"] is True
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["evidence.json"]


def test_a_file_that_cannot_be_written_is_named(hub: Hub, tmp_path: Path) -> None:
    result = run(hub.home, "status", "--export", str(tmp_path / "no" / "where.json"), "--json")
    assert (result.exit_code, json.loads(result.stdout)["error_code"]) == (USAGE, "field_invalid")


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


@pytest.fixture
def breaking(tmp_path: Path) -> Iterator[Path]:
    """A home whose Hub breaks off in the middle of an export."""
    run(tmp_path / "home", "setup")
    half = gzip.compress(EXPORT)[:20_000]
    with (
        serve(HubDesk(script=[packed(half)])) as port,
        open_home(tmp_path / "home") as home,
        noted(home, "hub", f"http://127.0.0.1:{port}", {}) as note,
    ):
        note()
        yield tmp_path / "home"


def test_a_file_that_would_not_be_whole_is_not_there(breaking: Path, tmp_path: Path) -> None:
    file = tmp_path / "evidence.json"
    file.write_text("old", encoding="utf-8")
    result = run(breaking, "status", "--export", str(file), "--json")
    assert (result.exit_code, json.loads(result.stdout)["error_code"]) == (UNAVAILABLE, "hub_unavailable")
    assert file.read_text(encoding="utf-8") == "old"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["evidence.json", "home"]


def test_a_pipe_that_did_not_get_all_is_told_by_the_exit_code(breaking: Path) -> None:
    result = run(breaking, "status", "--export", "--json")
    assert result.exit_code == UNAVAILABLE
    assert EXPORT.startswith(result.stdout_bytes)
    assert result.stderr.startswith("remit: no answer")
