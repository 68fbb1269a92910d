"""The marker: a file that records that the home has a ledger, and which one.

An empty `ledger.db` may be a new ledger, or one that was truncated. The marker distinguishes them: it is written when a
ledger is created, and never removed. Like the anchor, it detects accidents, but not an attacker who can write to the
home.
"""

from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from remit.claims.strictjson import parse_object
from remit.claims.types import Claims, convert, encode
from remit.errors import InputError, LedgerForeign, StateCorrupt
from remit.ledger.home import Home

_FILE: Final = "ledger.id"
_MAX_BYTES: Final = 4096


class Marker(NamedTuple):
    """The ledger of a home: its id, and the id of its first key."""

    ledger: str
    first_kid: str


class _MarkerMembers(Claims, frozen=True, kw_only=True):
    ledger: Annotated[str, Meta(min_length=1, max_length=128)]
    first_kid: Annotated[str, Meta(min_length=1, max_length=128)]


def read_marker(home: Home) -> Marker | None:
    """Return the marker of a home, or None if none was ever written."""
    data = home.read(_FILE, max_bytes=_MAX_BYTES)
    try:
        members = None if data is None else convert(_MarkerMembers, parse_object(data))
    except InputError as error:
        raise StateCorrupt(f"{_FILE} is damaged: {error}") from None
    return None if members is None else Marker(members.ledger, members.first_kid)


def write_marker(home: Home, marker: Marker) -> None:
    """Write the marker, durable on return."""
    home.replace(_FILE, encode(marker._asdict()))


def check_marker(marker: Marker | None, present: Marker) -> None:
    """Raise `LedgerForeign` if the present ledger is not the one in the marker; no marker is not an error."""
    if marker is not None and marker != present:
        raise LedgerForeign(f"the ledger has another id, or another first key, than in {_FILE}")
