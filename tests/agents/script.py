"""What a stand-in for a model says: turns of words and of calls of tools, written down before.

A script has the turns of the main conversation, and those of others that are known by a word of their first message:
so a subagent has lines of its own. Past its last turn a model says that it is done. A turn may also act on the world
before it speaks, which is how a test stops the Hub in the middle of a run.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = ["DONE", "Call", "Do", "Say", "Script", "Step", "Turn"]


class Say(NamedTuple):
    """Words."""

    text: str


class Call(NamedTuple):
    """A call of a tool; where the arguments are text, of a tool that takes free text."""

    tool: str
    arguments: Mapping[str, Any] | str
    namespace: str = ""


class Do(NamedTuple):
    """Something that happens before the model answers; a request that is sent again does it again."""

    act: Callable[[], object]


Step: TypeAlias = Say | Call | Do
Turn: TypeAlias = Sequence[Step]

DONE: Final[Turn] = (Say("done"),)


class Script(NamedTuple):
    """The turns of the main conversation; and of those whose first message has a word."""

    turns: Sequence[Turn]
    threads: Mapping[str, Sequence[Turn]] = {}

    def turn(self, opening: str, number: int) -> Turn:
        """Return what comes next in the conversation that began so, after so many turns."""
        turns = next((lines for word, lines in self.threads.items() if word in opening), self.turns)
        return turns[number] if number < len(turns) else DONE
