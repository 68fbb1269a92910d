"""Issuing a passport: it is signed with the key that signs now, and registered in the ledger in the same act.

Keeps this invariant: nobody gets a passport that the ledger does not know. The id and the SHA-256 of the token are kept
together, so a stolen key cannot sign another passport under an id that was registered.
"""

from dataclasses import dataclass

from remit.claims.canonical import sha256_hex
from remit.claims.mission import Mission
from remit.claims.passport import Confirmation, Passport, issue_passport
from remit.errors import FieldInvalid, TokenTooLarge
from remit.governor.means import Keys, Means
from remit.ledger.port import Transaction
from remit.ledger.records import PassportRegistration

__all__ = ["Issue", "Order", "issue_in"]


@dataclass(frozen=True)
class Order:
    """What a passport is to say, and its id, which nobody has used."""

    mission: Mission
    jti: str
    lifetime_s: int | None = None
    bound_to: Confirmation | None = None


def issue_in(transaction: Transaction, keys: Keys, order: Order, now_ms: int) -> Passport:
    """Sign a passport with the key that signs, and register it. It counts once the transaction is durable."""
    key = keys.signing(transaction.switches.kid)
    try:
        passport = issue_passport(
            order.mission,
            key,
            issuer=f"remit:{key.kid}",
            jti=order.jti,
            now=now_ms // 1000,
            lifetime_s=order.lifetime_s,
            bound_to=order.bound_to,
        )
    except TokenTooLarge as error:
        raise FieldInvalid(f"a passport cannot say so much: {error}") from None
    transaction.put_passport(PassportRegistration(passport.jti, sha256_hex(passport.token.encode()), key.kid, now_ms))
    return passport


@dataclass(frozen=True)
class Issue:
    """Issue a passport and register it."""

    order: Order

    async def run(self, context: Means) -> Passport:
        """Sign and register in one piece."""

        def work(transaction: Transaction) -> Passport:
            return issue_in(transaction, context.keys, self.order, context.now.wall_ms)

        # Alone, so that no other process changes the key meanwhile and takes its file away.
        passport: Passport = await context.transact(work, alone=True)
        return passport
