"""The desk of hooks, over the wire: every answer is 200, in the assistant's own words, and what is not sure denies."""

import hmac
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import structs

from remit.assistants.handlers import HookHandlers
from remit.assistants.records import Protections
from remit.cli import main
from remit.errors import RateLimited
from remit.ledger.home import open_home
from remit.server.hook_tokens import hook_token, proof_key, shared_hook_token
from remit.server.routes import Request
from tests.assistants.hooks.scenes import PROTECTION, Scene, deny_reason, protection, secret_of, staged
from tests.hub.service import running


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with staged(tmp_path_factory.mktemp("hooks")) as staged_scene:
        yield staged_scene


@pytest.fixture(scope="module")
def everywhere_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with staged(tmp_path_factory.mktemp("everywhere"), protection(None)) as staged_scene:
        yield staged_scene


@pytest.fixture
def everywhere(everywhere_hub: Scene, tmp_path: Path) -> Scene:
    """A session of its own, in a folder of its own, under a protection for everywhere."""
    folder = tmp_path / "project"
    folder.mkdir()
    return replace(everywhere_hub, folder=folder, session=f"session in {folder}")


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


def test_assistants_start_a_new_shell_for_each_command_unless_the_call_names_one(scene: Scene) -> None:
    # With a doubt, no change of the passport would permit it.
    assert "To permit it" in deny_reason(scene.asked("bash", {"command": "cd src && f() { ls; }"}))
    assert "later calls use the same shell" in deny_reason(scene.asked("Bash", {"command": "cd src", "sessionId": "1"}))


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
    token = hook_token(scene.hub.token, path.partition("/")[2])
    shown = {"authorization": f"Bearer {token}", "x_service_hub_token": None}
    answer = scene.hub.post(f"/v1/hooks/{path}", scene.payload("PreToolUse"), **shown)
    assert (answer.status, answer.headers["x-remit-hook"]) == (200, "1")
    assert b"knows no protection" in answer.body


def test_a_call_that_tells_a_relative_folder_is_denied(scene: Scene) -> None:
    assert "$.cwd: must be an absolute path" in deny_reason(scene.asked("Read", {"file_path": "a.py"}, cwd="src"))


def test_a_page_of_another_origin_cannot_use_hooks(scene: Scene) -> None:
    assert scene.post(scene.payload("PreToolUse"), origin="https://evil.example").status == 403


def test_a_profile_can_have_permitted_calls_allowed_outright(tmp_path: Path) -> None:
    with staged(tmp_path, protection(tmp_path / "project", mode="allow")) as scene:
        given = read(scene)["hookSpecificOutput"]
        assert (given["hookEventName"], given["permissionDecision"]) == ("PreToolUse", "allow")


def test_a_session_that_ends_is_continued_with_what_was_left(tmp_path: Path) -> None:
    with staged(tmp_path, protection(tmp_path / "project", mission={"max_tool_calls": 3})) as scene:
        assert [read(scene), read(scene)] == [{}, {}]
        for _ in range(2):
            scene.told("SessionEnd", reason="other")
            scene.told("SessionStart", source="resume")
        assert read(scene) == {}
        scene.told("SessionEnd", reason="other")
        reason = deny_reason(read(scene))
        assert "max_tool_calls" in reason
        assert "start a new session of Claude Code, or run `remit protect claude-code` again" in reason
        assert read(scene, session_id="another") == {}
        assert len({receipt["grant_id"] for receipt in scene.receipts()}) == 4


def test_protecting_again_gives_fresh_limits_and_no_event_of_a_hook_does(tmp_path: Path) -> None:
    kept = protection(tmp_path / "project", mission={"max_tool_calls": 1})
    with staged(tmp_path, kept) as scene:
        assert read(scene) == {}
        assert "max_tool_calls" in deny_reason(read(scene))
        with open_home(scene.hub.home) as home:
            Protections(home).put(structs.replace(kept, generation=2))
        assert read(scene) == {}
        assert "max_tool_calls" in deny_reason(read(scene))


def test_a_session_stays_in_its_first_folder_whatever_starts_and_ends_are_reported(
    everywhere: Scene, tmp_path: Path
) -> None:
    other, secret = tmp_path / "other", tmp_path / "other" / "key"
    other.mkdir()
    secret.write_text("private")
    everywhere.told("SessionStart", source="startup")
    for cwd in ("/**", "/", str(other), f"{other}/..", "/*", "**", f"{tmp_path}/*", f"{tmp_path}/[o]ther"):
        everywhere.told("SessionEnd", reason="other")
        everywhere.told("SessionStart", source="startup", cwd=cwd)
        assert "outside" in deny_reason(everywhere.asked("Read", {"file_path": str(secret)}))
        assert "outside" in deny_reason(everywhere.asked("Bash", {"command": f"rm -rf {other}"}))
        assert read(everywhere) == {}


