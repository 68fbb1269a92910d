"""Replacing the token of hooks in everything that a protection has written, after the Hub got a new one.

Invariants: nothing but the token changes in a file; the record of a protection is written before its files, under the
lock of all protections, so that the settings monitor does not restore the old token; a file that cannot be changed is
reported, and the others are changed all the same.
"""

import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import structs

from remit.adapters.protection.files import Found, look, replace
from remit.adapters.protection.parts import as_written
from remit.adapters.protection.records import Protection, Protections, Written
from remit.errors import RemitError

__all__ = ["Retokened", "replace_tokens"]

_TOKEN: Final = "token"  # noqa: S105 - the name of a member


class Retokened(NamedTuple):
    """One protection after the token was replaced: the settings that hold it, and why it could not be replaced."""

    protection: Protection
    changed: tuple[str, ...]
    why: str = ""


def replace_tokens(protections: Protections, tokens: Callable[[str], tuple[str, str]]) -> list[Retokened]:
    """Replace the tokens of all protections; `tokens` returns the old and the new one for the id of a protection."""
    with protections.locked():
        return [
            _replaced(protections, protection, *tokens(protection.id))
            for protection in protections.all(damaged=lambda _: None)
        ]


def _replaced(protections: Protections, protection: Protection, old: str, new: str) -> Retokened:
    try:
        wire = protections.wire(protection.id)
        if wire is not None:
            wire[_TOKEN] = new
        held = [(written, found) for written in protection.files for found in _holding(written, old)]
        tokens = old.encode("ascii"), new.encode("ascii")
        files = {written.path: _retokened(written, protection.id, found.data or b"", tokens) for written, found in held}
        kept = tuple(files.get(written.path, (written, b""))[0] for written in protection.files)
        protections.put(structs.replace(protection, files=kept), wire)
        for written, found in held:
            replace(found, files[written.path][1])
    except RemitError as error:
        return Retokened(protection, (), str(error))
    return Retokened(protection, tuple(files))


def _holding(written: Written, token: str) -> list[Found]:
    """Return the file if the token is in it; one that is gone or was changed by hand need not have it."""
    found = look(written.path)
    return [found] if found.data is not None and token.encode("ascii") in found.data else []


def _retokened(written: Written, mark: str, data: bytes, tokens: tuple[bytes, bytes]) -> tuple[Written, bytes]:
    """Return the record of a file and the file with the new token; what others have changed in it stays theirs."""
    was = as_written(written, mark, data)
    after = written.after if was is None else hashlib.sha256(was.replace(*tokens)).hexdigest()
    return structs.replace(written, after=after), data.replace(*tokens)
