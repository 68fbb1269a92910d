"""Attesting a session: its chain is verified first, from where it was verified last.

Keeps this invariant: a statement says `chain_verified` only if every receipt it counts was verified by the holder of
the key, now or before, and is there now. Those that were verified before are hashed again, and held against the root
that was signed then (the bookmark): that takes a small part of verifying them. A chain that is broken is attested as
broken: all its receipts are counted, and those before the break described. Its session is quarantined: its calls are
denied from then on, and no other session's.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from remit.claims.attestation import SessionSummary, SignedAttestation, Tally, sign_attestation
from remit.claims.bookmark import sign_bookmark, verify_bookmark
from remit.claims.chain import Head, walk_chain
from remit.claims.keys import Keyring
from remit.claims.merkle import Frontier, hash_leaf
from remit.errors import BrokenChain, RemitError
from remit.governor.clock import timestamp
from remit.governor.lifecycle import quarantine, touched
from remit.governor.means import Means
from remit.governor.rate import report_skipped
from remit.governor.sessions import End, Look, get_session, reload_session
from remit.ledger.findings import Limits, check_period, fault_of_period
from remit.ledger.keys import Periods
from remit.ledger.port import Reader, Transaction
from remit.ledger.records import Kept, Session, unverified_kid

__all__ = ["Attest", "AttestResult", "ChainVerification", "verify_from", "verify_stored"]

_PAGE: Final = 1000


class ChainVerification(NamedTuple):
    """What verification found: the tally up to the head that was reached, and the break, if there is one."""

    head: Head | None
    tally: Tally
    fault: BrokenChain | None
    # How many receipts were verified now; those before were verified earlier.
    fresh: int


class AttestResult(NamedTuple):
    """A signed statement over a session, and why its chain is broken, if it is."""

    attestation: SignedAttestation
    fault: BrokenChain | None


@dataclass(frozen=True)
class Attest:
    """Attest a session, and end it first where that is asked for."""

    session_id: str
    end: bool = False

    async def run(self, context: Means) -> AttestResult:
        """End, verify, sign, keep."""
        if self.end:
            await End(self.session_id).run(context)
        await report_skipped(context, self.session_id, at_once=True)
        looked = await Look(self.session_id).run(context)
        # As it is durable: calls that are under way at this moment are for the next statement.
        session = touched((await reload_session(context, looked.session)), context.now)
        # With the keys as they are now: another process may have changed to one that is not known here yet.
        verified: ChainVerification = await context.aside(
            lambda: verify_stored(context.reader, session, context.keys.refresh())
        )
        in_all: int = 0
        if verified.fault is not None:
            in_all = await context.aside(lambda: context.reader.count(session.id))
        summary = _summary(session, looked.passport.mission.mission)
        signed: SignedAttestation = await context.transact(
            lambda transaction: self._keep(context, transaction, session, summary, verified, in_all=in_all)
        )
        return AttestResult(signed, verified.fault)

    def _keep(
        self,
        context: Means,
        transaction: Transaction,
        session: Session,
        summary: SessionSummary,
        verified: ChainVerification,
        *,
        in_all: int,
    ) -> SignedAttestation:
        now = context.now
        signing = context.keys.signing(transaction.switches.kid)
        signed = sign_attestation(
            summary,
            verified.tally,
            signing,
            issuer=f"remit:{signing.kid}",
            jti=context.new_id("att"),
            now=max(now.wall_s, session.iat),
            chain_verified=verified.fault is None,
            receipts_in_all=in_all,
        )
        bookmark = None
        if verified.fault is not None:
            self._quarantine(context, transaction)
        elif verified.head is not None and verified.fresh:
            bookmark = sign_bookmark(verified.head, verified.tally, signing, now=now.wall_s)
        transaction.put_attestation(session.id, signed.claims.jti, signed.token, bookmark)
        return signed

    def _quarantine(self, context: Means, transaction: Transaction) -> None:
        """Deny every further call of this session, and remember why, whatever becomes of it."""
        session = get_session(transaction, self.session_id)
        if not session.broken:
            quarantine(context, transaction, session, context.now)


def _summary(session: Session, mission: str) -> SessionSummary:
    return SessionSummary(
        session_id=session.id,
        agent_id=session.actor,
        mission=mission,
        state=session.state,
        started_at=timestamp(session.started_ms),
        ended_at=None if session.ended_ms is None else timestamp(session.ended_ms),
        budget_used={
            "tool_calls": session.used,
            "duration_s": max(0, session.lifetime_ms // 1000 - session.duration_left_s),
        },
    )


def verify_stored(reader: Reader, session: Session, keyring: Keyring) -> ChainVerification:
    """Verify the receipts that are kept of a session, from its bookmark to the head that `session` has."""
    return verify_from(reader, session, keyring, _verified_before(reader, session, keyring), limit=session.length)


def verify_from(
    reader: Reader, session: Session, keyring: Keyring, before: ChainVerification, *, limit: int
) -> ChainVerification:
    """Verify up to `limit` receipts after those that were verified `before`, whose tally goes on counting.

    That the chain ends where `session` says is told once its end is reached, or once a receipt is missing. A receipt
    that its key has signed after its period breaks the chain.
    """
    limits = Periods(reader).limits()
    head, tally, _, fresh = before
    begun = head.length if head else 0
    end = min(session.length, begun + limit)
    # Of the receipts that were read and are not verified yet.
    numbers: deque[int] = deque()

    def tokens() -> Iterator[str]:
        for kept in _kept(reader, session.id, begun, end):
            numbers.append(kept.number)
            yield kept.token

    try:
        for receipt, reached in walk_chain(tokens(), keyring, start=head):
            check_period(limits, receipt.kid, numbers.popleft(), reached.length - 1)
            tally.add(receipt)
            head = reached
            fresh += 1
        if end == session.length or end != (head.length if head else 0):
            _check_end(session, head)
    except BrokenChain as fault:
        return ChainVerification(head, tally, fault, fresh)
    return ChainVerification(head, tally, None, fresh)


def _check_end(session: Session, head: Head | None) -> None:
    """Raise unless the chain is the session's own, and ends where the session says."""
    if head is not None and not _is_of(head, session):
        raise BrokenChain(0, "lineage_changed", "the chain is that of another session, run or actor")
    length, last = (head.length, head.receipt_hash) if head else (0, None)
    if (length, last) != (session.length, session.receipt_hash):
        raise BrokenChain(length, "head_mismatch", "the chain does not end where the session says")


