"""Real Gemini CLI under Remit, with everything pre-approved in it: what does not happen, Remit has stopped."""

from collections.abc import Iterator

import pytest

from tests.agents import gemini
from tests.agents.gemini import bash, note, run_gemini, settle, subagent, write
from tests.agents.governed import Governed, governed, home_of, receipts
from tests.agents.impostors import IMPOSTORS, listening
from tests.agents.install import GEMINI
from tests.agents.running import Place, Ran
from tests.agents.scenario import INSIDE, OUTSIDE, everything
from tests.agents.script import Do, Script


@pytest.fixture
def world(place: Place) -> Iterator[Governed]:
    """A Hub, and Gemini CLI."""
    settle(place)
    with governed(GEMINI, place) as built:
        yield built


def play(world: Governed, script: Script | None = None, *options: str) -> Ran:
    """Run Gemini CLI over a script, or over the whole scenario."""
    return run_gemini(world.place, script or everything(gemini, world.place), *options)


@pytest.mark.parametrize("level", ["local", "user"])
def test_what_is_permitted_happens_and_what_is_not_leaves_no_trace(world: Governed, level: str) -> None:
    world.protect("--settings", level)
    ran = play(world)
    assert ran.made == INSIDE, ran.out
    assert ran.model.heard("Remit refused this call")
    assert ran.model.heard("This session of Gemini CLI is governed by Remit")


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


def test_no_calls_run_when_the_command_of_the_hook_is_gone(world: Governed) -> None:
    world.protect()
    for file in (home_of(world.place) / "protections").glob("*.py"):
        file.unlink()
    assert play(world).made == set()


def test_an_assistant_cannot_take_its_hooks_away(world: Governed) -> None:
    world.protect()
    settings = world.place.project / ".gemini" / "settings.json"
    before = settings.read_bytes()
    attempts = [
        bash("rm -f .gemini/settings.json"),
        bash("mv .gemini elsewhere"),
        bash("sed -i s/BeforeTool/AfterAgent/ .gemini/settings.json"),
        write(settings),
        write(world.place.home / ".gemini" / "settings.json"),
    ]
    ran = play(world, Script([[attempt] for attempt in attempts]))
    assert (settings.read_bytes(), ran.made) == (before, frozenset())
    assert {receipt.verdict for receipt in receipts(world.place)} == {"violation"}


def test_undoing_a_protection_leaves_everything_as_it_was(world: Governed) -> None:
    world.protect()
    world.told("protect", "gemini", "--undo")
    assert not (world.place.project / ".gemini").exists()
    world.stop()
    assert play(world).made == INSIDE | OUTSIDE
