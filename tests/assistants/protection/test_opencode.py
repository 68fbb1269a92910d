"""The plan for opencode, and its plugin: one answer lets a call run."""

import json
import socket
from pathlib import Path

import pytest

from remit.assistants.opencode.settings import OpencodePlanner
from remit.assistants.records import Level
from remit.errors import FieldInvalid
from tests.assistants.protection.places import ID
from tests.assistants.protection.planning import Drawing
from tests.assistants.protection.plugged import ANSWERS, drive, hub_that, install
from tests.ports import refusing_port

pytestmark = pytest.mark.slow


@pytest.fixture
def opencode(tmp_path: Path) -> Drawing:
    """Where opencode is planned for."""
    return Drawing(tmp_path, OpencodePlanner())


@pytest.mark.parametrize(
    ("level", "path"),
    [
        ("local", f"project/.opencode/plugin/remit-{ID}.js"),
        ("user", f"user/.config/opencode/plugin/remit-{ID}.js"),
        ("managed", f"machine/remit/remit-{ID}.js"),
    ],
)
def test_the_plugin_names_its_protection_and_its_wire_file_but_no_token(
    opencode: Drawing, level: Level, path: str
) -> None:
    text = opencode.written(opencode.plan(level))[path]
    assert ID in text.splitlines()[0]
    assert f"{ID}.wire.json" in text
    assert opencode.wire.token not in text
    assert "@" not in "".join(line for line in text.splitlines() if "WIRE" in line)


def test_managed_settings_name_the_plugin_because_its_folder_alone_is_not_searched(opencode: Drawing) -> None:
    written = opencode.written(opencode.plan("managed"))
    plugin = Path(opencode.root, "machine", "remit", f"remit-{ID}.js")
    assert json.loads(written["machine/opencode.json"]) == {"plugin": plugin.as_uri()}
    assert opencode.wire.token not in str(written)


def test_the_home_of_its_settings_can_be_named(opencode: Drawing) -> None:
    plan = opencode.plan("user", config=str(opencode.root / "elsewhere"))
    assert set(opencode.written(plan)) == {f"elsewhere/opencode/plugin/remit-{ID}.js"}


def test_what_steers_opencode_is_guarded(opencode: Drawing) -> None:
    here, anywhere = opencode.guarded(opencode.plan("local")), opencode.guarded(opencode.plan("user"))
    assert {"project/.opencode", "project/opencode.json", "user/.config/opencode", "machine"} <= here
    assert {"**/.opencode", "**/opencode.jsonc"} <= anywhere


def test_a_plan_for_a_folder_needs_one(opencode: Drawing) -> None:
    with pytest.raises(FieldInvalid) as refused:
        opencode.plan("local", folder=None)
    assert refused.value.place == "--settings"


@pytest.mark.parametrize("answer", ANSWERS)
def test_one_answer_of_the_hub_lets_a_call_run(answer: str, tmp_path: Path) -> None:
    with hub_that(ANSWERS[answer]) as (port, heard):
        came = drive(install(tmp_path, port))
    assert came["ran"] is (answer == "permit")
    assert heard


def test_the_model_is_told_why_a_call_was_refused(tmp_path: Path) -> None:
    with hub_that(ANSWERS["deny"]) as (port, _):
        assert drive(install(tmp_path, port))["why"] == "policy says no"


def test_everything_about_a_subagent_names_the_session_that_its_line_began_with(tmp_path: Path) -> None:
    with hub_that(ANSWERS["permit"]) as (port, heard):
        came = drive(install(tmp_path, port), "echo hi")
    events = ["session.created", "tool.execute.before", "tool.execute.after", "session.idle", "session.deleted"]
    assert [said["event"] for said in heard] == events
    assert [said["session"] for said in heard] == ["kid"] * 4 + ["lead"]
    assert {said["lead"] for said in heard} == {"lead"}
    assert (heard[1]["arguments"], heard[1]["call"]) == ({"command": "echo hi"}, "call-1")
    assert came["system"] == ["be careful"]


def test_no_call_runs_if_opencode_does_not_tell_whose_session_it_is(tmp_path: Path) -> None:
    with hub_that(ANSWERS["permit"]) as (port, heard):
        assert drive(install(tmp_path, port), SESSION="unknown")["ran"] is False
    assert heard == []


def test_no_call_runs_while_nothing_answers(tmp_path: Path) -> None:
    with refusing_port() as port:
        assert drive(install(tmp_path, port))["ran"] is False


def test_no_call_runs_when_the_answer_is_late(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        plugin = install(tmp_path, silent.getsockname()[1], deadline_s=0.2)
        assert drive(plugin)["ran"] is False


@pytest.mark.parametrize(
    "wired",
    [
        {"url": "http://0.0.0.0:PORT/x"},
        {"url": "https://127.0.0.1:PORT/x"},
        {"url": "no address"},
        {"token": "a\r\nX: y"},
        {"token": ""},
        {"deadline_s": 0},
        {"deadline_s": None},
    ],
)
def test_no_call_runs_by_a_wire_file_that_is_damaged(wired: dict[str, object], tmp_path: Path) -> None:
    with hub_that(ANSWERS["permit"]) as (port, heard):
        there = {
            name: said.replace("PORT", str(port)) if isinstance(said, str) else said for name, said in wired.items()
        }
        assert drive(install(tmp_path, port, **there))["ran"] is False
    assert heard == []


def test_a_wire_file_that_is_gone_blocks_calls_and_not_the_loading_of_the_plugin(tmp_path: Path) -> None:
    plugin = install(tmp_path, 1)
    next((tmp_path / "it's").iterdir()).unlink()
    assert drive(plugin)["ran"] is False
