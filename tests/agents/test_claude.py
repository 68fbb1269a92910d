"""Real Claude Code under Remit, at a version that blocks when a hook fails and at one that does not know how.

Everything is pre-approved in Claude Code itself, unless a test says otherwise: what does not happen, Remit has stopped.
The controls, which do all of it, are in `test_controls`.
"""

from tests.agents.claude import ASKING, UNASKED, bash, called
from tests.agents.governed import PROFILE, Governed, home_of, verdicts
from tests.agents.plays import few, play
from tests.agents.scenario import INSIDE, OUTSIDE
from tests.agents.script import Call, Script
from tests.hub.service import running


def test_what_is_permitted_happens_what_is_not_leaves_no_trace_and_all_of_it_is_signed(world: Governed) -> None:
    world.protect()
    ran = play(world)
    assert ran.made == INSIDE, ran.out
    assert ran.model.heard("Remit refused this call")
    assert ran.model.heard("This session of Claude Code is governed by Remit")
    decided = verdicts(world.place)
    assert set(decided) == called(world.place)
    assert sorted(decided.values()) == ["compliant"] * 5 + ["violation"] * 4
    assert world.told("ledger", "check")["ok"]
    assert world.told("reconcile", "claude-code")["full"]


def test_what_lies_outside_is_never_told_to_the_model(world: Governed) -> None:
    world.protect()
    for folder in (world.place.project, world.place.outside):
        (folder / "words").write_text(f"these lie in {folder.name}", encoding="utf-8")
    hidden = world.place.outside / "words"
    looks = [
        Call("Read", {"file_path": str(hidden)}),
        bash(f"cat {hidden}"),
        bash(f"grep -r these {world.place.root}"),
        bash("cat < ../outside/words"),
        Call("Read", {"file_path": str(world.place.project / "words")}),
    ]
    ran = play(world, script=Script([[look] for look in looks]))
    assert (ran.model.heard("these lie in project"), ran.model.heard("these lie in outside")) == (True, False)


def test_a_tool_that_is_blocked_does_nothing_even_in_the_project(world: Governed) -> None:
    world.protect(profile=PROFILE + "\n## Blocked\n\n- Use the tool Write\n- Use the tools of desk\n")
    assert play(world).made == {"project/shell", "project/part"}


def test_what_a_profile_allows_needs_no_further_permission(world: Governed) -> None:
    world.protect(profile=PROFILE.replace("Mode: ask", "Mode: allow"))
    assert play(world, *ASKING).made == INSIDE


def test_what_remit_permits_is_still_for_claude_code_to_ask_about(world: Governed) -> None:
    world.protect()
    assert play(world, *ASKING).made == set()


def test_no_more_calls_run_than_a_profile_says(world: Governed) -> None:
    world.protect(profile=PROFILE.replace("100 tool calls", "2 tool calls"))
    ran = play(world, script=Script([[bash(f"echo 1 > {number}")] for number in range(4)]))
    assert ran.made == {"project/0", "project/1"}


def test_a_session_that_is_continued_goes_on_under_remit(world: Governed) -> None:
    world.protect()
    play(world, script=Script([[bash("echo 1 > first")]]))
    # The conversation so far is the model's too: its turns are counted on.
    further = Script([[], [], [bash("echo 1 > second"), bash(f"echo 1 > {world.place.outside}/second")]])
    assert play(world, *UNASKED, "--continue", script=further).made == {"project/first", "project/second"}
    assert world.told("reconcile", "claude-code")["full"]


def test_undoing_a_protection_leaves_everything_as_it_was(world: Governed) -> None:
    settings = world.place.project / ".claude" / "settings.local.json"
    settings.parent.mkdir()
    settings.write_bytes(b'{"env": {"A": "1"}}\r\n')
    world.protect()
    world.told("protect", world.assistant.name, "--undo")
    assert settings.read_bytes() == b'{"env": {"A": "1"}}\r\n'
    world.stop()
    assert play(world).made == INSIDE | OUTSIDE


def test_the_doctor_finds_all_well_until_a_hook_is_gone(world: Governed) -> None:
    world.protect()
    play(world, script=few(world.place))
    settings = world.place.project / ".claude" / "settings.local.json"
    assert world.remit("doctor", "claude-code").returncode == 0
    # While it runs, the Hub would put it back.
    world.stop()
    settings.write_text(settings.read_text(encoding="utf-8").replace("PreToolUse", "Stop"), encoding="utf-8")
    with running(home_of(world.place), "--port", str(world.hub.port)):
        assert "problem  registration" in world.remit("doctor", "claude-code").stdout


def test_a_permit_of_any_tool_is_about_the_call_that_the_transcript_tells_of(world: Governed) -> None:
    project = world.place.project
    (project / "sub").mkdir()
    for name in ("a", "b"):
        (project / name).write_text("a a", encoding="utf-8")
    calls = [
        Call("Read", {"file_path": "a"}),
        Call("Read", {"file_path": str(project / "sub" / ".." / "b"), "limit": 1}),
        Call("Edit", {"file_path": "a", "old_string": "a a", "new_string": "b  "}),
        Call("Edit", {"file_path": str(project / "b"), "old_string": "a", "new_string": "b", "replace_all": "true"}),
        Call("Write", {"file_path": "c", "content": "a  \n\n"}),
        Call("Bash", {"command": f"cd {project} && touch b", "timeout": "5000", "run_in_background": False}),
        Call("Bash", {"command": "  true  ", "description": "nothing"}),
    ]
    world.protect()
    play(world, script=Script([[call] for call in calls]))
    found = world.told("reconcile", "claude-code")
    assert (found["full"], found["mismatched"], found["unreceipted"]) == (True, [], [])
    assert found["run"] >= len(calls) - 2


def test_a_refusal_of_any_tool_is_proven_by_the_receipt_that_it_names(world: Governed) -> None:
    project = world.place.project
    file, notebook = project / "a", project / "a.ipynb"
    file.write_text("a", encoding="utf-8")
    notebook.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', encoding="utf-8")
    read = [Call("Read", {"file_path": str(path)}) for path in (file, notebook)]
    calls = [
        Call("Edit", {"file_path": str(file), "old_string": "a", "new_string": "b  "}),
        Call("Write", {"file_path": str(file), "content": "a  \n\n"}),
        Call("NotebookEdit", {"notebook_path": str(notebook), "new_source": "x", "edit_mode": "insert"}),
        Call("Bash", {"command": f"cd {project} && touch b", "run_in_background": True}),
        Call("WebFetch", {"url": "https://example.org", "prompt": "look"}),
        Call("Read", {"file_path": str(world.place.outside / "a")}),
    ]
    world.protect(profile="Mission: Look around.\n\n## Allowed\n\n- Read files\n")
    play(world, script=Script([[call] for call in (*read, *calls)]))
    found = world.told("reconcile", "claude-code")
    assert (found["full"], found["unproven"]) == (True, [])
    assert found["refused"] >= len(calls) - 2
