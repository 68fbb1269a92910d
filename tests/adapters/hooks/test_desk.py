"""The desk of hooks, over the wire: every answer is 200, in the assistant's own words, and what is not sure denies."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from remit.cli import main
from tests.adapters.hooks.scenes import PROTECTION, Scene, deny_reason, protection, staged


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with staged(tmp_path_factory.mktemp("hooks")) as staged_scene:
        yield staged_scene


def read(scene: Scene, path: str = "a.py", **members: Any) -> dict[str, Any]:
    return scene.asked("Read", {"file_path": str(scene.folder / path)}, **members)


def test_a_permitted_call_gets_no_opinion_and_a_receipt(scene: Scene) -> None:
    assert read(scene, tool_use_id="toolu_permitted") == {}
    [receipt] = [one for one in scene.receipts() if "toolu_permitted" in str(one.get("measurements"))]
    assert (receipt["tool"], receipt["verdict"], receipt["actor"]) == ("Read", "compliant", "claude-code")
    assert receipt["measurements"]["remit.call"]["description"] == "claude-code toolu_permitted mode=default"


@pytest.mark.parametrize(
    ("tool", "given", "word"),
    [
        ("Read", {"file_path": "/etc/passwd"}, "/etc/passwd"),
        ("Bash", {"command": "cat /etc/passwd"}, "/etc/passwd"),
        ("Write", {"file_path": "/tmp/elsewhere", "content": "x"}, "resource_scope"),
        ("WebFetch", {"url": "https://example.org", "prompt": "x"}, "forbids"),
        ("mcp__demo__send", {"to": "a"}, "allowed_tools"),
    ],
)
def test_a_denied_call_is_told_why_and_what_would_permit_it(
    scene: Scene, tool: str, given: dict[str, Any], word: str
) -> None:
    reason = deny_reason(scene.asked(tool, given))
    assert word in reason
    assert "To permit it" in reason
    assert "rcpt:" in reason


def test_calls_of_the_same_id_are_one(scene: Scene) -> None:
    before = len(scene.receipts())
    assert [read(scene, tool_use_id="toolu_same") for _ in range(3)] == [{}, {}, {}]
    assert len(scene.receipts()) == before + 1


def test_one_id_for_two_calls_is_denied(scene: Scene) -> None:
    read(scene, tool_use_id="toolu_two")
    assert "call id" in deny_reason(read(scene, "other.py", tool_use_id="toolu_two"))


def test_an_outcome_is_bound_by_its_digest(scene: Scene) -> None:
    read(scene, tool_use_id="toolu_bound")
    outcome = {
        "tool_name": "Read",
        "tool_input": {"file_path": str(scene.folder / "a.py")},
        "tool_use_id": "toolu_bound",
    }
    assert (
        scene.told("PostToolUse", **outcome, tool_response={"type": "text", "file": {"content": "secret text"}}) == {}
    )
    last = scene.receipts()[-1]
    assert (last["tool"], last["verdict"], last["result_hash"]["scope"]) == ("remit.result", "compliant", "result")
    assert "secret text" not in str(scene.hub.get("/v1/export").body)


def test_a_call_that_failed_has_an_outcome_too(scene: Scene) -> None:
    read(scene, tool_use_id="toolu_failed")
    outcome = {
        "tool_name": "Read",
        "tool_input": {"file_path": str(scene.folder / "a.py")},
        "tool_use_id": "toolu_failed",
    }
    scene.told("PostToolUseFailure", **outcome, error="no such file", is_interrupt=False)
    assert scene.receipts()[-1]["tool"] == "remit.result"


def test_an_outcome_without_its_call_is_a_finding_that_the_dashboard_shows_in_red(scene: Scene) -> None:
    outcome = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_unasked"}
    assert scene.told("PostToolUse", **outcome, tool_response={"stdout": ""}) == {}
    last = scene.receipts()[-1]
    assert (last["internal_denial_code"], last["verdict"], last["tool"]) == ("run_unasked", "violation", "Bash")
    page = scene.hub.get("/dashboard").body
    assert b'class="hero broken"' in page
    assert b"made without asking" in page


def test_a_subagent_has_a_chain_of_its_own_and_may_not_start_others(scene: Scene) -> None:
    acting = {"agent_id": "a52", "agent_type": "Explore"}
    assert scene.told("SubagentStart", **acting)["hookSpecificOutput"]["hookEventName"] == "SubagentStart"
    assert read(scene, **acting) == {}
    reason = deny_reason(scene.asked("Agent", {"prompt": "x", "description": "y"}, **acting))
    assert "forbids" in reason
    actors = {receipt["actor"] for receipt in scene.receipts()}
    assert "claude-code/Explore" in actors
    assert scene.told("SubagentStop", **acting) == {}


def test_the_start_of_a_session_tells_the_model_its_limits(scene: Scene) -> None:
    told = scene.told("SessionStart", source="startup")["hookSpecificOutput"]
    assert told["hookEventName"] == "SessionStart"
    assert "Fix the tests" in told["additionalContext"]
    assert str(scene.folder) in told["additionalContext"]


def test_events_that_carry_nothing_are_let_be(scene: Scene) -> None:
    assert scene.told("Stop", stop_hook_active=False) == {}
    assert scene.told("SomethingNew") == {}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"a":1,"a":2}', b"\xff", b'{"hook_event_name":"PreToolUse"}'])
def test_what_cannot_be_read_is_denied(scene: Scene, body: bytes) -> None:
    answer = scene.post(body)
    assert answer.status == 200
    assert "could not decide" in deny_reason(answer.json)


@pytest.mark.parametrize(
    "change",
    [
        {"tool_name": ""}, {"tool_name": 7}, {"tool_input": []}, {"tool_input": None}, {"tool_use_id": ""},
        {"session_id": None}, {"tool_name": "x" * 5000},
        {"tool_use_id": "x" * 300}, {"tool_use_id": "a b"}, {"tool_use_id": "a\n"}, {"tool_use_id": "é"},
    ],
)  # fmt: skip
def test_a_payload_with_a_wrong_member_is_denied(scene: Scene, change: dict[str, Any]) -> None:
    whole = {"tool_name": "Read", "tool_input": {"file_path": "/a"}, "tool_use_id": "toolu_wrong"}
    answer = scene.post(scene.payload("PreToolUse", **{**whole, **change}))
    assert answer.status == 200
    assert "could not decide" in deny_reason(answer.json)


def test_a_body_beyond_the_limit_is_denied(scene: Scene) -> None:
    answer = scene.post(scene.payload("PreToolUse", tool_input={"content": "x" * (1 << 20)}))
    assert answer.status == 200
    assert "bytes" in deny_reason(answer.json)


@pytest.mark.parametrize("token", [None, "Bearer wrong", "Bearer "])
def test_a_wrong_token_is_denied_and_leaves_no_receipt(scene: Scene, token: str | None) -> None:
    before = len(scene.receipts())
    answer = scene.post(scene.payload("PreToolUse"), authorization=token)
    assert answer.status == 200
    assert "token" in deny_reason(answer.json)
    assert len(scene.receipts()) == before


def test_the_token_of_hooks_opens_nothing_else(scene: Scene) -> None:
    shown = {"x_service_hub_token": None, "authorization": f"Bearer {scene.token}"}
    assert scene.hub.get("/v1/status", **shown).status == 401
    assert scene.hub.post("/v1/sessions/start", {}, **shown).status == 401
    assert scene.hub.get("/dashboard", **shown).status == 401


def test_the_token_of_the_hub_does_not_open_hooks(scene: Scene) -> None:
    answer = scene.post(scene.payload("PreToolUse"), authorization=f"Bearer {scene.hub.token}")
    assert "token" in deny_reason(answer.json)


@pytest.mark.parametrize("path", ["claude-code/prot-000000000000", f"codex/{PROTECTION}", f"nobody/{PROTECTION}"])
def test_a_protection_that_is_not_known_denies(scene: Scene, path: str) -> None:
    shown = {"authorization": f"Bearer {scene.token}", "x_service_hub_token": None}
    answer = scene.hub.post(f"/v1/hooks/{path}", scene.payload("PreToolUse"), **shown)
    assert (answer.status, answer.headers["x-remit-hook"]) == (200, "1")
    assert b"knows no protection" in answer.body


def test_a_page_of_another_origin_cannot_use_hooks(scene: Scene) -> None:
    assert scene.post(scene.payload("PreToolUse"), origin="https://evil.example").status == 403


def test_a_profile_can_have_permitted_calls_allowed_outright(tmp_path: Path) -> None:
    with staged(tmp_path, protection(tmp_path / "project", mode="allow")) as scene:
        given = read(scene)["hookSpecificOutput"]
        assert (given["hookEventName"], given["permissionDecision"]) == ("PreToolUse", "allow")


def test_a_session_that_ends_is_followed_by_a_new_one_and_limits_hold_within_one(tmp_path: Path) -> None:
    with staged(tmp_path, protection(tmp_path / "project", mission={"max_tool_calls": 2})) as scene:
        assert [read(scene), read(scene)] == [{}, {}]
        assert "max_tool_calls" in deny_reason(read(scene))
        scene.told("SessionEnd", reason="other")
        assert read(scene) == {}
        assert len({receipt["grant_id"] for receipt in scene.receipts()}) == 2


def test_a_protection_for_everywhere_takes_the_folder_that_the_assistant_starts_in(tmp_path: Path) -> None:
    with staged(tmp_path, protection(None)) as scene:
        scene.told("SessionStart", source="startup")
        assert read(scene) == {}
        assert read(scene, agent_id="a1", agent_type="Explore") == {}
        assert "outside" in deny_reason(scene.asked("Read", {"file_path": "/etc/passwd"}, cwd="/etc"))


def test_a_protection_for_everywhere_holds_what_lies_behind_a_link(tmp_path: Path) -> None:
    with staged(tmp_path, protection(None)) as scene:
        (tmp_path / "link").symlink_to(scene.folder)
        scene.told("SessionStart", source="startup", cwd=str(tmp_path / "link"))
        assert read(scene) == {}


def test_under_a_protection_for_everywhere_a_session_whose_start_was_not_seen_may_nothing(tmp_path: Path) -> None:
    with staged(tmp_path, protection(None)) as scene:
        assert "start was not seen" in deny_reason(read(scene))
        scene.told("SessionStart", source="startup")
        assert "start was not seen" in deny_reason(read(scene))
        assert len(scene.receipts()) == 2


def test_a_protection_for_everywhere_is_not_for_a_folder_that_holds_everything(tmp_path: Path) -> None:
    with staged(tmp_path, protection(None)) as scene:
        for folder in ("/", str(Path.home()), str(Path.home().parent), "relative", ""):
            session = {"session_id": f"session in {folder}"}
            scene.told("SessionStart", source="startup", cwd=folder, **session)
            assert "holds everything" in deny_reason(read(scene, **session))


def test_the_kill_switch_denies_before_any_session_has_begun(tmp_path: Path) -> None:
    with staged(tmp_path) as scene:
        done = CliRunner().invoke(main, ["kill-switch", "on", "--home", str(scene.hub.home)])
        assert done.exit_code == 0
        assert "kill switch" in deny_reason(read(scene))
