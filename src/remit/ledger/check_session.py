"""Checks one session: its chain from the root, and all stored data about it against the chain."""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import apsw

from remit.claims.attestation import Attestation, Tally, verify_attestation
from remit.claims.bookmark import verify_bookmark
from remit.claims.canonical import sha256_hex
from remit.claims.chain import Head, walk_chain
from remit.claims.passport import AUDIENCES, verify_passport
from remit.claims.receipt import LineageBudgetDelta, SignedReceipt
from remit.errors import BrokenChain, KeyUnknown, RemitError
from remit.ledger.findings import FindingRecorder, is_limit_stated
from remit.ledger.keys import build_keyring, key_limit_ids
from remit.ledger.records import SOURCE_TRACE, Session, source_trace_id
from remit.ledger.rows import LedgerQueries, translate_errors

_LAST: Final = "SELECT max(seq) FROM receipts WHERE session = ?"
_RECEIPTS: Final = """
SELECT number, seq, parent, id, code, token FROM receipts
WHERE session = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT 1000
"""
# The total, and what is not settled yet.
_SET_ASIDE: Final = """
SELECT coalesce(sum(amount), 0), coalesce(sum(amount * (1 - settled)), 0) FROM delegations WHERE parent = ?
"""


class _Row(NamedTuple):
    number: int
    seq: int
    parent: int | None
    id: str
    code: str


