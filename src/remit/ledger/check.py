"""The whole ledger, looked through: every chain from its root, and every row held against what is signed.

Keeps this invariant: what is believed here is what is signed; rows are only ever compared with it. Others may write
meanwhile: each session is looked at as it stands at one moment. Memory does not grow with the history, but for the
attestations of one session.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

import apsw

from remit.claims.attestation import Attestation, Tally, verify_attestation
from remit.claims.bookmark import verify_bookmark
from remit.claims.chain import Each, Head, walk_chain
from remit.claims.keys import Keyring, VerifyingKey
from remit.claims.passport import verify_passport
from remit.claims.receipt import LineageBudgetDelta, SignedReceipt
from remit.claims.succession import with_successors
from remit.errors import BrokenChain, KeyUnknown, RemitError, StateError
from remit.ledger.anchor import Anchor, Mark, check_mark
from remit.ledger.embedded import mark_of, open_rows
from remit.ledger.home import Home
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.keys import keyring_of
from remit.ledger.port import KeyRecord, Session
from remit.ledger.rows import Rows, translated

__all__ = ["FAULTS", "MAX_FINDINGS", "Finding", "Progress", "Report", "check_ledger"]

MAX_FINDINGS: Final = 1000
_TELL_EVERY: Final = 512

# Beside these, a fault is one of `remit.claims.chain.FAULTS`, or the code of the error that a token or file gives.
FAULTS: Final[Mapping[str, str]] = {
    "database_damaged": "the database itself is damaged",
    "reference_missing": "a row names another one that is not there",
    "count_mismatch": "a count that is kept is not the number of rows",
    "key_mismatch": "the record of a key does not follow from those before it",
    "passport_mismatch": "the session is not what its passport says",
    "row_mismatch": "the row of a receipt does not say what the receipt says",
    "session_mismatch": "the session does not say what its receipts say",
    "budget_mismatch": "the calls that are used or set aside do not follow from the receipts",
    "attestation_mismatch": "an attestation does not describe these receipts",
    "bookmark_mismatch": "the note of how far the chain was verified does not lie on it",
}

Progress = Callable[[int, int], None]


class Finding(NamedTuple):
    """Something that is not as it must be: of which session, at which of its receipts (counted from 1), and what."""

    session_id: str | None
    receipt: int | None
    fault: str
    sentence: str


class Report(NamedTuple):
    """What was looked at, and what was found; `findings` are the first of them, `found` is their number."""

    sessions: int
    receipts: int
    attestations: int
    keys: int
    found: int
    findings: tuple[Finding, ...]


def check_ledger(
    home: Home, *, keyring: Keyring | None = None, each: Each = map, progress: Progress | None = None
) -> Report:
    """Look through the ledger of a home, and report what is wrong with it.

    Without `keyring`, the first key of the ledger is believed, and those that it has led to. `each` spreads the work;
    `progress` is told how many receipts are done, and of how many.
    """
    check = _Check(each, progress or (lambda _done, _total: None))
    mark = None
    with check.noted():
        mark = Anchor(home).read()  # before the ledger, which is always ahead of it
    with open_rows(home) as (connection, rows):
        with check.noted():
            check.database(connection, rows)
        with check.noted():
            check_mark(mark, _present(rows), rows.hash_at)
        with check.noted():
            check.keys(home, rows)
        check.keyring = keyring or check.keyring
        with check.noted():
            check.sessions(connection, rows)
    return check.report()


def _present(rows: Rows) -> Mark:
    return mark_of(rows.overview())


class _Check:
    """What was found so far."""

    def __init__(self, each: Each, progress: Progress) -> None:
        self.each = each
        self.progress = progress
        self.keyring = Keyring([])
        self.total = 0
        self.done = self.sessions_done = self.attestations_done = self.keys_done = self.found = 0
        self.findings: list[Finding] = []

    def report(self) -> Report:
        """Return the report."""
        counts = self.sessions_done, self.done, self.attestations_done, self.keys_done, self.found
        return Report(*counts, tuple(self.findings))

    def note(
        self, fault: str, sentence: str = "", *, session: Session | None = None, receipt: int | None = None
    ) -> None:
        """Note that something is not as it must be."""
        self.found += 1
        if len(self.findings) < MAX_FINDINGS:
            name = session.id if session else None
            self.findings.append(Finding(name, receipt, fault, sentence or FAULTS[fault]))

    @contextmanager
    def noted(self, session: Session | None = None) -> Iterator[None]:
        """Note what the state of this machine makes impossible, and go on with the next thing."""
        try:
            yield
        except StateError as error:
            self.note(error.code, str(error), session=session)

    def database(self, connection: apsw.Connection, rows: Rows) -> None:
        """Let SQLite check the file, and hold the counts of the whole against the rows."""
        with translated():
            for (said,) in connection.execute("PRAGMA integrity_check"):
                if said != "ok":
                    self.note("database_damaged", f"SQLite says: {said}")
            for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
                self.note("reference_missing", f"row {row} of {table} names one of {parent} that is not there")
            with _moment(connection):
                overview = rows.overview()
                (receipts,) = connection.execute("SELECT count(*) FROM receipts").fetchone() or (0,)
                (sessions,) = connection.execute("SELECT count(*) FROM sessions").fetchone() or (0,)
        self.total = receipts
        if overview.receipts != receipts:
            self.note("count_mismatch", f"{receipts} receipts are there, and they are numbered to {overview.receipts}")
        if overview.sessions != sessions:
            self.note("count_mismatch", f"{sessions} sessions are there, and {overview.sessions} were started")

    def keys(self, home: Home, rows: Rows) -> None:
        """Follow the keys from the first to the one that signs, whose file must be there."""
        records = rows.keys()
        for number, record in enumerate(records):
            self.keys_done += 1
            try:
                self.keyring = _grown(self.keyring, record, first=number == 0)
            except RemitError as error:
                self.note("key_mismatch", f"key {number + 1}: {error}")
        kid = rows.switches().kid
        if not records or records[-1].kid != kid:
            self.note("key_mismatch", "the key that signs is not the last one")
        with home.folder("keys", create=False) as folder:
            KeyFiles(folder).load(kid)

    def sessions(self, connection: apsw.Connection, rows: Rows) -> None:
        """Look at one session after the other, each at one moment."""
        after, more = 0, True
        while more:
            with _moment(connection):
                page = rows.sessions(after=after, limit=1)
                for session in page:
                    _Walk(self, connection, rows, session).check()
                    self.sessions_done += 1
                    after = session.number
            more = bool(page)
        self.progress(self.done, self.total)

    def step(self) -> None:
        """Count one more receipt."""
        self.done += 1
        if self.done % _TELL_EVERY == 0:
            self.progress(self.done, max(self.done, self.total))


@contextmanager
def _moment(connection: apsw.Connection) -> Iterator[None]:
    """See everything as it stands now, whatever others write meanwhile."""
    with translated():
        connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _grown(keyring: Keyring, record: KeyRecord, *, first: bool) -> Keyring:
    """Return the keyring with one more key, or raise what is wrong with it."""
    if first:
        keyring = keyring_of([record])
    elif record.change:
        keyring = with_successors(keyring, [record.change])
    if keyring.find(record.kid).key != VerifyingKey.from_pem(record.public_pem.encode()):
        raise KeyUnknown("the record is of another key")
    return keyring


_RECEIPTS: Final = "SELECT number, seq, parent, id, token FROM receipts WHERE session = ? ORDER BY seq"
# In all, and what is not settled yet.
_SET_ASIDE: Final = """
SELECT coalesce(sum(amount), 0), coalesce(sum(amount * (1 - settled)), 0) FROM delegations WHERE parent = ?
"""


class _Row(NamedTuple):
    number: int
    seq: int
    parent: int | None
    id: str


class _Walk:
    """The check of one session."""

    def __init__(self, check: _Check, connection: apsw.Connection, rows: Rows, session: Session) -> None:
        self._check = check
        self._db = connection
        self._rows = rows
        self._session = session
        self._tally = Tally()
        self._head: Head | None = None
        self._last: _Row | None = None
        self._sums = dict.fromkeys(("consume", "reserve", "release", "reject"), 0)
        self._waiting: deque[_Row] = deque()
        # What was stated about the chain before, by the length that it then had.
        self._attested: dict[int, list[Attestation]] = {}
        self._bookmark: Head | None = None

    def check(self) -> None:
        """Check everything that there is of the session."""
        with self._check.noted(self._session):
            self._passport()
            self._statements()
            try:
                self._compare()
                for receipt, head in walk_chain(self._tokens(), self._check.keyring, each=self._check.each):
                    self._take(receipt, head)
            except BrokenChain as broken:
                return self._note(broken.fault, str(broken), broken.index + 1)
            self._end()
            self._budget()
        return None

    def _note(self, fault: str, sentence: str = "", receipt: int | None = None) -> None:
        self._check.note(fault, sentence, session=self._session, receipt=receipt)

    def _passport(self) -> None:
        session = self._session
        try:
            passport = verify_passport(session.passport, self._check.keyring, now=session.started_ms // 1000)
        except KeyUnknown:
            return None  # of an issuer whom only the configuration knows
        except RemitError as error:
            return self._note("passport_mismatch", f"the passport of the session: {error}")
        mission = passport.mission
        given = passport.jti, mission.agent_id, passport.parent_jti, mission.max_tool_calls
        kept = session.id, session.actor, session.parent, session.limit
        if kept != given or session.lifetime_ms > mission.max_duration_s * 1000:
            self._note("passport_mismatch")
        return None

    def _statements(self) -> None:
        for token in self._rows.attestations(self._session.id):
            self._check.attestations_done += 1
            try:
                claims = verify_attestation(token, self._check.keyring)
            except RemitError as error:
                self._note("attestation_mismatch", f"an attestation does not verify: {error}")
            else:
                self._attested.setdefault(claims.receipts, []).append(claims)
        token_of_bookmark = self._rows.bookmark(self._session.id)
        if token_of_bookmark is not None:
            try:
                self._bookmark, _ = verify_bookmark(token_of_bookmark, self._check.keyring)
            except RemitError as error:
                self._note("bookmark_mismatch", f"the bookmark does not verify: {error}")

    def _tokens(self) -> Iterator[str]:
        with translated():
            for number, seq, parent, receipt_id, token in self._db.execute(_RECEIPTS, (self._session.number,)):
                self._waiting.append(_Row(number, seq, parent, receipt_id))
                yield token

    def _take(self, receipt: SignedReceipt, head: Head) -> None:
        """Count a verified receipt, and hold against it what rows and statements say at this place."""
        row, last, claims = self._waiting.popleft(), self._last, receipt.claims
        expected = _Row(row.number, head.length, last.number if last else None, claims.receipt_id)
        if row != expected:
            self._note("row_mismatch", receipt=head.length)
        delta = claims.budget_delta
        if isinstance(delta, LineageBudgetDelta):
            self._sums[delta.operation] += delta.amount
        self._tally.add(receipt)
        self._head, self._last = head, row
        self._check.step()
        self._compare()

    def _compare(self) -> None:
        """Hold what was stated at this length against what was counted up to here."""
        length = self._head.length if self._head else 0
        for claims in self._attested.pop(length, ()):
            counted = self._tally.counted() | {"session_id": self._session.id, "sub": self._session.actor}
            member = next((name for name, value in counted.items() if getattr(claims, name) != value), None)
            if member is not None:
                self._note("attestation_mismatch", f"an attestation states another {member}", length)
        if self._bookmark is not None and self._bookmark.length == length:
            if self._bookmark != self._head:
                self._note("bookmark_mismatch", receipt=length)
            self._bookmark = None

    def _end(self) -> None:
        """Hold the session against the end of its chain."""
        session, head, verdicts = self._session, self._head, self._tally.verdicts
        length = head.length if head else 0
        if session.length != length or (head and session.receipt_hash != head.receipt_hash):
            self._note(
                "head_mismatch", f"the chain has {length} receipts, and the session says {session.length}", length
            )
        elif (head and session.head != head) or session.last_number != (self._last.number if self._last else None):
            self._note("session_mismatch", receipt=length)
        counted = verdicts["compliant"], verdicts["violation"], verdicts["insufficient_evidence"]
        if counted != (session.compliant, session.violation, session.insufficient_evidence):
            self._note("session_mismatch", "the verdicts of the session are not those of its receipts")
        for stated in self._attested:
            self._note("head_mismatch", f"{stated} receipts were attested, and {length} are there", length)
        if self._bookmark is not None:
            self._note("head_mismatch", f"{self._bookmark.length} receipts were verified once, and {length} are there")

    def _budget(self) -> None:
        """Hold the calls that are used and set aside against the receipts, and against the delegations."""
        session, sums = self._session, self._sums
        with translated():
            given, open_now = self._db.execute(_SET_ASIDE, (session.id,)).fetchone() or (0, 0)
        # Of what was set aside and is not any more, delegates have used all that did not come back.
        used = sums["consume"] + sums["reserve"] - session.reserved - sums["release"]
        if (session.used, session.reserved, sums["reserve"]) != (used, open_now, given):
            self._note("budget_mismatch")