@pytest.mark.parametrize("name", ["a*", "a[1]", "**", "a:b", "host://x", "x?", "[*]", "äö"])
def test_the_name_of_the_start_folder_is_a_literal(name: str, everywhere: Scene, tmp_path: Path) -> None:
    folder = tmp_path / "odd" / name
    folder.mkdir(parents=True)
    for other in ("ab", "a1", "x", "xx"):
        (tmp_path / "odd" / other).mkdir(exist_ok=True)
    told = everywhere.told("SessionStart", source="startup", cwd=str(folder))
    assert f"In scope: {folder}." in str(told)
    inside = {"file_path": str(folder / "app.py"), "content": ""}
    here = {"cwd": str(folder)}
    assert everywhere.asked("Write", inside, **here) == {}
    assert everywhere.asked("Write", inside, agent_id="a1", agent_type="Explore", **here) == {}
    assert everywhere.asked("Bash", {"command": "rm -r build"}, **here) == {}
    for other in ("ab", "a1", "x/y"):
        assert "outside" in deny_reason(everywhere.asked("Read", {"file_path": str(tmp_path / "odd" / other)}))


@pytest.mark.parametrize(
    "cwd", ["/etc", "/usr/bin", "/tmp", "/nowhere/at/all", "/**", "a", "/etc/passwd", "/x\n", "/" + "x" * 3000]
)
def test_a_folder_that_is_none_to_work_in_is_refused_with_the_reason(cwd: str, everywhere: Scene) -> None:
    told = str(everywhere.told("SessionStart", source="startup", cwd=cwd))
    assert "In scope: nothing, because" in told
    reason = deny_reason(read(everywhere))
    assert reason.partition("has none: ")[2].partition(". ")[0] in told


def test_an_event_of_a_session_that_does_not_show_its_secret_changes_nothing(tmp_path: Path) -> None:
    with staged(tmp_path, protection(tmp_path / "project")) as scene:
        assert read(scene) == {}
        before = len(scene.receipts())
        for secret in (None, "0" * 64, "x", secret_of(scene.session).upper()):
            for event in ("SessionStart", "SessionEnd", "PreToolUse", "PostToolUse", "SubagentStop"):
                call = {"tool_name": "Read", "tool_input": {}, "tool_use_id": "t", "agent_id": "a"}
                answer = scene.post(scene.payload(event, **call), x_remit_session=secret)
                assert b"secret of its session" in answer.body
        # One finding for all of them, in the chain of Remit's own checks.
        found = scene.receipts()[before:]
        assert [(one["tool"], one["internal_denial_code"]) for one in found] == [("remit.hooks", "enforcement_gap")]
        assert read(scene) == {}


