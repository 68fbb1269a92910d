"""Reads a token argument: the token itself, `-` for stdin, or `@FILE`.

Every user of the machine can read command lines, so there are other ways.
"""

import sys
from pathlib import Path
from typing import Final

from remit.claims.jws import KINDS, PASSPORT, verify_token
from remit.claims.keys import Keyring
from remit.claims.passport import AUDIENCES, Passport, verify_passport
from remit.errors import FieldInvalid

# Longer than any token, so that longer input is recognized.
_MAX_BYTES: Final = max(kind.max_length for kind in KINDS) + 1024


def read_token_argument(text: str) -> str:
    """Return the token without white space around it. Bytes that are not UTF-8 are escaped."""
    if text == "-" and sys.stdin is not None:
        return _decode(sys.stdin.buffer.read(_MAX_BYTES))
    if text.startswith("@"):
        try:
            with Path(text[1:]).open("rb") as file:
                return _decode(file.read(_MAX_BYTES))
        except (OSError, ValueError):
            raise FieldInvalid(f"the file {text[1:]} cannot be read", place="$.token") from None
    return text.strip()


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").strip()


def verify_passport_ignoring_time(token: str, keyring: Keyring) -> Passport:
    """Verify a passport, even one that has expired or is not valid yet."""
    good_from = verify_token(PASSPORT, token, keyring).claims.get("nbf")
    now = good_from if isinstance(good_from, int) else 0
    return verify_passport(token, keyring, now=now, audiences=AUDIENCES)
