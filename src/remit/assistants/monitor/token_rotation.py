"""Replaces the hook token in all files of a protection, after the token of the Hub was rotated.

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
from remit.server.hook_tokens import hook_token, proof_key, shared_hook_token

_SECRETS: Final = ("token", "proof")


class TokenReplacement(NamedTuple):
    """The result for one protection."""

    protection: Protection
    # The settings files that hold the token.
    changed: tuple[str, ...]
    # Why the token could not be replaced.
    why: str = ""


def replace_hook_tokens(protections: Protections, before: str, after: str) -> list[TokenReplacement]:
    """Replace the secrets of all protections that were derived from the Hub token `before` by those of `after`."""
    return replace_tokens(
        protections,
        lambda protection: {
            shared_hook_token(before): shared_hook_token(after),  # the first release used it for all protections
            hook_token(before, protection): hook_token(after, protection),
            proof_key(before, protection): proof_key(after, protection),
        },
    )


def replace_tokens(protections: Protections, secrets: Callable[[str], Mapping[str, str]]) -> list[TokenReplacement]:
    """Replace the secrets of all protections. `secrets` maps old to new secrets, given a protection id."""
    with protections.locked():
        return [
            _replace_in(protections, protection, secrets(protection.id))
            for protection in protections.all(damaged=lambda _: None)
        ]


def _replace_in(protections: Protections, protection: Protection, secrets: Mapping[str, str]) -> TokenReplacement:
    try:
        wire = protections.wire(protection.id)
        if wire is not None:
            wire = {name: secrets.get(value, value) if name in _SECRETS else value for name, value in wire.items()}
        files = dict[str, tuple[WrittenFile, bytes]]()
        holding = list[tuple[WrittenFile, FileSnapshot]]()
        for old, new in secrets.items():
            tokens = old.encode("ascii"), new.encode("ascii")
            for written, found in ((one, found) for one in protection.files for found in _files_with(one, old)):
                holding.append((written, found))
                files[written.path] = _replace_in_file(written, protection.id, found.data or b"", tokens)
        records = tuple(files.get(written.path, (written, b""))[0] for written in protection.files)
        protections.put(structs.replace(protection, files=records), wire)
        for written, found in holding:
            replace_file(found, files[written.path][1])
    except RemitError as error:
        return TokenReplacement(protection, (), str(error))
    return TokenReplacement(protection, tuple(files))


def _files_with(written: WrittenFile, token: str) -> list[FileSnapshot]:
    """Return the file if it contains the token. It may be gone, or the user may have removed the token."""
    found = read_file(written.path)
    return [found] if found.data is not None and token.encode("ascii") in found.data else []


def _replace_in_file(
    written: WrittenFile, mark: str, data: bytes, tokens: tuple[bytes, bytes]
) -> tuple[WrittenFile, bytes]:
    """Return the record and the content of a file with the new token. Changes by others are kept."""
    original = recover_written(written, mark, data)
    after = written.after if original is None else hashlib.sha256(original.replace(*tokens)).hexdigest()
    return structs.replace(written, after=after), data.replace(*tokens)