class SessionCheck:
    """The check of one session, as it was when this object was created; earlier receipts do not change any more.

    They are read page by page, because one long read transaction would prevent checkpoints of the log.
    """

    def __init__(
        self, notes: FindingRecorder, connection: apsw.Connection, rows: LedgerQueries, session: Session
    ) -> None:
        self._notes = notes
        self._db = connection
        self._rows = rows
        self._session = session
        self._tally = Tally()
        self._head: Head | None = None
        self._last: _Row | None = None
        self._sums = dict.fromkeys(("consume", "reserve", "release", "reject"), 0)
        self._waiting: deque[_Row] = deque()
        # Earlier statements about the chain, by its length at that time.
        self._attested: dict[int, list[Attestation]] = {}
        self._bookmark: Head | None = None
        self._length = 0
        self._set_aside = 0, 0
        with notes.noted(session), translate_errors():
            self._length = (connection.execute(_LAST, (session.number,)).fetchone() or (0,))[0] or 0
            self._set_aside = connection.execute(_SET_ASIDE, (session.id,)).fetchone() or (0, 0)
            self._statements()

    def check(self) -> int:
        """Check all data of the session, and return its number."""
        with self._notes.noted(self._session):
            self._passport()
            try:
                self._compare()
                for receipt, head in walk_chain(self._tokens(), self._notes.keyring, each=self._notes.each):
                    self._take(receipt, head)
            except BrokenChain as broken:
                self._note(broken.fault, str(broken), broken.index + 1)
            else:
                self._end()
                self._budget()
        return self._session.number

    def _note(self, fault: str, sentence: str = "", receipt: int | None = None) -> None:
        self._notes.note(fault, sentence, session=self._session, receipt=receipt)

    def _passport(self) -> None:
        session = self._session
        try:
            now = session.verified_at_s
            passport = verify_passport(session.passport, self._notes.keyring, now=now, audiences=AUDIENCES)
        except KeyUnknown:
            return None  # of an issuer that only the configuration knows
        except RemitError as error:
            return self._note("passport_mismatch", f"the passport of the session: {error}")
        mission = passport.mission
        given = passport.jti, mission.agent_id, passport.parent_jti, mission.max_tool_calls
        kept = session.id, session.actor, session.parent, session.limit
        longest_ms = max(0, min(mission.max_duration_s * 1000, passport.expires_at * 1000 - session.started_ms))
        if kept != given or session.lifetime_ms > longest_ms:
            self._note("passport_mismatch")
        registered = self._rows.registered(session.id)
        if registered is not None and registered.hash != sha256_hex(session.passport.encode()):
            self._note("passport_mismatch", "another passport was registered under the id of the session")
        return None

    def _statements(self) -> None:
        for token in self._rows.attestations(self._session.id):
            self._notes.attestations_done += 1
            try:
                claims = verify_attestation(token, self._notes.keyring)
            except RemitError as error:
                self._note("attestation_mismatch", f"an attestation does not verify: {error}")
            else:
                # That of a broken chain describes the receipts before the break.
                described = claims.receipts if claims.broken_at is None else claims.broken_at - 1
                self._attested.setdefault(described, []).append(claims)
        token_of_bookmark = self._rows.bookmark(self._session.id)
        if token_of_bookmark is not None:
            try:
                self._bookmark, _ = verify_bookmark(token_of_bookmark, self._notes.keyring)
            except RemitError as error:
                self._note("bookmark_mismatch", f"the bookmark does not verify: {error}")

    def _tokens(self) -> Iterator[str]:
        after = -1
        while True:
            with translate_errors():
                page: list[tuple[Any, ...]] = self._db.execute(
                    _RECEIPTS, (self._session.number, after, self._length)
                ).fetchall()
            for *row, token in page:
                self._waiting.append(_Row(*row))
                yield token
            if not page:
                return
            after = page[-1][1]

    def _take(self, receipt: SignedReceipt, head: Head) -> None:
        """Count a verified receipt, and compare it with rows and statements about this position."""
        row, last, claims = self._waiting.popleft(), self._last, receipt.claims
        code = claims.internal_denial_code or ""
        expected = _Row(row.number, head.length, last.number if last else None, claims.receipt_id, code)
        if row != expected:
            self._note("row_mismatch", receipt=head.length)
        fault = self._notes.fault_of_key(receipt.kid, row.number)
        if fault is not None:
            self._note(fault, receipt=head.length)
        # Read only now: another process may have recorded it since the check began.
        if is_limit_stated(claims):
            records = self._rows.limits()
            if claims.target not in key_limit_ids(records, build_keyring(self._rows.keys())):
                self._note("limit_missing", receipt=head.length)
        delta = claims.budget_delta
        if isinstance(delta, LineageBudgetDelta):
            self._sums[delta.operation] += delta.amount
        self._tally.add(receipt)
        self._head, self._last = head, row
        self._notes.step()
        self._compare()

    def _compare(self) -> None:
        """Compare statements about this length with what was counted up to here."""
        length = self._head.length if self._head else 0
        for claims in self._attested.pop(length, ()):
            counted = self._tally.counted() | {"session_id": self._session.id, "sub": self._session.actor}
            if not claims.chain_verified:
                del counted["receipts"]
            member = next((name for name, value in counted.items() if getattr(claims, name) != value), None)
            if member is not None:
                self._note("attestation_mismatch", f"an attestation states another {member}", length)
        if self._bookmark is not None and self._bookmark.length == length:
            if self._bookmark != self._head:
                self._note("bookmark_mismatch", receipt=length)
            self._bookmark = None

    def _end(self) -> None:
        """Compare the session with the end of its chain."""
        session, head, verdicts = self._session, self._head, self._tally.verdicts
        length = head.length if head else 0
        if session.length != length or (head and session.receipt_hash != head.receipt_hash):
            self._note(
                "head_mismatch", f"the chain has {length} receipts, and the session row has {session.length}", length
            )
        elif (head and session.head != head) or session.last_number != (self._last.number if self._last else None):
            self._note("session_mismatch", receipt=length)
        counted = verdicts["compliant"], verdicts["violation"], verdicts["insufficient_evidence"]
        if counted != (session.compliant, session.violation, session.insufficient_evidence):
            self._note("session_mismatch", "the verdicts of the session are not those of its receipts")
        told = self._rows.source_of(session.id)
        if session.trace_id.startswith(SOURCE_TRACE) and (
            told is None or source_trace_id(told.key) != session.trace_id
        ):
            self._note("session_mismatch", "the source of the session is not the one that its receipts were made for")
        if session.observed > length:
            self._note("session_mismatch", f"{session.observed} events are counted, and {length} receipts are there")
        for stated in self._attested:
            self._note("head_mismatch", f"{stated} receipts were attested, and {length} are there", length)
        if self._bookmark is not None:
            self._note("head_mismatch", f"{self._bookmark.length} receipts were verified once, and {length} are there")

    def _budget(self) -> None:
        """Compare the used and reserved calls with the receipts and the delegations."""
        session, sums, (given, open_now) = self._session, self._sums, self._set_aside
        # Delegates have used what was reserved and was not returned.
        used = sums["consume"] + sums["reserve"] - session.reserved - sums["release"]
        if (session.used, session.reserved, sums["reserve"]) != (used, open_now, given):
            self._note("budget_mismatch")
