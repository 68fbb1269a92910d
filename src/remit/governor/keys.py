"""Rotating the signing key, and distrusting a key. Runs in the ledger process, which has the private keys."""

from dataclasses import dataclass

from remit.errors import LedgerUnavailable
from remit.governor.context import Context
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.keys import Distrusted, create_successor, distrust_in, hand_over, remove_unused
from remit.ledger.records import KeyRecord


@dataclass(frozen=True)
class RotateKey:
    """Replace the signing key with a new one, return its record, and remove the file of the old one.

    Chains continue with the new key. What the old key has signed until now stays valid; its period ends here.
    """

    async def run(self, context: Context) -> KeyRecord:
        """Create a key, sign the key change, and remove the old key file once that is durable."""
        files, now_ms = _files(context), context.now.wall_ms
        new = await context.to_thread(files.create)
        record, retired = await context.transact(
            lambda transaction: hand_over(transaction, context.keys, new, now_ms), alone=True
        )
        await context.to_thread(context.keys.refresh)
        await context.to_thread(lambda: files.remove(retired))
        return record


@dataclass(frozen=True)
class DistrustKey:
    """Distrust everything that a key has signed after `from_ms`; the current signing key is rotated first."""

    kid: str
    from_ms: int

    async def run(self, context: Context) -> Distrusted:
        """Record the end of the key's period, and revoke the passports that it has signed later."""
        files, now_ms = _files(context), context.now.wall_ms
        new = await context.to_thread(lambda: create_successor(context.reader, files, self.kid))
        distrusted: Distrusted = await context.transact(
            lambda transaction: distrust_in(
                transaction, context.keys, self.kid, new, from_ms=self.from_ms, now_ms=now_ms
            ),
            alone=True,
        )
        await context.to_thread(context.keys.refresh)
        await context.to_thread(lambda: remove_unused(files, self.kid, new, distrusted))
        return distrusted


def _files(context: Context) -> KeyFiles:
    if context.key_files is None:
        raise LedgerUnavailable("this process has no private keys")
    return context.key_files