def _verified_before(reader: Reader, session: Session, keyring: Keyring) -> ChainVerification:
    """Return where to go on. A bookmark that is not ours, or of another session, only makes the way longer.

    So does one of a key whose period has ended: nothing tells whether it was made before.
    """
    nothing, limits = ChainVerification(None, Tally(), None, 0), Periods(reader).limits()
    token = reader.bookmark(session.id)
    if token is None or unverified_kid(token) in limits:
        return nothing
    try:
        head, tally = verify_bookmark(token, keyring)
    except RemitError:
        return nothing
    if not _is_of(head, session) or head.length > session.length:
        return nothing
    root = tally.counted()["receipts_root"]
    return ChainVerification(head, tally, None, 0) if _root_of(reader, head, limits) == root else nothing


def _root_of(reader: Reader, head: Head, limits: Limits) -> str | None:
    """Return the root over the receipts up to `head`: the same one if they are, byte for byte, those of before.

    None if some are missing, or if one of them lies after the end of its key's period, as it is recorded now.
    """
    tree = Frontier()
    for kept in _kept(reader, head.lineage.grant_id, 0, head.length):
        if limits and fault_of_period(limits, unverified_kid(kept.token), kept.number):
            return None
        tree.append(hash_leaf(kept.token.encode()))
    return tree.root().hex() if tree.size == head.length else None


def _is_of(head: Head, session: Session) -> bool:
    grant_id, actor, _, trace_id, run_nonce = head.lineage
    return (grant_id, actor, trace_id, run_nonce) == (session.id, session.actor, session.trace_id, session.run_nonce)


def _kept(reader: Reader, session_id: str, after: int, end: int) -> Iterator[Kept]:
    """Yield the receipts with numbers above `after`, up to and including `end`, one page at a time."""
    while after < end:
        page = reader.receipts(session_id, after=after, limit=min(_PAGE, end - after))
        if not page:
            return
        yield from page
        after = page[-1].seq
