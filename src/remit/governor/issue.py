"""Issuing a passport: it is signed with the current key and registered in the ledger in one transaction.

Invariant: every issued passport is registered. The id is stored with the SHA-256 of the token, so that a stolen key
cannot be used to sign another passport with a registered id.
"""

from dataclasses import dataclass

from remit.claims.canonical import sha256_hex
from remit.claims.mission import Mission
from remit.claims.passport import Confirmation, Passport, issue_passport
from remit.errors import FieldInvalid, TokenTooLarge
from remit.governor.context import Context, Keys
from remit.ledger.records import PassportRegistration
from remit.ledger.store import Transaction


@dataclass(frozen=True)
class PassportRequest:
    """The content of a passport to issue, and its id, which must be unused."""

    mission: Mission
    jti: str
    lifetime_s: int | None = None
    bound_to: Confirmation | None = None


def issue_in(transaction: Transaction, keys: Keys, order: PassportRequest, now_ms: int) -> Passport:
    """Sign a passport with the current key, and register it. It is valid once the transaction is durable."""
    key = keys.signing(transaction.ledger_state.kid)
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
        raise FieldInvalid(f"the mission is too large for a passport: {error}") from None
    transaction.put_passport(PassportRegistration(passport.jti, sha256_hex(passport.token.encode()), key.kid, now_ms))
    return passport


@dataclass(frozen=True)
class IssuePassport:
    """Issue a passport and register it."""

    order: PassportRequest

    async def run(self, context: Context) -> Passport:
        """Sign and register the passport in one transaction."""

        def work(transaction: Transaction) -> Passport:
            return issue_in(transaction, context.keys, self.order, context.now.wall_ms)

        # Alone, so that no other process rotates the key and removes its file in the meantime.
        passport: Passport = await context.transact(work, alone=True)
        return passport
