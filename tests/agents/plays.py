"""Claude Code over scripts, where it is governed."""

from tests.agents import claude
from tests.agents.claude import UNASKED, bash, note, run_claude, write
from tests.agents.governed import Governed
from tests.agents.running import Place, Ran
from tests.agents.scenario import everything
from tests.agents.script import Script

__all__ = ["few", "play"]


def play(world: Governed, *options: str, script: Script | None = None, **environment: str) -> Ran:
    """Run Claude Code over a script, or over the whole scenario; without options, everything is pre-approved."""
    asked = script or everything(claude, world.place)
    return run_claude(world.assistant, world.place, asked, *(options or UNASKED), **environment)


def few(place: Place) -> Script:
    """Return a script of a few calls that the profile permits: only a failure stops them."""
    return Script([[bash("echo 1 > shell"), write(place.project / "file"), note(place.project / "note")]])
