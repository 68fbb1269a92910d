"""Protections, as the home keeps them: what an assistant may do, which files were changed, and how they were before.

Keeps these invariants: policy comes from here and never from the folder that is governed; a record is whole and only
its owner reads it, because files of others are in it as they were; and a damaged one is an error, never no protection.
"""

import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from importlib.resources import files as package_files
from typing import Annotated, Any, Final, Literal, TypeAlias, final

from msgspec import Meta

from remit.assistants.install.plan import Form, Level
from remit.claims.mission import parse_mission
from remit.claims.shapes import Claims, build_reader, encode, matching
from remit.claims.strictjson import parse_object
from remit.errors import FieldInvalid, InputError, StateCorrupt, StateMissing, quote
from remit.ledger.home import Home

__all__ = [
    "ANY_ID",
    "FOLDER",
    "SCRIPT_NAME",
    "SECRETS",
    "FileKind",
    "OnTamper",
    "Protection",
    "ProtectionId",
    "Protections",
    "SetMember",
    "Written",
    "script_text",
    "wire_name",
]

FOLDER: Final = "protections"
SCRIPT_NAME: Final = "hook.py"
# Where the command of hooks keeps the secrets of sessions.
SECRETS: Final = "sessions"
FileKind: TypeAlias = Literal["json", "toml", "whole"]
ANY_ID: Final = re.compile(r"prot-[0-9a-f]{12}")
# What to do when the settings of a protection cannot be kept in force: end its sessions, or stop the assistant too.
OnTamper: TypeAlias = Literal["end", "stop"]
ProtectionId: TypeAlias = Annotated[str, matching(ANY_ID.pattern)]
_Path: TypeAlias = Annotated[str, Meta(max_length=4096)]
_LOCK: Final = "protections.lock"
_RECORD: Final = ".json"
_WIRE: Final = ".wire.json"
# Several files as they were before, none larger than 1 MiB, in base64.
_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_WIRE: Final = 64 * 1024
_ASIDE: Final = "set-aside"
_MOST_ASIDE: Final = 20
_SETTLED_NS: Final = 2_000_000_000


class SetMember(Claims, frozen=True, kw_only=True):
    """A member of an object in a JSON file that was given a value. Nothing in the file tells that it was us."""

    where: tuple[str, ...]
    value: Any
    # The text of its value before; None where it was not there.
    former: str | None


class Written(Claims, frozen=True, kw_only=True):
    """One file that was changed."""

    path: _Path
    kind: FileKind
    # What it was, in base64 where it is kept; None where it was not there.
    before: bytes | None
    # SHA-256 of what was written, in hexadecimal.
    after: str
    # The folders that were made for it, from the outside in.
    made: tuple[_Path, ...] = ()
    # What it had before; None where it was not there.
    mode: int | None = None
    # Whether it was taken from others to read, because a token is in it now.
    closed: bool = False
    members: tuple[SetMember, ...] = ()


class Protection(Claims, frozen=True, kw_only=True):
    """What protects one assistant in one place."""

    id: ProtectionId
    assistant: str
    level: Level
    # None is wherever the assistant is started.
    folder: _Path | None
    mode: Literal["ask", "allow"]
    # A mission, which `parse_mission` reads.
    mission: dict[str, Any]
    # Where the profile came from: a path, or the name of a template.
    profile: str
    profile_digest: str
    made_at: str
    hub_url: str
    form: Form
    # Of the assistant; empty where it was not known.
    version: str = ""
    files: tuple[Written, ...] = ()
    guards: tuple[_Path, ...] = ()
    # How often a person has protected the assistant there; 0 where the first release did, which did not count.
    # Sessions that run get fresh limits with the next one.
    generation: int = 0
    on_tamper: OnTamper = "end"


