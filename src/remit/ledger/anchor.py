"""The anchor: a record of the ledger's size and last receipt in a separate file, to detect an older copy.

Invariant: the mark of a ledger only moves forward, unless a restore is accepted by `reset`. It may lag behind the
ledger but must never be ahead, so it is advanced only to receipts that are durable. It detects accidents and restored
copies, but not an attacker who can write to the home: checkpoints held by others do that.
"""

from collections.abc import Callable
from typing import Annotated, Final, NamedTuple, final

from msgspec import Meta

from remit.claims.strictjson import parse_object
from remit.claims.types import Claims, Count, IdString, convert, encode, matches
from remit.errors import FieldInvalid, InputError, LedgerForeign, LedgerRolledBack, StateCorrupt
from remit.ledger.home import Home

_FILE: Final = "ledger.anchor"
_LOCK: Final = "ledger.anchor.lock"
_MAX_BYTES: Final = 4096


class AnchorMark(NamedTuple):
    """The state of a ledger: its id, the number of receipts, and the last receipt.

    `sessions` and `epoch` count changes without receipts: new sessions, and changes of states, revocations and keys.
    """

    ledger: str
    receipts: int
    last_receipt_id: str | None
    last_receipt_hash: str | None
    sessions: int = 0
    epoch: int = 0

    def is_behind(self, other: "AnchorMark") -> bool:
        """Return whether any counter that only grows is lower than in `other`."""
        return self.receipts < other.receipts or self.sessions < other.sessions or self.epoch < other.epoch


@final
class Anchor:
    """The anchor file in a home."""

    __slots__ = ("_home",)

    def __init__(self, home: Home) -> None:
        """Store the mark in `home`."""
        self._home = home

    def read(self) -> AnchorMark | None:
        """Return the mark, or None if none was ever written."""
        data = self._home.read(_FILE, max_bytes=_MAX_BYTES)
        try:
            return None if data is None else _mark(parse_object(data))
        except InputError as error:
            raise StateCorrupt(f"{_FILE} is damaged: {error}") from None

    def advance(self, mark: AnchorMark) -> AnchorMark:
        """Advance the mark, durable on return; return the current one: `mark`, or one that is ahead of it.

        Raise `LedgerForeign` for the mark of another ledger, and `LedgerRolledBack` if another receipt has the same
        number. Raise `LedgerInUse`, without waiting, while another process advances it.
        """
        with self._home.locked(_LOCK, wait=False):
            stored = self.read()
            if stored is not None:
                _check_ledger(stored, mark)
                if stored[:4] != mark[:4] and stored.receipts == mark.receipts:
                    raise LedgerRolledBack(f"receipt {mark.receipts} is another one than before")
                if stored == mark or mark.is_behind(stored):
                    return stored
            self._write(mark)
        return mark

    def reset(self, mark: AnchorMark) -> None:
        """Replace the mark unconditionally, for a restore that a person has accepted."""
        with self._home.locked(_LOCK):
            self._write(mark)

    def _write(self, mark: AnchorMark) -> None:
        members = mark._asdict()
        _mark(members)
        self._home.replace(_FILE, encode(members))


def check_anchor(mark: AnchorMark | None, present: AnchorMark, hash_at: Callable[[int], str | None]) -> None:
    """Raise unless the present ledger is the marked one, or has grown from it.

    `hash_at` returns the hash of the receipt with a number, counted from 1. Without a mark, nothing is checked: the
    caller decides whether there must be one.
    """
    if mark is None:
        return
    _check_ledger(mark, present)
    if present.receipts < mark.receipts:
        raise LedgerRolledBack(f"the ledger has {present.receipts} receipts, and had {mark.receipts} before")
    if present.is_behind(mark):
        raise LedgerRolledBack("the ledger lacks sessions, ends, revocations or changes of key that it had before")
    if mark.receipts and hash_at(mark.receipts) != mark.last_receipt_hash:
        raise LedgerRolledBack(f"receipt {mark.receipts} is another one than before")


def _check_ledger(mark: AnchorMark, present: AnchorMark) -> None:
    if mark.ledger != present.ledger:
        raise LedgerForeign("the ledger has another id than the one that the anchor was set for")


class _AnchorMembers(Claims, frozen=True, kw_only=True):
    ledger: Annotated[str, Meta(min_length=1, max_length=128)]
    receipts: Count
    last_receipt_id: IdString | None
    # Lower case only, because hashes are compared as text.
    last_receipt_hash: Annotated[str, matches(r"[0-9a-f]{64}")] | None
    sessions: Count
    epoch: Count


def _mark(value: object) -> AnchorMark:
    """Parse a mark, or raise `FieldInvalid`."""
    members = convert(_AnchorMembers, value)
    mark = AnchorMark(
        members.ledger,
        members.receipts,
        members.last_receipt_id,
        members.last_receipt_hash,
        members.sessions,
        members.epoch,
    )
    if {mark.last_receipt_id is None, mark.last_receipt_hash is None} != {mark.receipts == 0}:
        raise FieldInvalid("an empty ledger has no last receipt, and any other has one")
    return mark
