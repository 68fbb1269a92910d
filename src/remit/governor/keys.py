"""Changing the key that signs, and distrusting one: in the process that holds the private keys."""

from dataclasses import dataclass

from remit.errors import LedgerUnavailable
from remit.governor.means import Means
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.keys import Distrusted, distrust_in, hand_over, remove_unused, successor_of
from remit.ledger.records import KeyRecord

__all__ = ["DistrustKey", "RotateKey"]


@dataclass(frozen=True)
class RotateKey:
    """Let the key that signs hand over to a new one, whose record is returned; the file of the old one is removed.

    Chains go on with the new key. What the old one has signed until now stays believed; its period ends here.
    """

    async def run(self, context: Means) -> KeyRecord:
        """Make a key, hand over, and remove the old one once that is durable."""
        files, now_ms = _files(context), context.now.wall_ms
        new = await context.aside(files.create)
        record, retired = await context.transact(
            lambda transaction: hand_over(transaction, context.keys, new, now_ms), alone=True
        )
        await context.aside(context.keys.refresh)
        await context.aside(lambda: files.remove(retired))
        return record


@dataclass(frozen=True)
class DistrustKey:
    """Refuse what a key has signed later than `from_ms`; if it is the key that signs, it hands over first."""

    kid: str
    from_ms: int

    async def run(self, context: Means) -> Distrusted:
        """Record the end of the period of the key, and revoke the passports that it has signed later."""
        files, now_ms = _files(context), context.now.wall_ms
        new = await context.aside(lambda: successor_of(context.reader, files, self.kid))
        distrusted: Distrusted = await context.transact(
            lambda transaction: distrust_in(
                transaction, context.keys, self.kid, new, from_ms=self.from_ms, now_ms=now_ms
            ),
            alone=True,
        )
        await context.aside(context.keys.refresh)
        await context.aside(lambda: remove_unused(files, self.kid, new, distrusted))
        return distrusted


def _files(context: Means) -> KeyFiles:
    if context.key_files is None:
        raise LedgerUnavailable("this process holds no private keys")
    return context.key_files
