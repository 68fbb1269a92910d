"""The stored protections: what an assistant may do, which files were changed, and their former content.

Invariants:

- The policy comes from these records, never from the governed folder.
- A record is written atomically, and only its owner can read it, because it has the former content of other files.
- A damaged record is an error. It is never treated as a missing one.
"""

import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from importlib.resources import files as package_files
from typing import Annotated, Any, Final, Literal, TypeAlias, final

from msgspec import Meta

from remit.claims.mission import parse_mission
from remit.claims.strictjson import parse_object
from remit.claims.types import Claims, build_decoder, encode, matches
from remit.errors import FieldInvalid, InputError, StateCorrupt, StateMissing, quote
from remit.ledger.home import Home

PROTECTIONS_FOLDER: Final = "protections"
SCRIPT_NAME: Final = "hook.py"
# The folder in which the hook command keeps the secrets of sessions.
SECRETS: Final = "sessions"
# The settings that hold the hooks, and how these call the Hub.
Level: TypeAlias = Literal["local", "project", "user", "managed"]
HookForm: TypeAlias = Literal["http", "command", "plugin"]
FileKind: TypeAlias = Literal["json", "toml", "whole"]
PROTECTION_ID: Final = re.compile(r"prot-[0-9a-f]{12}")
# What to do after tampering: end the sessions of the protection, or also stop the processes of the assistant.
OnTamper: TypeAlias = Literal["end", "stop"]
ProtectionId: TypeAlias = Annotated[str, matches(PROTECTION_ID.pattern)]
_Path: TypeAlias = Annotated[str, Meta(max_length=4096)]
_LOCK: Final = "protections.lock"
_RECORD: Final = ".json"
_WIRE: Final = ".wire.json"
# A record has the former content of several files in base64, each of at most 1 MiB.
_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_WIRE: Final = 64 * 1024
_BACKUPS: Final = "set-aside"
_MAX_BACKUPS: Final = 20
_TIMESTAMP_RESOLUTION_NS: Final = 2_000_000_000


class SetMember(Claims, frozen=True, kw_only=True):
    """A member that Remit set in a JSON file. Nothing in the file itself shows that."""

    where: tuple[str, ...]
    value: Any
    # The JSON text of its former value; None if it was missing.
    former: str | None


class WrittenFile(Claims, frozen=True, kw_only=True):
    """One file that Remit wrote or changed."""

    path: _Path
    kind: FileKind
    # Its former content, in base64 in the stored record; None if it did not exist.
    before: bytes | None
    # SHA-256 of the written content, in hexadecimal.
    after: str
    # The folders that were created for it, outermost first.
    made: tuple[_Path, ...] = ()
    # Its former mode; None if it did not exist.
    mode: int | None = None
    # Whether the read permission of other users was removed, because it has a token.
    closed: bool = False
    members: tuple[SetMember, ...] = ()


class Protection(Claims, frozen=True, kw_only=True):
    """The protection of one assistant, in one folder or in all."""

    id: ProtectionId
    assistant: str
    level: Level
    # None covers every folder that the assistant is started in.
    folder: _Path | None
    mode: Literal["ask", "allow"]
    # In the format of `parse_mission`.
    mission: dict[str, Any]
    # The path of the profile, or the name of a template.
    profile: str
    profile_digest: str
    made_at: str
    hub_url: str
    form: HookForm
    # The version of the assistant; empty if unknown.
    version: str = ""
    files: tuple[WrittenFile, ...] = ()
    guards: tuple[_Path, ...] = ()
    # Incremented each time the user runs `remit protect`; 0 for protections of the first release. Running sessions get
    # fresh limits with the next generation.
    generation: int = 0
    on_tamper: OnTamper = "end"


