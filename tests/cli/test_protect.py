"""`remit protect`: from a profile to hooks that ask the Hub, and back without a trace."""

import json
import os
import pty
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import Result

import remit
from remit.assistants.install.protect import control_paths
from remit.assistants.records import Protections
from remit.cli.errors import DONE, NO, USAGE
from remit.config import ensure_token
from remit.governor.assistants import BeginAssistantSession
from remit.governor.sessions import GetSession
from remit.governor.sources import Reporter
from remit.governor.tampering import RevokeTamperedSessions
from remit.ledger.home import open_home
from remit.server.hook_tokens import hook_token, proof_key, shared_hook_token
from remit.wiring import build_service
from tests.cli.running import piped, run
from tests.governor.world import mission
from tests.hub.service import running
from tests.ports import spare_port

NEW, OLD = "2.1.325", "2.1.197"
SETTINGS = Path(".claude", "settings.local.json")
PROFILE = "Mission: Count the lines\n\n## Allowed\n\n- Read files\n"


class Desk(NamedTuple):
    """A user's machine: a home of Remit, a project that is worked in, and an assistant of some version."""

    home: Path
    project: Path
    program: Path

    def install(self, version: str) -> None:
        """Install Claude Code."""
        self.program.write_text(f"#!/bin/sh\necho '{version} (Claude Code)'\n")
        self.program.chmod(0o755)

    def protect(self, *arguments: str) -> Result:
        """Run the command without starting a Hub."""
        return run(self.home, "protect", "claude-code", "--no-start", "--yes", *arguments)

    def told(self, *arguments: str) -> dict[str, Any]:
        """Return what it says to a program."""
        result = self.protect("--json", *arguments)
        assert result.exit_code == DONE, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    @property
    def settings(self) -> Path:
        """The settings that are written to where nothing else is said."""
        return self.project / SETTINGS

    def kept(self) -> list[str]:
        """Return the ids of all protections."""
        with open_home(self.home) as home:
            return [one.id for one in Protections(home).all()]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine with a new Claude Code."""
    for name in ("user", "project", "bin"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.chdir(tmp_path / "project")
    made = Desk(tmp_path / "home", tmp_path / "project", tmp_path / "bin" / "claude")
    made.install(NEW)
    return made


def asked(folder: Path, tool: str, **arguments: str) -> bytes:
    """Return what Claude Code would say before a call."""
    said = {"session_id": "s1", "cwd": str(folder), "hook_event_name": "PreToolUse", "tool_use_id": f"toolu_{tool}"}
    return json.dumps(said | {"tool_name": tool, "tool_input": arguments}).encode()


def hook_of(desk: Desk, event: str = "PreToolUse") -> dict[str, Any]:
    hook: dict[str, Any] = json.loads(desk.settings.read_bytes())["hooks"][event][0]["hooks"][0]
    return hook


def answered(hook: dict[str, Any], said: bytes, **environment: str) -> dict[str, Any]:
    """Return what a hook is answered, run as the settings have it."""
    line, env = ["/bin/sh", "-c", hook["command"]], {**os.environ, **environment}
    done = subprocess.run(line, input=said, capture_output=True, check=True, env=env)
    return dict(json.loads(done.stdout))


def test_hooks_ask_the_hub_that_runs_and_undoing_leaves_no_trace(desk: Desk) -> None:
    with running(desk.home) as hub:
        told = desk.told()
        assert (told["form"], told["level"], told["hub"]) == ("command", "local", {"url": hub.url, "running": True})
        within = answered(hook_of(desk), asked(desk.project, "Read", file_path=str(desk.project / "a")))
        outside = answered(hook_of(desk), asked(desk.project, "Write", file_path="/etc/x", content="x"))
    assert within == {}
    assert outside["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert desk.protect("--undo").exit_code == DONE
    assert (list(desk.project.iterdir()), desk.kept()) == ([], [])


def test_an_old_assistant_gets_a_command_that_asks_the_hub_and_blocks_without_it(desk: Desk) -> None:
    desk.install(OLD)
    said = asked(desk.project, "Write", file_path="/etc/x", content="x")
    with running(desk.home):
        assert desk.told()["form"] == "command"
        command = hook_of(desk)["command"]
        answer = subprocess.run(["/bin/sh", "-c", command], input=said, capture_output=True, check=True)
    assert json.loads(answer.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
    gone = subprocess.run(["/bin/sh", "-c", command], input=said, capture_output=True, check=False)
    assert (gone.returncode, gone.stdout) == (2, b"")


def test_its_own_settings_are_out_of_its_reach(desk: Desk) -> None:
    with running(desk.home):
        desk.told()
        for path in (desk.settings, desk.project / "REMIT.md", desk.home / "config.json"):
            answer = answered(hook_of(desk), asked(desk.project, "Write", file_path=str(path), content="{}"))
            assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_the_profile_of_the_folder_counts_and_else_a_template(desk: Desk) -> None:
    assert desk.told()["profile"] == "template safe-coding"
    (desk.project / "REMIT.md").write_text(PROFILE)
    told = desk.told()
    assert (told["profile"], told["mission"]["mission"]) == (str(desk.project / "REMIT.md"), "Count the lines")
    assert str(desk.project / "REMIT.md") in told["guards"]
    (desk.project / "other.md").write_text(PROFILE.replace("Count", "Sort"))
    assert desk.told("--profile", "other.md")["mission"]["mission"] == "Sort the lines"
    assert len(desk.kept()) == 1


def test_a_profile_that_cannot_be_read_changes_nothing(desk: Desk) -> None:
    (desk.project / "REMIT.md").write_text(PROFILE + "- Fly to the moon\n")
    (desk.project / "bytes.md").write_bytes(b"\xff")
    for arguments in ((), ("--profile", "bytes.md"), ("--profile", "gone.md"), ("--profile", "/")):
        assert desk.protect(*arguments).exit_code == USAGE
    assert not desk.settings.exists()


def test_people_read_what_holds_and_what_does_not(desk: Desk) -> None:
    shown = desk.protect().stdout
    assert shown.splitlines()[0] == f"Claude Code is protected: {desk.project}"
    assert shown.index("\nProtected\n") < shown.index("\nNot protected\n") < shown.index("\nNext\n")
    for words in ("each session gets its own", "--bare", "remit up --background", "--undo", "remit profile init"):
        assert words in shown
    with open_home(desk.home) as home:
        assert str(ensure_token(home, "hub")) not in shown


@pytest.mark.parametrize("level", ["local", "project", "user", "managed"])
def test_no_file_outside_of_the_home_holds_a_token(desk: Desk, tmp_path: Path, level: str) -> None:
    told = desk.told("--settings", level, "--managed-dir", str(tmp_path / "machine"))
    with open_home(desk.home) as home:
        hub = ensure_token(home, "hub")
    name = told["protection"]
    tokens = (hub, hook_token(hub, name), proof_key(hub, name), shared_hook_token(hub))
    assert told["settings"]
    for path in told["settings"]:
        assert not any(token in Path(path).read_text() for token in tokens)
    wire = desk.home / "protections" / f"{name}.wire.json"
    assert (json.loads(wire.read_text())["token"], wire.stat().st_mode & 0o777) == (tokens[1], 0o600)


def test_hooks_of_shared_settings_ask_the_hub_of_whoever_runs_them_and_block_where_there_is_none(desk: Desk) -> None:
    with running(desk.home):
        desk.told("--settings", "project")
        shared = json.loads((desk.project / ".claude" / "settings.json").read_bytes())
        hook = shared["hooks"]["PreToolUse"][0]["hooks"][0]
        said = asked(desk.project, "Read", file_path=str(desk.project / "a"))
        assert answered(hook, said, REMIT_HOME=str(desk.home)) == {}
        line = ["/bin/sh", "-c", hook["command"]]
        nowhere = {**os.environ, "REMIT_HOME": "", "HOME": "/nowhere"}
        other = subprocess.run(line, input=said, capture_output=True, check=False, env=nowhere)
    assert (other.returncode, other.stdout) == (2, b"")


def test_protecting_again_is_a_new_generation(desk: Desk) -> None:
    generations = []
    for _ in range(3):
        desk.told()
        with open_home(desk.home) as home:
            generations.append(Protections(home).all()[0].generation)
    assert 0 < generations[0] < generations[1] < generations[2]


def test_a_folder_whose_name_has_wildcards_is_protected_by_its_name(desk: Desk) -> None:
    odd = desk.project / "a*[1]"
    odd.mkdir()
    mission = desk.told("--scope", str(odd))["mission"]
    assert (mission["cwd"], mission["resource_scope"]) == (str(odd), [f"{desk.project}/a[*][[]1]"])


def test_levels_stand_beside_each_other_and_are_undone_one_by_one(desk: Desk) -> None:
    for level in ("local", "project", "user"):
        desk.told("--settings", level)
    desk.told("--settings", "user")
    assert len(desk.kept()) == 3
    assert run(desk.home, "protect", "claude-code", "--undo", "--settings", "user").exit_code == DONE
    assert {one.name for one in (desk.project / ".claude").iterdir()} == {"settings.json", "settings.local.json"}
    assert not (desk.project.parent / "user" / ".claude").exists()
    assert len(desk.kept()) == 2


def test_several_folders_have_protections_of_their_own(desk: Desk) -> None:
    other = desk.project.parent / "other"
    other.mkdir()
    one, two = desk.told(), desk.told("--scope", str(other))
    assert one["protection"] != two["protection"]
    assert (two["folder"], two["mission"]["cwd"]) == (str(other), str(other))
    assert desk.protect("--undo", "--scope", str(other)).exit_code == DONE
    assert desk.kept() == [one["protection"]]


def test_wherever_it_is_started_the_folder_is_left_open(desk: Desk) -> None:
    told = desk.told("--settings", "user")
    assert (told["folder"], told["mission"]["cwd"], told["mission"]["resource_scope"]) == (None, None, ["."])


def test_a_profile_that_lies_around_is_not_taken_for_all_folders(desk: Desk, tmp_path: Path) -> None:
    (desk.project / "REMIT.md").write_text(PROFILE)
    machine = ("--managed-dir", str(tmp_path / "machine"))
    for level in (("--settings", "user"), ("--settings", "managed", *machine)):
        assert desk.told(*level)["profile"] == "template safe-coding"
        assert desk.told(*level, "--profile", "REMIT.md")["mission"]["mission"] == "Count the lines"


def test_a_profile_cannot_widen_the_folder_that_is_protected(desk: Desk) -> None:
    (desk.project / "inner").mkdir()
    (desk.project / "link").symlink_to("/etc")
    for folder, code in (("./inner", DONE), ("./link", USAGE), ("../project", USAGE), ("/", USAGE)):
        (desk.project / "REMIT.md").write_text(f"Folder: {folder}\n{PROFILE}")
        assert desk.protect().exit_code == code


def test_every_place_and_host_of_a_profile_is_shown(desk: Desk) -> None:
    sites = [f"site{number}.example" for number in range(20)]
    lines = "".join(f"- Reach {site}\n" for site in sites)
    (desk.project / "REMIT.md").write_text(f"{PROFILE}- Use /opt/data\n{lines}")
    shown = desk.protect().stdout
    assert all(words in shown for words in ("/opt/data", *sites))


def test_a_changed_mission_reaches_sessions_that_run(desk: Desk) -> None:
    said = asked(desk.project, "Read", file_path=str(desk.project / "a"))
    with running(desk.home):
        assert desk.told()["ended_sessions"] == 0
        assert answered(hook_of(desk), said) == {}
        assert desk.told()["ended_sessions"] == 0
        (desk.project / "REMIT.md").write_text(PROFILE.replace("Read files", "Start subagents"))
        assert desk.told()["ended_sessions"] == 1
        again = answered(hook_of(desk), said.replace(b"toolu_Read", b"toolu_again"))
    assert again["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_what_git_runs_by_itself_is_guarded_and_remit_where_it_lies_in_the_folder(desk: Desk) -> None:
    guards = desk.told()["guards"]
    assert {str(desk.project / ".git" / name) for name in ("config", "hooks", "info")} <= set(guards)
    assert "**/.git/hooks" in desk.told("--settings", "user")["guards"]
    package = str(Path(remit.__file__).parent)
    assert package not in guards
    assert package in control_paths(str(Path(package).parent))


def test_settings_of_a_user_are_undone_in_the_folder_that_is_named(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usual = desk.told("--settings", "user")["protection"]
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    assert desk.protect("--settings", "user", "--undo").exit_code == NO
    other = desk.told("--settings", "user")["protection"]
    assert sorted(desk.kept()) == sorted((usual, other))
    assert desk.protect("--settings", "user", "--undo").exit_code == DONE
    assert desk.kept() == [usual]


def test_a_damaged_record_is_named_and_another_one_can_be_undone(desk: Desk) -> None:
    damaged = desk.told("--settings", "user")["protection"]
    desk.told()
    (desk.home / "protections" / f"{damaged}.json").write_text("{")
    undone = desk.protect("--undo")
    assert (undone.exit_code, damaged in undone.stderr) == (DONE, True)
    assert desk.told("--settings", "user")["protection"] == damaged
    assert desk.kept() == [damaged]


def test_whoever_clones_shared_settings_keeps_their_id(desk: Desk, tmp_path: Path) -> None:
    first = desk.told("--settings", "project")
    clone = tmp_path / "clone"
    clone.mkdir()
    (desk.project / ".claude").rename(clone / ".claude")
    before = (clone / ".claude" / "settings.json").read_bytes()
    other = Desk(tmp_path / "other home", clone, desk.program)
    assert other.told("--settings", "project", "--scope", str(clone))["protection"] == first["protection"]
    assert (clone / ".claude" / "settings.json").read_bytes() == before
    assert other.protect("--settings", "project", "--scope", str(clone), "--undo").exit_code == DONE
    assert (clone / ".claude" / "settings.json").read_bytes() == before
    # In this home the id is that of another folder.
    assert desk.told("--settings", "project", "--scope", str(clone))["protection"] != first["protection"]


def test_everything_is_protected_only_if_it_is_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    user = desk.project.parent / "user"
    monkeypatch.chdir(user)
    refused = desk.protect()
    assert (refused.exit_code, list(user.iterdir())) == (USAGE, [])
    assert "--scope" in refused.stderr
    assert desk.told("--scope", str(user))["folder"] == str(user)


@pytest.mark.parametrize(
    "arguments",
    [("--scope", "gone"), ("--scope", ""), ("--program", "claude"), ("--program", "/gone/claude"), ("--settings", "x")],
)
def test_what_was_said_wrong_is_told_and_changes_nothing(arguments: tuple[str, str], desk: Desk) -> None:
    assert desk.protect(*arguments).exit_code == USAGE
    assert not desk.settings.exists()


def test_an_assistant_that_is_not_there_gets_the_form_for_all_versions(desk: Desk) -> None:
    desk.program.unlink()
    told = desk.told()
    assert (told["form"], told["version"], len(told["warnings"])) == ("command", "", 1)
    elsewhere = desk.program.with_name("claude-beta")
    desk._replace(program=elsewhere).install(NEW)
    assert desk.told("--claude", str(elsewhere))["version"] == NEW


def test_hooks_that_would_not_run_are_not_written(desk: Desk) -> None:
    desk.settings.parent.mkdir()
    desk.settings.write_text('{"disableAllHooks": true}')
    refused = desk.protect()
    assert (refused.exit_code, desk.settings.read_text()) == (USAGE, '{"disableAllHooks": true}')
    assert "disableAllHooks" in refused.stderr


def test_undoing_what_is_not_there_says_what_is(desk: Desk) -> None:
    desk.told("--settings", "user")
    refused = desk.protect("--undo")
    assert refused.exit_code == NO
    assert "--settings user" in refused.stderr
    result = desk.protect("--undo", "--json")
    assert json.loads(result.stdout)["error_code"] == "protection_not_found"


def test_undoing_works_after_the_folder_is_gone(desk: Desk) -> None:
    other = desk.project.parent / "other"
    other.mkdir()
    desk.told("--scope", str(other))
    (other / SETTINGS).unlink()
    (other / ".claude").rmdir()
    other.rmdir()
    result = json.loads(desk.protect("--undo", "--scope", str(other), "--json").stdout)
    assert [one["what"] for one in result["files"]] == ["was gone already"]
    assert desk.kept() == []


def test_managed_settings_are_written_for_the_whole_machine(desk: Desk, tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    told = desk.told("--settings", "managed", "--managed-dir", str(machine))
    assert {Path(path).name for path in told["settings"]} == {
        "hook.py",
        "remit.json",
    }
    assert desk.protect("--settings", "managed", "--managed-dir", str(machine), "--undo").exit_code == DONE
    assert not machine.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do it")
def test_managed_settings_need_root(desk: Desk) -> None:
    assert desk.protect("--settings", "managed").exit_code == 77


def test_the_hub_is_started_where_it_does_not_run(desk: Desk) -> None:
    port = spare_port()
    assert run(desk.home, "setup", "--port", str(port)).exit_code == DONE
    try:
        result = piped(desk.home, "protect", "claude-code", "--json")
        assert json.loads(result.stdout)["hub"] == {"url": f"http://127.0.0.1:{port}", "running": True}
    finally:
        stopped = run(desk.home, "hub", "--stop", "--json")
    assert json.loads(stopped.stdout)["stopped"] == [f"http://127.0.0.1:{port}"]


@pytest.mark.parametrize("level", ["user", "managed"])
def test_settings_that_cover_more_than_a_folder_need_a_yes(desk: Desk, level: str, tmp_path: Path) -> None:
    machine = ("--managed-dir", str(tmp_path / "machine")) if level == "managed" else ()
    words = ("protect", "claude-code", "--no-start", "--settings", level, *machine)
    refused = run(desk.home, *words)
    assert (refused.exit_code, f"--settings {level} --yes" in refused.stderr) == (USAGE, True)
    assert (desk.home.exists(), (tmp_path / "machine").exists()) == (False, False)
    told = run(desk.home, *words, "--json")
    assert (told.exit_code, json.loads(told.stdout)["error_code"]) == (USAGE, "field_invalid")
    assert run(desk.home, *words, "--yes").exit_code == DONE


@pytest.mark.parametrize("level", ["local", "project"])
def test_settings_of_one_folder_need_no_yes(desk: Desk, level: str) -> None:
    assert run(desk.home, "protect", "claude-code", "--no-start", "--settings", level).exit_code == DONE


def test_copilot_whose_settings_are_for_every_folder_needs_a_yes(desk: Desk) -> None:
    refused = run(desk.home, "protect", "copilot", "--no-start")
    assert (refused.exit_code, "remit protect copilot --settings user --yes" in refused.stderr) == (USAGE, True)


@pytest.mark.parametrize(("answer", "code"), [("y", DONE), ("n", NO), ("", NO)])
def test_a_person_at_a_terminal_is_asked(desk: Desk, answer: str, code: int) -> None:
    ours, theirs = pty.openpty()
    words = ["protect", "claude-code", "--no-start", "--settings", "user", "--home", str(desk.home)]
    with subprocess.Popen(
        [sys.executable, "-m", "remit", *words], stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    ) as asked_for:
        os.write(ours, f"{answer}\n".encode())
        os.close(theirs)
        said = b""
        with suppress(OSError):  # how a terminal ends
            while piece := os.read(ours, 4096):
                said += piece
    os.close(ours)
    assert (asked_for.returncode, b"every folder" in said, bool(desk.home.exists() and desk.kept())) == (
        code,
        True,
        code == DONE,
    )


def test_what_to_do_upon_tampering_is_kept_and_told(desk: Desk) -> None:
    assert [desk.told()["on_tamper"], desk.told("--on-tamper", "stop")["on_tamper"]] == ["end", "stop"]
    with open_home(desk.home) as home:
        assert [one.on_tamper for one in Protections(home).all()] == ["stop"]
    assert desk.told()["on_tamper"] == "end"


def test_protecting_again_lets_sessions_begin_anew_that_were_ended_for_tampering(desk: Desk) -> None:
    name = desk.told()["protection"]

    def begun() -> tuple[str, str]:
        """Return the session of an assistant session, and its state, as the next event of a hook finds it."""
        with open_home(desk.home) as home:
            (kept,) = Protections(home).all()
        told = json.dumps({"app": "claude-code", "id": "s1", "protection": name, "generation": str(kept.generation)})
        reporter = Reporter("hook:s1", told, mission(), generation=kept.generation)
        with closing(build_service(desk.home)) as service:
            session_id = service.governor.run(BeginAssistantSession(reporter))
            return session_id, service.governor.run(GetSession(session_id)).session.state

    first = begun()
    with closing(build_service(desk.home)) as service:
        assert service.governor.run(RevokeTamperedSessions(name)) == (first[0],)
    assert begun() == (first[0], "revoked")
    desk.told()
    assert begun()[0] != first[0]
    assert begun()[1] == "active"
