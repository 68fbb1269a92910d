"""Replacing the token of hooks in everything that a protection has written, after the Hub got a new one.

Invariants: nothing but the token changes in a file; the record of a protection is written before its files, under the
lock of all protections, so that the settings monitor does not restore the old token; a file that cannot be changed is
reported, and the others are changed all the same.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from msgspec import structs

from remit.assistants.install.files import FileSnapshot, read_file, replace_file
from remit.assistants.monitor.fragments import recover_written
from remit.assistants.records import Protection, Protections, WrittenFile
from remit.errors import RemitError

__all__ = ["Retokened", "replace_tokens"]

_SECRETS: Final = ("token", "proof")


class Retokened(NamedTuple):
    """One protection after the token was replaced: the settings that hold it, and why it could not be replaced."""

    protection: Protection
    changed: tuple[str, ...]
    why: str = ""


def replace_tokens(protections: Protections, secrets: Callable[[str], Mapping[str, str]]) -> list[Retokened]:
    """Replace the secrets of all protections; `secrets` maps the old to the new ones of the protection of an id."""
    with protections.locked():
        return [
            _replaced(protections, protection, secrets(protection.id))
            for protection in protections.all(damaged=lambda _: None)
        ]


def _replaced(protections: Protections, protection: Protection, secrets: Mapping[str, str]) -> Retokened:
    try:
        wire = protections.wire(protection.id)
        if wire is not None:
            wire = {name: secrets.get(value, value) if name in _SECRETS else value for name, value in wire.items()}
        files = dict[str, tuple[WrittenFile, bytes]]()
        held = list[tuple[WrittenFile, FileSnapshot]]()
        for old, new in secrets.items():
            tokens = old.encode("ascii"), new.encode("ascii")
            for written, found in ((one, found) for one in protection.files for found in _holding(one, old)):
                held.append((written, found))
                files[written.path] = _retokened(written, protection.id, found.data or b"", tokens)
        kept = tuple(files.get(written.path, (written, b""))[0] for written in protection.files)
        protections.put(structs.replace(protection, files=kept), wire)
        for written, found in held:
            replace_file(found, files[written.path][1])
    except RemitError as error:
        return Retokened(protection, (), str(error))
    return Retokened(protection, tuple(files))


def _holding(written: WrittenFile, token: str) -> list[FileSnapshot]:
    """Return the file if the token is in it; one that is gone or was changed by hand need not have it."""
    found = read_file(written.path)
    return [found] if found.data is not None and token.encode("ascii") in found.data else []


def _retokened(written: WrittenFile, mark: str, data: bytes, tokens: tuple[bytes, bytes]) -> tuple[WrittenFile, bytes]:
    """Return the record of a file and the file with the new token; what others have changed in it stays theirs."""
    was = recover_written(written, mark, data)
    after = written.after if was is None else hashlib.sha256(was.replace(*tokens)).hexdigest()
    return structs.replace(written, after=after), data.replace(*tokens)
