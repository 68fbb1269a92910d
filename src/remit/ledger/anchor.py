"""The anchor: how far the ledger had come, kept outside of it, so that an older copy put back is noticed.

Keeps this invariant: the mark of one ledger only moves forward, whoever writes it, unless a restore is accepted by
`reset`. It may lag behind the ledger and must never be ahead, so it is moved to receipts that are durable, after they
are. It notices accidents and restores, not an attacker who can write the home: for those there are checkpoints that
others hold.
"""

from collections.abc import Callable
from typing import Annotated, Final, NamedTuple, final

from msgspec import Meta

from remit.claims.shapes import Claims, Count, IdString, encode, matching, shape
from remit.claims.strictjson import parse_object
from remit.errors import FieldInvalid, InputError, LedgerForeign, LedgerRolledBack, StateCorrupt
from remit.ledger.home import Home

__all__ = ["Anchor", "AnchorMark", "check_mark"]

_FILE: Final = "ledger.anchor"
_LOCK: Final = "ledger.anchor.lock"
_MAX_BYTES: Final = 4096


class AnchorMark(NamedTuple):
    """A ledger at one moment: its id, how many receipts it holds, and the last one of them.

    `sessions` and `epoch` count what leaves no receipt: sessions that begin, and ends, revocations, switches and keys.
    """

    ledger: str
    receipts: int
    last_receipt_id: str | None
    last_receipt_hash: str | None
    sessions: int = 0
    epoch: int = 0

    def is_behind(self, other: "AnchorMark") -> bool:
        """Tell whether this has less of anything that only grows."""
        return self.receipts < other.receipts or self.sessions < other.sessions or self.epoch < other.epoch


@final
class Anchor:
    """The mark in the home."""

    __slots__ = ("_home",)

    def __init__(self, home: Home) -> None:
        """Keep the mark in `home`."""
        self._home = home

    def read(self) -> AnchorMark | None:
        """Return the mark, or None if none was ever written."""
        data = self._home.read(_FILE, max_bytes=_MAX_BYTES)
        try:
            return None if data is None else _mark(parse_object(data))
        except InputError as error:
            raise StateCorrupt(f"{_FILE} is damaged: {error}") from None

    def advance(self, mark: AnchorMark) -> AnchorMark:
        """Move the mark forward, durable, and return what stands now: `mark`, or one that is further.

        Another ledger's mark is `LedgerForeign`; another receipt at the same place is `LedgerRolledBack`. While someone
        else moves it, `LedgerInUse`: nobody waits for it, and the next time comes.
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
        """Put `mark` in the place of whatever stands there: for a restore that a person has accepted."""
        with self._home.locked(_LOCK):
            self._write(mark)

    def _write(self, mark: AnchorMark) -> None:
        members = mark._asdict()
        _mark(members)
        self._home.replace(_FILE, encode(members))


def check_mark(mark: AnchorMark | None, present: AnchorMark, hash_at: Callable[[int], str | None]) -> None:
    """Raise if the ledger that is present is not the one that was marked, or one that it has grown to.

    `hash_at` gives the hash of the receipt at a place, counted from 1. No mark at all passes: whether there must be
    one is for the caller.
    """
    if mark is None:
        return
    _check_ledger(mark, present)
    if present.receipts < mark.receipts:
        raise LedgerRolledBack(f"the ledger holds {present.receipts} receipts and has held {mark.receipts}")
    if present.is_behind(mark):
        raise LedgerRolledBack("the ledger lacks sessions, ends, revocations or changes of key that it has held")
    if mark.receipts and hash_at(mark.receipts) != mark.last_receipt_hash:
        raise LedgerRolledBack(f"receipt {mark.receipts} is another one than before")


def _check_ledger(mark: AnchorMark, present: AnchorMark) -> None:
    if mark.ledger != present.ledger:
        raise LedgerForeign("the ledger has another id than the one that the anchor was set for")


class _Members(Claims, frozen=True, kw_only=True):
    ledger: Annotated[str, Meta(min_length=1, max_length=128)]
    receipts: Count
    last_receipt_id: IdString | None
    # One spelling, because hashes are compared as text.
    last_receipt_hash: Annotated[str, matching(r"[0-9a-f]{64}")] | None
    sessions: Count
    epoch: Count


def _mark(value: object) -> AnchorMark:
    """Return the mark of an object that obeys every rule, or raise `FieldInvalid`."""
    members = shape(_Members, value)
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
