"""Changing keys of a ledger that is open in the process of the test, without a governor."""

from remit.ledger.keyfiles import KeyFiles
from remit.ledger.keys import Distrusted, LedgerKeys, create_successor, distrust_in, hand_over, remove_unused
from remit.ledger.records import KeyRecord
from remit.ledger.store import Ledger

__all__ = ["distrust", "rotate"]


def rotate(ledger: Ledger, keys: LedgerKeys, files: KeyFiles, now_ms: int) -> KeyRecord:
    """Let the key that signs hand over to a new one, and remove its file; return the new one."""
    new = files.create()
    record, retired = ledger.run(lambda transaction: hand_over(transaction, keys, new, now_ms), alone=True)
    keys.refresh()
    files.remove(retired)
    return record


def distrust(ledger: Ledger, keys: LedgerKeys, files: KeyFiles, kid: str, *, from_ms: int, now_ms: int) -> Distrusted:
    """Refuse what a key has signed later than `from_ms`; if it is the key that signs, it hands over first."""
    new = create_successor(ledger.read(), files, kid)
    distrusted = ledger.run(
        lambda transaction: distrust_in(transaction, keys, kid, new, from_ms=from_ms, now_ms=now_ms), alone=True
    )
    keys.refresh()
    remove_unused(files, kid, new, distrusted)
    return distrusted
