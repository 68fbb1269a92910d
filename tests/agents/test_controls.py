"""Controls: without Remit, every assistant does all that its model asks for, in its project and outside of it.

Without these, a file that is missing after another test would prove nothing.
"""

from collections.abc import Callable

import pytest

from tests.agents import claude, codex, copilot, gemini, opencode
from tests.agents.install import CLAUDES, Assistant
from tests.agents.running import Place, Ran
from tests.agents.scenario import INSIDE, OUTSIDE, Hands, everything
from tests.agents.script import Script

OTHERS: dict[str, tuple[Hands, Callable[[Place, Script], Ran]]] = {
    "codex": (codex, codex.run_codex),
    "copilot": (copilot, copilot.run_copilot),
    "gemini": (gemini, gemini.run_gemini),
    "opencode": (opencode, opencode.run_opencode),
}


@pytest.mark.parametrize("assistant", CLAUDES, ids=str)
def test_claude_code_does_everything_when_nothing_stops_it(assistant: Assistant, place: Place) -> None:
    ran = claude.run_claude(assistant, place, everything(claude, place), *claude.UNASKED)
    assert (ran.code, ran.made) == (0, INSIDE | OUTSIDE), ran.err
    assert claude.transcripts(place)


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_assistant_does_everything_when_nothing_stops_it(name: str, place: Place) -> None:
    hands, run = OTHERS[name]
    ran = run(place, everything(hands, place))
    assert (ran.code, ran.made) == (0, INSIDE | OUTSIDE), ran.err
