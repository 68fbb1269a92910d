"""Tool calls in the transcript of an assistant.

The assistant writes the transcript, and its agent may be able to change it, so it proves nothing. It is compared with
receipts, which do.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from remit.claims.canonical import canonicalize, sha256_hex
from remit.errors import RemitError

# ran: the call has a result. failed: it was started and failed. pending: the transcript has no result.
Outcome: TypeAlias = Literal["ran", "failed", "refused_by_hook", "not_run", "pending"]
MAX_TEXT: Final = 256
_RECEIPT: Final = re.compile(r"\brcpt:[0-9A-Za-z_-]{8,64}")
_MAX_RECEIPTS: Final = 8
# If a call has several results, the outcome with the lowest rank counts.
_RANK: Final[Mapping[Outcome, int]] = {"ran": 0, "failed": 1, "refused_by_hook": 2, "not_run": 3, "pending": 4}


class TranscriptCall(NamedTuple):
    """One tool call."""

    id: str
    tool: str
    # The ids that the assistant uses for its session, and for the subagent that made the call.
    session: str
    agent: str = ""
    # The time in the transcript, in RFC 3339 format and UTC; empty if there is none.
    at: str = ""
    outcome: Outcome = "pending"
    cwd: str = ""
    # The tool and the SHA-256 of the arguments as the hook received them; empty if the transcript does not show them.
    hook_tool: str = ""
    hook_arguments: str = ""
    # The SHA-256 of the arguments with absolute paths, which hooks of some assistants receive.
    absolute_arguments: str = ""
    # Whether the text of the result is the only sign that the call did not run. A tool can write such a text.
    by_words: bool = False
    # The receipt ids in the text of a denial.
    receipts: tuple[str, ...] = ()
    # The time of its result, in the format of `at`; empty if there is none.
    ended: str = ""

    def with_result(self, result: "Result") -> "TranscriptCall":
        """Return the call with its result."""
        return self._replace(
            outcome=result.outcome, by_words=result.by_words, receipts=result.receipts, ended=result.at
        )


class Result(NamedTuple):
    """The result of a call."""

    outcome: Outcome
    by_words: bool = False
    receipts: tuple[str, ...] = ()
    at: str = ""


class Transcript(NamedTuple):
    """One parsed transcript."""

    path: str
    session: str
    calls: tuple[TranscriptCall, ...]
    bad_lines: int = 0
    # Whether the file is longer than the limit.
    cut: bool = False
    # SHA-256 of the lines that were read, in hexadecimal.
    digest: str = ""


class CallCollector:
    """Collects the calls of one transcript. Each call id is kept once, with the most significant result."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: dict[str, TranscriptCall] = {}
        self.full = False

    def add_call(self, call: TranscriptCall) -> None:
        """Add a call."""
        known = self._calls.get(call.id)
        if known is not None:
            self._calls[call.id] = call.with_result(_select_result(known, call))
        elif self._has_room():
            self._calls[call.id] = call

    def add_result(self, call: TranscriptCall) -> None:
        """Add the result of a call. The call itself need not have been added."""
        known = self._calls.get(call.id)
        if known is not None:
            self._calls[call.id] = known.with_result(_select_result(known, call))
        elif self._has_room():
            self._calls[call.id] = call

    def calls(self) -> tuple[TranscriptCall, ...]:
        """Return the calls in the order in which they were added."""
        return tuple(self._calls.values())

    def _has_room(self) -> bool:
        self.full = self.full or len(self._calls) >= self._limit
        return not self.full


def _select_result(one: TranscriptCall, other: TranscriptCall) -> Result:
    """Return the more significant of two results; of two with the same outcome, the one that rests on text alone."""
    found = min(one, other, key=lambda call: (_RANK[call.outcome], not call.by_words))
    # A valid decision is not later than the first result.
    ended = min((call.ended for call in (one, other) if call.ended), default="")
    return Result(found.outcome, found.by_words, found.receipts, ended)


def find_receipt_ids(text: str) -> tuple[str, ...]:
    """Return the receipt ids in a text."""
    return tuple(dict.fromkeys(_RECEIPT.findall(text)))[:_MAX_RECEIPTS]


def arguments_digest(arguments: object) -> str:
    """Return the SHA-256 of arguments as in receipts; empty if they have no canonical form."""
    try:
        return sha256_hex(canonicalize(arguments)) if isinstance(arguments, dict) else ""
    except (RemitError, RecursionError, OverflowError, TypeError):
        return ""


def clean_text(value: object) -> str:
    """Return a string, truncated and as valid UTF-8; empty if the value is not a string."""
    text = value if isinstance(value, str) else ""
    return text[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")


class TranscriptReader(Protocol):
    """Finds and parses the transcripts of one assistant."""

    @property
    def name(self) -> str:
        """Return the assistant's name in commands."""

    @property
    def variable(self) -> str:
        """Return the environment variable that names its settings folder."""

    @property
    def folder(self) -> str:
        """Return the default name of that folder in the home directory."""

    def find(self, config: Path, session: str) -> Iterator[Path]:
        """Yield the files of a session, given the assistant's session id."""

    def find_in_folder(self, config: Path, folder: str | None) -> Iterator[Path]:
        """Yield the files of sessions that may have been started in a folder or below it."""

    def read(self, path: Path) -> Transcript:
        """Parse a transcript."""