@final
class Protections:
    """The protections of a home. Changes by other processes are visible at once."""

    __slots__ = ("_folder", "_guards", "_home", "_known")

    def __init__(self, home: Home) -> None:
        """Use a folder in this home, which is created with the first protection."""
        self._home = home
        self._folder: Home | None = None
        self._known: dict[str, tuple[bytes, Protection]] = {}
        # The modification time of the folder, the guarded paths, and the files that hold a token.
        self._guards: tuple[int, tuple[str, ...], tuple[str, ...]] = (0, (), ())

    def get(self, name: str) -> Protection | None:
        """Return a protection, or None if there is none with this id."""
        folder = self._open_folder()
        if folder is None or not PROTECTION_ID.fullmatch(name):
            return None
        data = folder.read(name + _RECORD, max_bytes=_MAX_BYTES)
        if data is None:
            return None
        known = self._known.get(name)
        if known is None or known[0] != data:
            known = self._known[name] = (data, _parse_record(name, data))
        return known[1]

    def holds(self, name: str) -> bool:
        """Return whether there is a record with this id, damaged or not."""
        folder = self._open_folder()
        return folder is not None and PROTECTION_ID.fullmatch(name) is not None and folder.exists(name + _RECORD)

    def all(self, damaged: Callable[[StateCorrupt], None] | None = None) -> list[Protection]:
        """Return all protections, ordered by id.

        A damaged record raises `StateCorrupt`. With `damaged`, that is called with the error instead, and the record is
        left out: pass it only where a missing protection weakens nothing.
        """
        folder = self._open_folder()
        names = [] if folder is None else [name for name in folder.names() if not name.endswith(_WIRE)]
        found = list[Protection | None]()
        for name in names:
            if name.endswith(_RECORD):
                try:
                    found.append(self.get(name.removesuffix(_RECORD)))
                except StateCorrupt as error:
                    if damaged is None:
                        raise
                    damaged(error)
        return [one for one in found if one is not None]

    def guarded(self) -> tuple[str, ...]:
        """Return the paths of all protections that no assistant may write to."""
        return self._load_guards()[1]

    def with_token(self) -> tuple[str, ...]:
        """Return the files outside of the home into which the first release wrote a token."""
        return self._load_guards()[2]

    def _load_guards(self) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
        """Return the modification time of the folder, the guarded paths, and the files that hold a token."""
        folder = self._open_folder()
        if folder is None:
            return 0, (), ()
        changed_ns = folder.changed_ns()
        # A second change within the resolution of timestamps does not change the modification time.
        if changed_ns != self._guards[0] or time.time_ns() - changed_ns < _TIMESTAMP_RESOLUTION_NS:
            known = self.all()
            secret = (written.path for one in known if _holds_token(one) for written in one.files)
            self._guards = (
                changed_ns,
                tuple(dict.fromkeys(path for one in known for path in one.guards)),
                tuple(dict.fromkeys(name for path in secret for name in (path, os.path.realpath(path)))),
            )
        return self._guards

    def put(self, protection: Protection, wire: dict[str, Any] | None = None) -> None:
        """Store a protection and, if given, the wire file of its hooks. The caller holds the lock."""
        folder = self._ensure_folder()
        parse_mission(protection.mission)
        data = encode(protection)
        _parse_record(protection.id, data)
        if wire is not None:
            folder.replace(wire_name(protection.id), encode(wire))
        folder.replace(protection.id + _RECORD, data)

    def remove(self, name: str) -> None:
        """Delete a protection. The caller holds the lock."""
        folder = self._ensure_folder()
        folder.remove(name + _RECORD)
        folder.remove(wire_name(name))
        self._known.pop(name, None)

    def locked(self, *, wait: bool = True) -> AbstractContextManager[None]:
        """Hold the lock of all protections, across processes. Without `wait`, raises `LedgerInUse` if it is taken."""
        return self._ensure_folder().locked(_LOCK, wait=wait)

    def set_aside(self, name: str, data: bytes) -> str:
        """Save a copy of a replaced file, and return its path. The oldest copies are deleted."""
        with self._home.folder(_BACKUPS) as folder:
            folder.replace(name, data)
            for old in folder.names()[:-_MAX_BACKUPS]:
                folder.remove(old)
            return f"{folder.path}/{name}"

    def put_script(self, text: bytes) -> None:
        """Store the hook command, out of reach of governed assistants. The caller holds the lock."""
        self._ensure_folder().replace(SCRIPT_NAME, text)
        self._ensure_folder().folder(SECRETS).close()

    def wire(self, name: str) -> dict[str, Any] | None:
        """Return the content of the wire file of a protection, or None if there is none."""
        data = self._ensure_folder().read(wire_name(name), max_bytes=_MAX_WIRE)
        if data is None:
            return None
        try:
            return dict(parse_object(data))
        except InputError as error:
            raise StateCorrupt(f"{wire_name(name)} is damaged: {error}") from None

    def wire_path(self, name: str) -> str:
        """Return the path of the wire file of a protection. The file need not exist."""
        return f"{self._ensure_folder().path}/{wire_name(name)}"

    def _open_folder(self) -> Home | None:
        if self._folder is None and self._home.version_of(PROTECTIONS_FOLDER) is not None:
            with suppress(StateMissing):
                self._folder = self._home.folder(PROTECTIONS_FOLDER, create=False)
        return self._folder

    def _ensure_folder(self) -> Home:
        if self._open_folder() is None:
            self._folder = self._home.folder(PROTECTIONS_FOLDER)
        return self._folder  # type: ignore[return-value]  # it was created


def _holds_token(protection: Protection) -> bool:
    """Return whether files of a protection outside of the home may hold a token, as in the first release."""
    over_http = protection.form == "http" and protection.level != "project"
    return protection.generation == 0 and (over_http or protection.level == "managed")


def wire_name(protection: str) -> str:
    """Return the name of the wire file, from which hooks of a protection read how to connect to the Hub."""
    return protection + _WIRE


def hook_script_text(protection: str = "") -> str:
    """Return the source of `hook_command.py`, with a closing comment that names the protection it is written for."""
    text = package_files("remit.assistants").joinpath("hook_command.py").read_text(encoding="utf-8")
    return f"{text}\n# {protection}\n" if protection else text


# Not the parser for untrusted input: the file content in records is longer than the strings which that accepts.
_decode_record: Final = build_decoder(Protection)


def _parse_record(protection: str, data: bytes) -> Protection:
    try:
        found = _decode_record(data)
        if found.id != protection:
            raise FieldInvalid(f"is {quote(found.id)}", place="$.id")
    except InputError as error:
        damaged = StateCorrupt(f"the protection {protection} is damaged: {error}")
        damaged.add_note("Protect the assistant again; undo with the copy of its settings that you have.")
        raise damaged from None
    return found
