"""A call as the transcript of an assistant tells it.

A transcript is the assistant's own word, on a disk that its agent may write to. It proves nothing; it is held against
receipts, which do.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from remit.claims.canonical import canonicalize, sha256_hex
from remit.errors import RemitError

__all__ = [
    "MAX_TEXT",
    "Call",
    "Outcome",
    "Result",
    "Tally",
    "Transcript",
    "TranscriptReader",
    "digest_of",
    "plain",
    "receipts_in",
]

# ran: it has answered; failed: it was begun and has failed; pending: nothing is told of its end.
Outcome: TypeAlias = Literal["ran", "failed", "refused_by_hook", "not_run", "pending"]
MAX_TEXT: Final = 256
_RECEIPT: Final = re.compile(r"\brcpt:[0-9A-Za-z_-]{8,64}")
_MAX_RECEIPTS: Final = 8
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
    # The tool, and the SHA-256 of the arguments, as a hook is told them; empty where the transcript does not say that.
    hook_tool: str = ""
    hook_arguments: str = ""
    # The SHA-256 of the arguments with absolute paths, which hooks of some assistants are told.
    absolute_arguments: str = ""
    # Whether nothing but the text of the result says that it did not run: a tool may write such a text itself.
    by_words: bool = False
    # The receipts that the text of a refusal names.
    receipts: tuple[str, ...] = ()
    # When its result was written, as `at`; nothing where there is none.
    ended: str = ""

    def settled(self, result: "Result") -> "Call":
        """Return the call with its result."""
        return self._replace(
            outcome=result.outcome, by_words=result.by_words, receipts=result.receipts, ended=result.at
        )


class Result(NamedTuple):
    """What the result of a call says about it."""

    outcome: Outcome
    by_words: bool = False
    receipts: tuple[str, ...] = ()
    at: str = ""


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
            self._calls[call.id] = call.settled(_telling(known, call))
        elif self._has_room():
            self._calls[call.id] = call

    def settled(self, call: Call) -> None:
        """Note what became of a call; one that nothing has asked for counts too."""
        known = self._calls.get(call.id)
        if known is not None:
            self._calls[call.id] = known.settled(_telling(known, call))
        elif self._has_room():
            self._calls[call.id] = call

    def calls(self) -> tuple[Call, ...]:
        """Return the calls, in the order in which they were met."""
        return tuple(self._calls.values())

    def _has_room(self) -> bool:
        self.full = self.full or len(self._calls) >= self._limit
        return not self.full


def _telling(one: Call, other: Call) -> Result:
    """Return the result that says most; of two that say the same, the one that rests on words alone."""
    found = min(one, other, key=lambda call: (_TELLING[call.outcome], not call.by_words))
    # No decision can be later than the first result.
    ended = min((call.ended for call in (one, other) if call.ended), default="")
    return Result(found.outcome, found.by_words, found.receipts, ended)


def receipts_in(text: str) -> tuple[str, ...]:
    """Return the ids of receipts that a text names."""
    return tuple(dict.fromkeys(_RECEIPT.findall(text)))[:_MAX_RECEIPTS]


def digest_of(arguments: object) -> str:
    """Return the SHA-256 of arguments as receipts write it; nothing where they have no canonical form."""
    try:
        return sha256_hex(canonicalize(arguments)) if isinstance(arguments, dict) else ""
    except (RemitError, RecursionError, OverflowError, TypeError):
        return ""


def plain(value: object) -> str:
    """Return a text from outside, short and whole: what is no text is nothing."""
    text = value if isinstance(value, str) else ""
    return text[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")


class TranscriptReader(Protocol):
    """What is known of the transcripts of one assistant."""

    @property
    def name(self) -> str:
        """Return the name of the assistant in commands."""

    @property
    def variable(self) -> str:
        """Return the variable of the environment that names the folder of its settings."""

    @property
    def folder(self) -> str:
        """Return the name of that folder in the user's home."""

    def find(self, config: Path, session: str) -> Iterator[Path]:
        """Yield the files of a session, by the assistant's id of it."""

    def found_in(self, config: Path, folder: str | None) -> Iterator[Path]:
        """Yield the files of sessions that may have been started in a folder or beneath it."""

    def read(self, path: Path) -> Transcript:
        """Return what a file tells."""
