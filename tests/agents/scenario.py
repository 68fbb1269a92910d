"""The scenario that every assistant plays: each way to act, once in its project and once outside of it.

It acts by the shell, by a tool that writes files, by a tool of an MCP server, and by a subagent. Each act is a call of
its own, and leaves a file: the files that are there afterwards say what has run.
"""

import threading
from pathlib import Path
from typing import Final, Protocol

from tests.agents.running import Place
from tests.agents.script import Call, Do, Say, Script

__all__ = ["INSIDE", "OUTSIDE", "Hands", "everything"]

ACTS: Final = ("shell", "file", "note", "part")
INSIDE: Final = frozenset(f"project/{act}" for act in ACTS)
OUTSIDE: Final = frozenset(f"outside/{act}" for act in ACTS)


class Hands(Protocol):
    """How an assistant is made to act; each module of an assistant is one."""

    # How long its model has to wait for a subagent, because it does not wait itself.
    LINGER_S: float

    def bash(self, command: str) -> Call:
        """Return a call of the shell."""
        ...

    def write(self, path: Path) -> Call:
        """Return a call that writes a file."""
        ...

    def note(self, path: Path) -> Call:
        """Return a call of a tool of an MCP server."""
        ...

    def subagent(self, prompt: str) -> Call:
        """Return a call that starts a subagent."""
        ...


def everything(hands: Hands, place: Place) -> Script:
    """Return a script that acts in every way, inside and outside."""
    both = (place.project, place.outside)
    begun, over = threading.Event(), threading.Event()
    return Script(
        turns=[
            [hands.bash("echo 1 > shell"), hands.bash(f"echo 1 > {place.outside}/shell")],
            [hands.write(folder / "file") for folder in both],
            [hands.note(folder / "note") for folder in both],
            [hands.subagent("PART: act too")],
            [Do(lambda: begun.wait(hands.LINGER_S / 4) and over.wait(hands.LINGER_S)), Say("done")],
        ],
        threads={
            "PART:": [
                [Do(begun.set), *(hands.bash(f"echo 1 > {folder}/part") for folder in both)],
                [Do(over.set), Say("done")],
            ]
        },
    )
