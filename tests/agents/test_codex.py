"""Real Codex CLI under Remit, with everything pre-approved in Codex itself: what does not happen, Remit has stopped."""

import re
from collections.abc import Iterator

import pytest

from tests.agents import codex
from tests.agents.codex import bash, note, run_codex, settle, subagent, write
from tests.agents.governed import PROFILE, Governed, governed, home_of, verdicts
from tests.agents.impostors import IMPOSTORS, listening
from tests.agents.install import CODEX, program_of
from tests.agents.running import Place, Ran
from tests.agents.scenario import INSIDE, OUTSIDE, everything
from tests.agents.script import Call, Do, Script


@pytest.fixture
def world(place: Place) -> Iterator[Governed]:
    """A Hub, and Codex, which trusts the project."""
    settle(place)
    with governed(CODEX, place) as built:
        yield built


def play(world: Governed, script: Script | None = None, *options: str) -> Ran:
    """Run Codex over a script, or over the whole scenario."""
    return run_codex(world.place, script or everything(codex, world.place), *options)


@pytest.mark.parametrize("level", ["local", "user"])
def test_what_is_permitted_happens_and_what_is_not_leaves_no_trace(world: Governed, level: str) -> None:
    world.protect("--settings", level)
    ran = play(world)
    assert ran.made == INSIDE, ran.out
    assert ran.model.heard("Remit refused this call")
    assert ran.model.heard("This session of Codex CLI is governed by Remit")


def test_every_call_has_a_receipt_under_the_name_that_codex_gives_it(world: Governed) -> None:
    world.protect()
    ran = play(world)
    named = set(re.findall(r"call_[0-9a-f]{16,}", str(ran.model.requests)))
    assert set(verdicts(world.place)) == named
    assert sorted(verdicts(world.place).values()) == ["compliant"] * 5 + ["violation"] * 4
    assert world.told("ledger", "check")["ok"]
    assert world.told("reconcile", "codex")["full"]


def test_no_calls_run_once_the_hub_is_gone(world: Governed) -> None:
    world.protect()
    script = Script(
        turns=[
            [bash("echo 1 > before")],
            [Do(world.stop), bash("echo 1 > shell")],
            [write(world.place.project / "file"), note(world.place.project / "note"), subagent("PART: act too")],
        ],
        threads={"PART:": [[bash("echo 1 > part")]]},
    )
    assert play(world, script).made == {"project/before"}


@pytest.mark.parametrize("impostor", IMPOSTORS)
def test_no_calls_run_when_something_else_answers_in_the_place_of_the_hub(world: Governed, impostor: str) -> None:
    world.protect()
    world.stop()
    with listening(world.hub.port, IMPOSTORS[impostor]):
        assert play(world).made == set()


def test_no_calls_run_when_the_command_of_the_hook_is_gone(world: Governed) -> None:
    world.protect()
    for file in (home_of(world.place) / "protections").glob("*.py"):
        file.unlink()
    assert play(world).made == set()


def test_a_call_that_asks_for_another_folder_is_judged_there(world: Governed) -> None:
    world.protect("--settings", "user")
    elsewhere = Call("exec_command", {"cmd": "echo 1 > shell", "workdir": str(world.place.outside)})
    assert play(world, Script([[elsewhere]])).made == set()


def test_nothing_is_typed_into_a_program_that_runs(world: Governed) -> None:
    world.protect()
    ran = play(world, Script([[Call("exec_command", {"cmd": "cat > file", "tty": True, "yield_time_ms": 300})]]))
    assert ran.model.heard("TTY execution is disabled")
    assert ran.made == set()


def test_an_assistant_cannot_take_its_hooks_away(world: Governed) -> None:
    world.protect()
    hooks, trust = world.place.project / ".codex" / "hooks.json", world.place.home / ".codex" / "config.toml"
    before = hooks.read_bytes(), trust.read_bytes()
    attempts = [
        bash("rm -f .codex/hooks.json"),
        bash("mv .codex elsewhere"),
        bash("echo '[features]' > .codex/config.toml"),
        bash(f"sed -i s/trusted_hash/x/ {trust}"),
        write(hooks.with_name("new.json")),
    ]
    ran = play(world, Script([[attempt] for attempt in attempts]))
    assert (hooks.read_bytes(), trust.read_bytes(), ran.made) == (*before, frozenset())
    assert set(verdicts(world.place).values()) == {"violation"}


def test_a_folder_that_codex_does_not_trust_is_not_called_protected(world: Governed) -> None:
    (world.place.home / ".codex" / "config.toml").write_text("", encoding="utf-8")
    profile = world.place.root / "REMIT.md"
    profile.write_text(PROFILE, encoding="utf-8")
    done = world.remit("protect", "codex", "--profile", str(profile), "--program", str(program_of(CODEX)), "--json")
    assert done.returncode != 0
    assert not (world.place.project / ".codex").exists()


def test_undoing_a_protection_leaves_everything_as_it_was(world: Governed) -> None:
    trust = world.place.home / ".codex" / "config.toml"
    before = trust.read_bytes()
    world.protect()
    assert trust.read_bytes() != before
    world.told("protect", "codex", "--undo")
    assert trust.read_bytes() == before
    assert not (world.place.project / ".codex").exists()
    world.stop()
    assert play(world).made == INSIDE | OUTSIDE
