"""Attesting a session: its chain is verified first, continuing from the last verification.

Invariant: an attestation has `chain_verified` only if every receipt it counts was verified by the holder of the key,
now or earlier, and is present now. Receipts verified earlier are only hashed again, and the root is compared with the
signed one in the bookmark, which is much faster. A broken chain is attested as broken: all its receipts are counted,
and those before the break are summarized. The session is quarantined: its calls are denied from then on.
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
from remit.governor.clock import format_timestamp
from remit.governor.context import Context
from remit.governor.lifecycle import count_elapsed, quarantine
from remit.governor.rate import report_skipped
from remit.governor.sessions import EndSession, GetSession, get_session, reload_session
from remit.ledger.findings import Limits, check_period, period_fault
from remit.ledger.keys import KeyPeriods
from remit.ledger.records import Session, StoredReceipt, unverified_kid
from remit.ledger.store import LedgerReader, Transaction

_PAGE: Final = 1000


class ChainVerification(NamedTuple):
    """The result of verifying a chain: the head reached, the tally up to it, and the fault, if the chain is broken."""

    head: Head | None
    tally: Tally
    fault: BrokenChain | None
    # The number of receipts verified now, without those verified earlier.
    fresh: int


class AttestResult(NamedTuple):
    """The signed attestation of a session, and the fault if its chain is broken."""

    attestation: SignedAttestation
    fault: BrokenChain | None


@dataclass(frozen=True)
class Attest:
    """Attest a session; with `end`, end it first."""

    session_id: str
    end: bool = False

    async def run(self, context: Context) -> AttestResult:
        """Verify the chain, then sign and store the attestation."""
        if self.end:
            await EndSession(self.session_id).run(context)
        await report_skipped(context, self.session_id, at_once=True)
        looked = await GetSession(self.session_id).run(context)
        # Only what is durable: concurrent calls are left to the next attestation.
        session = count_elapsed((await reload_session(context, looked.session)), context.now)
        # Reload the keys: another process may have rotated them.
        verified: ChainVerification = await context.to_thread(
            lambda: verify_stored(context.reader, session, context.keys.refresh())
        )
        total: int = 0
        if verified.fault is not None:
            total = await context.to_thread(lambda: context.reader.count(session.id))
        summary = _summary(session, looked.passport.mission.mission)
        signed: SignedAttestation = await context.transact(
            lambda transaction: self._keep(context, transaction, session, summary, verified, total=total)
        )
        return AttestResult(signed, verified.fault)

    def _keep(
        self,
        context: Context,
        transaction: Transaction,
        session: Session,
        summary: SessionSummary,
        verified: ChainVerification,
        *,
        total: int,
    ) -> SignedAttestation:
        now = context.now
        signing = context.keys.signing(transaction.ledger_state.kid)
        signed = sign_attestation(
            summary,
            verified.tally,
            signing,
            issuer=f"remit:{signing.kid}",
            jti=context.new_id("att"),
            now=max(now.wall_s, session.iat),
            chain_verified=verified.fault is None,
            receipts_in_all=total,
        )
        bookmark = None
        if verified.fault is not None:
            self._quarantine(context, transaction)
        elif verified.head is not None and verified.fresh:
            bookmark = sign_bookmark(verified.head, verified.tally, signing, now=now.wall_s)
        transaction.put_attestation(session.id, signed.claims.jti, signed.token, bookmark)
        return signed

    def _quarantine(self, context: Context, transaction: Transaction) -> None:
        """Quarantine the session, unless its chain was found broken before."""
        session = get_session(transaction, self.session_id)
        if not session.broken:
            quarantine(context, transaction, session, context.now)


def _summary(session: Session, mission: str) -> SessionSummary:
    return SessionSummary(
        session_id=session.id,
        agent_id=session.actor,
        mission=mission,
        state=session.state,
        started_at=format_timestamp(session.started_ms),
        ended_at=None if session.ended_ms is None else format_timestamp(session.ended_ms),
        budget_used={
            "tool_calls": session.used,
            "duration_s": max(0, session.lifetime_ms // 1000 - session.duration_left_s),
        },
    )


def verify_stored(reader: LedgerReader, session: Session, keyring: Keyring) -> ChainVerification:
    """Verify the stored receipts of a session, from its bookmark to the head of `session`."""
    return verify_from(reader, session, keyring, _resume_from_bookmark(reader, session, keyring), limit=session.length)


def verify_from(
    reader: LedgerReader, session: Session, keyring: Keyring, before: ChainVerification, *, limit: int
) -> ChainVerification:
    """Verify up to `limit` receipts after those verified `before`, and update that tally.

    Whether the chain ends at the head of `session` is checked once the end is reached or a receipt is missing. A
    receipt that its key signed after the end of the key's period breaks the chain.
    """
    limits = KeyPeriods(reader).limits()
    head, tally, _, fresh = before
    start = head.length if head else 0
    end = min(session.length, start + limit)
    # The ledger numbers of receipts that were read but not verified yet.
    numbers: deque[int] = deque()

    def tokens() -> Iterator[str]:
        for stored in _read_receipts(reader, session.id, start, end):
            numbers.append(stored.number)
            yield stored.token

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
    """Raise `BrokenChain` unless the chain belongs to the session and ends at its head."""
    if head is not None and not _belongs_to(head, session):
        raise BrokenChain(0, "lineage_changed", "the chain is that of another session, run or actor")
    length, last = (head.length, head.receipt_hash) if head else (0, None)
    if (length, last) != (session.length, session.receipt_hash):
        raise BrokenChain(length, "head_mismatch", "the chain does not end at the head of the session")


def _resume_from_bookmark(reader: LedgerReader, session: Session, keyring: Keyring) -> ChainVerification:
    """Return the state to continue from: the bookmark's, or an empty one if the bookmark cannot be used.

    The bookmark of a key whose period has ended is not used, because it may have been signed after that.
    """
    nothing, limits = ChainVerification(None, Tally(), None, 0), KeyPeriods(reader).limits()
    token = reader.bookmark(session.id)
    if token is None or unverified_kid(token) in limits:
        return nothing
    try:
        head, tally = verify_bookmark(token, keyring)
    except RemitError:
        return nothing
    if not _belongs_to(head, session) or head.length > session.length:
        return nothing
    root = tally.counted()["receipts_root"]
    return ChainVerification(head, tally, None, 0) if _merkle_root(reader, head, limits) == root else nothing


def _merkle_root(reader: LedgerReader, head: Head, limits: Limits) -> str | None:
    """Return the Merkle root of the stored receipts up to `head`.

    None if some are missing, or if one was signed after the end of its key's period.
    """
    tree = Frontier()
    for stored in _read_receipts(reader, head.lineage.grant_id, 0, head.length):
        if limits and period_fault(limits, unverified_kid(stored.token), stored.number):
            return None
        tree.append(hash_leaf(stored.token.encode()))
    return tree.root().hex() if tree.size == head.length else None


def _belongs_to(head: Head, session: Session) -> bool:
    grant_id, actor, _, trace_id, run_nonce = head.lineage
    return (grant_id, actor, trace_id, run_nonce) == (session.id, session.actor, session.trace_id, session.run_nonce)


def _read_receipts(reader: LedgerReader, session_id: str, after: int, end: int) -> Iterator[StoredReceipt]:
    """Yield the receipts with sequence numbers above `after` up to `end`, reading one page at a time."""
    while after < end:
        page = reader.receipts(session_id, after=after, limit=min(_PAGE, end - after))
        if not page:
            return
        yield from page
        after = page[-1].seq