def test_a_start_elsewhere_tells_the_model_the_folder_that_the_session_has(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with staged(tmp_path, protection(None)) as scene:
        scene.told("SessionStart", source="startup")
    with running(tmp_path / "home") as hub:
        told = str(replace(scene, hub=hub).told("SessionStart", source="resume", cwd=str(other)))
    assert str(scene.folder) in told
    assert str(other) not in told


def test_a_session_does_not_begin_without_a_secret(tmp_path: Path) -> None:
    with staged(tmp_path) as scene:
        for event in ("SessionStart", "PreToolUse"):
            call = {"tool_name": "Read", "tool_input": {}, "tool_use_id": "t"}
            answer = scene.post(scene.payload(event, **call), x_remit_session=None)
            assert b"shows no secret of its session" in answer.body
        assert scene.receipts() == []


def test_a_session_is_bound_to_its_secret_over_restarts_of_the_hub(tmp_path: Path) -> None:
    with staged(tmp_path) as scene:
        assert read(scene) == {}
        scene.told("SessionEnd", reason="other")
    with running(tmp_path / "home") as hub:
        again = replace(scene, hub=hub)
        answer = again.post(again.payload("SessionStart", source="resume"), x_remit_session="0" * 64)
        assert b"secret of its session" in answer.body
        assert read(again) == {}


def test_hooks_of_the_first_release_show_one_token_and_no_secret(tmp_path: Path) -> None:
    with staged(tmp_path, protection(tmp_path / "project", form="http", generation=0)) as scene:
        token = f"Bearer {shared_hook_token(scene.hub.token)}"
        call = scene.payload("PreToolUse", tool_name="Read", tool_input={"file_path": "a"}, tool_use_id="t")
        assert scene.post(call, authorization=token, x_remit_session=None).json == {}
        assert scene.post(call, x_remit_session=None).json == {}


def test_the_token_of_another_protection_and_the_shared_one_open_nothing(scene: Scene) -> None:
    for token in (hook_token(scene.hub.token, "prot-000000000000"), shared_hook_token(scene.hub.token)):
        answer = scene.post(scene.payload("SessionEnd"), authorization=f"Bearer {token}")
        assert b"another token than that of its protection" in answer.body


def test_an_answer_is_proved_to_whoever_asks_for_it(scene: Scene) -> None:
    key = proof_key(scene.hub.token, PROTECTION).encode()
    event = scene.payload("SessionEnd")
    # Nothing of a body is read before the token is known to be right.
    for headers, asked in (({}, json.dumps(event).encode()), ({"authorization": "Bearer wrong"}, b"")):
        answer = scene.post(event, x_remit_nonce="n", **headers)
        proved = b"\n".join((b"n", sha256(asked).hexdigest().encode(), answer.body))
        assert answer.headers["x-remit-hook"] == hmac.digest(key, proved, "sha256").hex()


def test_a_protection_for_everywhere_takes_the_folder_that_the_assistant_starts_in(everywhere: Scene) -> None:
    everywhere.told("SessionStart", source="startup")
    assert read(everywhere) == {}
    assert read(everywhere, agent_id="a1", agent_type="Explore") == {}
    assert "outside" in deny_reason(everywhere.asked("Read", {"file_path": "/etc/passwd"}, cwd="/etc"))


def test_a_protection_for_everywhere_holds_what_lies_behind_a_link(everywhere: Scene, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(everywhere.folder)
    everywhere.told("SessionStart", source="startup", cwd=str(tmp_path / "link"))
    assert read(everywhere) == {}


def test_under_a_protection_for_everywhere_a_session_whose_start_was_not_seen_may_nothing(everywhere: Scene) -> None:
    before = len(everywhere.receipts())
    assert "start was not seen" in deny_reason(read(everywhere))
    everywhere.told("SessionStart", source="startup")
    assert "start was not seen" in deny_reason(read(everywhere))
    assert len(everywhere.receipts()) == before + 2


def test_a_protection_for_everywhere_is_not_for_a_folder_that_holds_everything(everywhere: Scene) -> None:
    for folder in ("/", str(Path.home()), str(Path.home().parent), "relative", ""):
        session = {"session_id": f"session in {folder}"}
        everywhere.told("SessionStart", source="startup", cwd=folder, **session)
        assert "this session has none" in deny_reason(read(everywhere, **session))


def test_the_kill_switch_denies_before_any_session_has_begun(tmp_path: Path) -> None:
    with staged(tmp_path) as scene:
        done = CliRunner().invoke(main, ["kill-switch", "on", "--home", str(scene.hub.home)])
        assert done.exit_code == 0
        assert "kill switch" in deny_reason(read(scene))


def test_a_hook_that_asks_too_often_after_the_end_of_its_session_gets_a_denial_that_says_what_to_do() -> None:
    body = {"hook_event_name": "PreToolUse", "session_id": "one", "tool_name": "Read"}
    unused: Any = None
    desk = HookHandlers(unused, unused, None, lambda _protection, _nonce, _request, _answer: "")
    error = RateLimited("calls beyond 10 a second are not evaluated")
    answer = desk.deny_failed(Request(body, {"assistant": "claude-code"}, "", "request"), error)
    said = deny_reason(json.loads(answer.content))
    assert "not evaluated" in said
    assert "start a new one" in said


def test_where_the_users_shell_is_zsh_a_command_that_it_reads_differently_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "zsh").touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SHELL", "/bin/zsh")
    with staged(tmp_path) as scene:
        assert scene.asked("Bash", {"command": "echo a"}) == {}
        said = deny_reason(scene.asked("Bash", {"command": "a=(x y); cat ${a[1]}"}))
    assert "run by zsh" in said
    assert "bash -c" in said


def test_large_integers_in_arguments_and_results_are_taken(scene: Scene) -> None:
    given = {"file_path": str(scene.folder / "a.py"), "offset": 2**60}
    assert scene.asked("Read", given, tool_use_id="toolu_large") == {}
    result = {"tool_name": "Read", "tool_input": given, "tool_response": {"inode": 10**30}}
    assert scene.told("PostToolUse", tool_use_id="toolu_large", **result) == {}
    [decision] = [one for one in scene.receipts() if "toolu_large" in str(one.get("measurements"))]
    assert (decision["verdict"], "canonicalization" in decision["invocation_digest"]) == ("compliant", False)
    [outcome] = [one for one in scene.receipts() if decision["receipt_id"] in str(one.get("evidence_proof_ref"))]
    assert "canonicalization" not in outcome["result_hash"]


def test_the_hub_is_not_stopped_by_its_number_its_group_or_another_selection(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    scope = {"resource_scope": [str(folder), "process://*"]}
    kept = protection(folder, guards=(str(folder / ".claude/settings.json"),), mission=scope)
    with staged(tmp_path, kept) as scene:
        pid = scene.hub.pid
        for command in (f"kill {pid}", f"kill -9 -- -{os.getpgid(pid)}", "kill -9 -1 999999"):
            assert "it would stop Remit" in deny_reason(scene.asked("Bash", {"command": command}))
        for command in ("killall -u root", f"pkill -s {os.getsid(pid)}", "kill 0", "kill $(pgrep -f remit)"):
            reason = deny_reason(scene.asked("Bash", {"command": command}))
            assert "may be one of them" in reason
            assert "Stop a process by its process id" in reason
        assert scene.asked("Bash", {"command": "pkill -f vite; kill 999999"}) == {}
