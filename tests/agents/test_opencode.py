"""Real opencode under Remit, with everything pre-approved in it: what does not happen, Remit has stopped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import opencode
from tests.agents.governed import Governed, governed, home_of, receipts, verdicts
from tests.agents.impostors import IMPOSTORS, listening
from tests.agents.install import OPENCODE, program_of
from tests.agents.opencode import bash, note, run_opencode, subagent, write
from tests.agents.running import Place, Ran
from tests.agents.scenario import INSIDE, OUTSIDE, everything
from tests.agents.script import Do, Script
from tests.assistants.protection.plugged import ANSWERS, drive, hub_that, install
from tests.ports import refusing_port


@pytest.fixture
def world(place: Place) -> Iterator[Governed]:
    """A Hub, and opencode."""
    with governed(OPENCODE, place) as built:
        yield built


def play(world: Governed, script: Script | None = None, *options: str) -> Ran:
    """Run opencode over a script, or over the whole scenario."""
    return run_opencode(world.place, script or everything(opencode, world.place), *options)


@pytest.mark.parametrize("level", ["local", "user"])
def test_what_is_permitted_happens_and_what_is_not_leaves_no_trace(world: Governed, level: str) -> None:
    world.protect("--settings", level)
    ran = play(world)
    assert ran.made == INSIDE, ran.out
    assert ran.model.heard("Remit refused this call")
    assert ran.model.heard("This session of opencode is governed by Remit")


def test_every_call_has_a_receipt_and_every_permitted_one_its_outcome(world: Governed) -> None:
    world.protect()
    play(world)
    found = receipts(world.place)
    outcomes = [receipt for receipt in found if receipt.tool == "remit.result"]
    decided = sorted(receipt.verdict for receipt in found if not receipt.tool.startswith("remit."))
    assert decided == ["compliant"] * 5 + ["violation"] * 4
    assert len(outcomes) == decided.count("compliant")
    assert world.told("ledger", "check")["ok"]


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


def test_no_calls_run_when_the_wire_file_is_gone(world: Governed) -> None:
    world.protect()
    for file in (home_of(world.place) / "protections").glob("*.wire.json"):
        file.unlink()
    assert play(world).made == set()


def test_an_assistant_cannot_take_its_hooks_away(world: Governed) -> None:
    world.protect()
    (plugin,) = (world.place.project / ".opencode" / "plugin").glob("remit-*.js")
    before = plugin.read_bytes()
    attempts = [
        bash(f"rm -f {plugin}"),
        bash("mv .opencode elsewhere"),
        bash("echo > .opencode/plugin/a.js"),
        write(plugin),
        write(world.place.project / "opencode.json"),
        write(world.place.home / ".config" / "opencode" / "plugin" / "a.js"),
    ]
    ran = play(world, Script([[attempt] for attempt in attempts]))
    assert (plugin.read_bytes(), ran.made) == (before, frozenset())
    assert set(verdicts(world.place).values()) == {"violation"}


def test_undoing_a_protection_leaves_everything_as_it_was(world: Governed) -> None:
    world.protect()
    world.told("protect", "opencode", "--undo")
    assert not list((world.place.project / ".opencode").rglob("remit-*"))
    world.stop()
    assert play(world).made == INSIDE | OUTSIDE


def test_the_token_does_not_go_to_a_proxy_that_the_environment_names(tmp_path: Path) -> None:
    # The engine inside opencode sends what it fetches to such a proxy, to this machine itself too.
    with hub_that(ANSWERS["permit"]) as (port, heard), refusing_port() as refusing:
        proxy = f"http://127.0.0.1:{refusing}"
        program = str(program_of(OPENCODE))
        came = drive(install(tmp_path, port), program=program, BUN_BE_BUN="1", HTTP_PROXY=proxy, http_proxy=proxy)
    assert came["ran"] is True
    assert heard
