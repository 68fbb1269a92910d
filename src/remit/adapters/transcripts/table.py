"""Whose transcripts can be read here, and why others cannot."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from remit.adapters.transcripts.call import Transcript
from remit.adapters.transcripts.claude_code import ClaudeCode
from remit.adapters.transcripts.codex import Codex

__all__ = ["READERS", "UNREADABLE", "TranscriptReader"]


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


# Given the user's home directory.
READERS: Final[Mapping[str, Callable[[str], TranscriptReader]]] = {
    ClaudeCode.name: ClaudeCode,
    Codex.name: lambda _home: Codex(),
}
# Why a call of these cannot be found again among receipts.
UNREADABLE: Final[Mapping[str, str]] = {
    "gemini": "its hooks are told no call ids",
    "copilot": "its hooks are told no call ids",
    "opencode": "it keeps no transcript in files, only a store of its own",
}
