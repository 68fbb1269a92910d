"""A call as the transcript of an assistant tells it.

A transcript is the assistant's own word, on a disk that its agent may write to. It proves nothing; it is held against
receipts, which do.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["MAX_TEXT", "Call", "Outcome", "Tally", "Transcript", "plain"]

# ran: it has answered; failed: it was begun and has failed; pending: nothing is told of its end.
Outcome: TypeAlias = Literal["ran", "failed", "refused_by_hook", "not_run", "pending"]
MAX_TEXT: Final = 256
# What says most of what became of a call comes first.
_TELLING: Final[Mapping[Outcome, int]] = {"ran": 0, "failed": 1, "refused_by_hook": 2, "not_run": 3, "pending": 4}


class Call(NamedTuple):
    """One call of a tool."""

    id: str
    tool: str
    # The assistant's own names for its session, and for the subagent that has made the call.
    session: str
    agent: str = ""
    # As the transcript writes it: RFC 3339 in UTC, or nothing.
    at: str = ""
    outcome: Outcome = "pending"
    cwd: str = ""


class Transcript(NamedTuple):
    """What one file tells: its calls, and how much of it could not be read."""

    path: str
    session: str
    calls: tuple[Call, ...]
    bad_lines: int = 0
    # Whether there was more than is read of one file.
    cut: bool = False
    # SHA-256 of what was read, in hex.
    digest: str = ""


class Tally:
    """The calls of one transcript, while it is read: each id once, with what says most of it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: dict[str, Call] = {}
        self.full = False

    def asked(self, call: Call) -> None:
        """Note that a call was asked for."""
        known = self._calls.get(call.id)
        if known is not None:
            self._calls[call.id] = call._replace(outcome=_telling(known.outcome, call.outcome))
        elif self._has_room():
            self._calls[call.id] = call

    def settled(self, call: Call) -> None:
        """Note what became of a call; one that nothing has asked for counts too."""
        known = self._calls.get(call.id)
        if known is not None:
            self._calls[call.id] = known._replace(outcome=_telling(known.outcome, call.outcome))
        elif self._has_room():
            self._calls[call.id] = call

    def calls(self) -> tuple[Call, ...]:
        """Return the calls, in the order in which they were met."""
        return tuple(self._calls.values())

    def _has_room(self) -> bool:
        self.full = self.full or len(self._calls) >= self._limit
        return not self.full


def _telling(one: Outcome, other: Outcome) -> Outcome:
    return min(one, other, key=_TELLING.__getitem__)


def plain(value: object) -> str:
    """Return a text from outside, short and whole: what is no text is nothing."""
    text = value if isinstance(value, str) else ""
    return text[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")
