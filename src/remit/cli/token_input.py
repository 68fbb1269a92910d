"""A token as people give it: on the command line, from a pipe (`-`), or in a file (`@FILE`).

A command line can be read by everyone on the machine while it runs, so there must be other ways.
"""

import sys
from pathlib import Path
from typing import Final

from remit.claims.jws import KINDS, PASSPORT, verify_token
from remit.claims.keys import Keyring
from remit.claims.passport import AUDIENCES, Passport, verify_passport
from remit.errors import FieldInvalid

__all__ = ["read_token_argument", "verify_passport_ignoring_time"]

# What is longer than any token is told apart from one just as well by its beginning.
_MAX_BYTES: Final = max(kind.max_length for kind in KINDS) + 1024


def read_token_argument(text: str) -> str:
    """Return what was given, without the white space around it. Bytes that no token has are kept as such."""
    if text == "-" and sys.stdin is not None:
        return _decoded(sys.stdin.buffer.read(_MAX_BYTES))
    if text.startswith("@"):
        try:
            with Path(text[1:]).open("rb") as file:
                return _decoded(file.read(_MAX_BYTES))
        except (OSError, ValueError):
            raise FieldInvalid("the file cannot be read", place="$.token") from None
    return text.strip()


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").strip()


def verify_passport_ignoring_time(token: str, keyring: Keyring) -> Passport:
    """Return the passport of a token that verifies, even if its time is over or has not come."""
    good_from = verify_token(PASSPORT, token, keyring).claims.get("nbf")
    now = good_from if isinstance(good_from, int) else 0
    return verify_passport(token, keyring, now=now, audiences=AUDIENCES)