@final
class Protections:
    """The protections of a home. What others write is seen at once."""

    __slots__ = ("_folder", "_guards", "_home", "_known")

    def __init__(self, home: Home) -> None:
        """Use the folder of this home, which is made with the first protection."""
        self._home = home
        self._folder: Home | None = None
        self._known: dict[str, tuple[bytes, Protection]] = {}
        # When the folder was changed that they were read from; and of those, the files that hold a token.
        self._guards: tuple[int, tuple[str, ...], tuple[str, ...]] = (0, (), ())

    def get(self, name: str) -> Protection | None:
        """Return one protection, or None if there is none of this id."""
        folder = self._opened()
        if folder is None or not ANY_ID.fullmatch(name):
            return None
        data = folder.read(name + _RECORD, max_bytes=_MAX_BYTES)
        if data is None:
            return None
        known = self._known.get(name)
        if known is None or known[0] != data:
            known = self._known[name] = (data, _parsed(name, data))
        return known[1]

    def holds(self, name: str) -> bool:
        """Tell whether there is a record of this id, damaged or not."""
        folder = self._opened()
        return folder is not None and ANY_ID.fullmatch(name) is not None and folder.exists(name + _RECORD)

    def all(self, damaged: Callable[[StateCorrupt], None] | None = None) -> list[Protection]:
        """Return all protections, in the order of their ids.

        A damaged one raises; or `damaged` is told of it, for who can do without: those that are left do not protect.
        """
        folder = self._opened()
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
        """Return the paths that no assistant may write to, of all protections."""
        return self._look()[1]

    def with_token(self) -> tuple[str, ...]:
        """Return the files that the first release has written a token into, outside of the home."""
        return self._look()[2]

    def _look(self) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
        """Return when the folder was changed, what is guarded, and the files that hold a token."""
        folder = self._opened()
        if folder is None:
            return 0, (), ()
        changed_ns = folder.changed_ns()
        # What was changed just now may be changed once more without another time.
        if changed_ns != self._guards[0] or time.time_ns() - changed_ns < _SETTLED_NS:
            known = self.all()
            secret = (written.path for one in known if _holds_token(one) for written in one.files)
            self._guards = (
                changed_ns,
                tuple(dict.fromkeys(path for one in known for path in one.guards)),
                tuple(dict.fromkeys(name for path in secret for name in (path, os.path.realpath(path)))),
            )
        return self._guards

    def put(self, protection: Protection, wire: dict[str, Any] | None = None) -> None:
        """Keep a protection, in the place of one of its id, and what its hooks read; the caller holds the lock."""
        folder = self._made()
        parse_mission(protection.mission)
        data = encode(protection)
        _parsed(protection.id, data)
        if wire is not None:
            folder.replace(wire_name(protection.id), encode(wire))
        folder.replace(protection.id + _RECORD, data)

    def remove(self, name: str) -> None:
        """Forget a protection; the caller holds the lock."""
        folder = self._made()
        folder.remove(name + _RECORD)
        folder.remove(wire_name(name))
        self._known.pop(name, None)

    def locked(self, *, wait: bool = True) -> AbstractContextManager[None]:
        """Hold the lock of all protections, among processes; without `wait`, `LedgerInUse` says that others hold it."""
        return self._made().locked(_LOCK, wait=wait)

    def set_aside(self, name: str, data: bytes) -> str:
        """Keep a copy of a file that had to make way, and return its path; the oldest copies go."""
        with self._home.folder(_ASIDE) as folder:
            folder.replace(name, data)
            for old in folder.names()[:-_MOST_ASIDE]:
                folder.remove(old)
            return f"{folder.path}/{name}"

    def put_script(self, text: bytes) -> None:
        """Keep the command of hooks, here because nothing that is governed reaches it; the caller holds the lock."""
        self._made().replace(SCRIPT_NAME, text)
        self._made().folder(SECRETS).close()

    def wire(self, name: str) -> dict[str, Any] | None:
        """Return what the hooks of a protection read; None where there is no such file."""
        data = self._made().read(wire_name(name), max_bytes=_MAX_WIRE)
        if data is None:
            return None
        try:
            return dict(parse_object(data))
        except InputError as error:
            raise StateCorrupt(f"{wire_name(name)} is damaged: {error}") from None

    def wire_path(self, name: str) -> str:
        """Return the path of the file that hooks of a protection read, by which they can be told; it need not exist."""
        return f"{self._made().path}/{wire_name(name)}"

    def _opened(self) -> Home | None:
        if self._folder is None and self._home.version_of(FOLDER) is not None:
            with suppress(StateMissing):
                self._folder = self._home.folder(FOLDER, create=False)
        return self._folder

    def _made(self) -> Home:
        if self._opened() is None:
            self._folder = self._home.folder(FOLDER)
        return self._folder  # type: ignore[return-value]  # it was made


def _holds_token(protection: Protection) -> bool:
    """Tell whether files of a protection outside of the home hold a token, as those of the first release may."""
    over_http = protection.form == "http" and protection.level != "project"
    return protection.generation == 0 and (over_http or protection.level == "managed")


def wire_name(protection: str) -> str:
    """Return the name of the file that tells hooks of a protection where the Hub is."""
    return protection + _WIRE


def script_text(protection: str = "") -> str:
    """Return the source of `hook_command.py`, with a closing comment that names the protection it is written for."""
    text = package_files("remit.assistants").joinpath("hook_command.py").read_text(encoding="utf-8")
    return f"{text}\n# {protection}\n" if protection else text


# It is our own encoding, in a file of ours; and files in it are longer than a string from outside may be.
_read_back: Final = build_reader(Protection)


def _parsed(protection: str, data: bytes) -> Protection:
    try:
        found = _read_back(data)
        if found.id != protection:
            raise FieldInvalid(f"is {quote(found.id)}", place="$.id")
    except InputError as error:
        damaged = StateCorrupt(f"the protection {protection} is damaged: {error}")
        damaged.add_note("Protect the assistant again; undo with the copy of its settings that you have.")
        raise damaged from None
    return found
