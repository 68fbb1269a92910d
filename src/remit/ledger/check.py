"""Checks the whole ledger: every chain from its root, and every row against what is signed.

Invariant: only signed data is trusted; rows are compared with it. Other processes may write meanwhile: each session is
read at one moment. Memory does not grow with the history, except for the attestations of one session.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import apsw

from remit.claims.chain import Each
from remit.claims.keys import Keyring, VerifyingKey
from remit.claims.succession import KeyLimit, verify_key_limit, with_successors
from remit.errors import KeyUnknown, RemitError
from remit.ledger.anchor import Anchor, AnchorMark, check_anchor
from remit.ledger.check_session import SessionCheck
from remit.ledger.embedded import anchor_mark, open_rows
from remit.ledger.findings import FAULTS, FindingRecorder, LedgerReport, Progress, limits_fault
from remit.ledger.home import Home
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.keys import build_keyring
from remit.ledger.records import KeyRecord, unverified_kid
from remit.ledger.rows import LedgerQueries, translate_errors

# By denial code; the empty code is for permitted calls. Sums are floats, because tampered integers may overflow.
_COUNTS: Final = """
SELECT code, total(there), total(by_minute), total(in_all) FROM (
  SELECT code, count(*) AS there, 0 AS by_minute, 0 AS in_all FROM receipts WHERE code != '' GROUP BY code
  UNION ALL SELECT '', permitted, 0, permitted FROM (
    SELECT (SELECT count(*) FROM receipts) - (SELECT count(*) FROM receipts WHERE code != '') AS permitted
  )
  UNION ALL SELECT code, 0, total(count), 0 FROM minutes GROUP BY code
  UNION ALL SELECT code, 0, 0, count FROM codes
) GROUP BY code HAVING total(there) != total(by_minute) OR total(there) != total(in_all)
"""
_BETWEEN: Final = """
SELECT s.id, r.seq, r.token FROM receipts r CROSS JOIN sessions s ON s.number = r.session
WHERE r.number > ? AND r.number <= ? ORDER BY r.number
"""


def check_ledger(
    home: Home, *, keyring: Keyring | None = None, each: Each = map, progress: Progress | None = None
) -> LedgerReport:
    """Check the ledger of a home, and return a report.

    Without `keyring`, the first key of the ledger and its successors are trusted. `each` may be the `map` of a pool;
    `progress` is called with the number of checked receipts, and of all.
    """
    check = _Check(each, progress or (lambda _done, _total: None))
    mark = None
    with check.noted():
        mark = Anchor(home).read()  # before the ledger, which is always at or ahead of it
    with open_rows(home) as (connection, rows):
        with check.noted():
            check.database(connection, rows)
        with check.noted():
            check_anchor(mark, _present(rows), rows.hash_at)
        with check.noted():
            check.keys(home, rows)
        with check.noted():
            check.periods(rows)
        check.keyring = keyring or check.keyring
        with check.noted():
            check.sessions(connection, rows)
        with check.noted():
            check.order(connection)
    return check.report()


def _present(rows: LedgerQueries) -> AnchorMark:
    return anchor_mark(rows.overview())


class _Check(FindingRecorder):
    """The check of a whole ledger."""

    def database(self, connection: apsw.Connection, rows: LedgerQueries) -> None:
        """Let SQLite check the file, and compare the stored counts with the rows."""
        with translate_errors():
            for (said,) in connection.execute("PRAGMA integrity_check"):
                if said != "ok":
                    self.note("database_damaged", f"SQLite reports: {said}")
            for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
                self.note("reference_missing", f"row {row} of {table} names one of {parent} that is not there")
            with _moment(connection):
                overview = rows.overview()
                (receipts,) = connection.execute("SELECT count(*) FROM receipts").fetchone() or (0,)
                (sessions,) = connection.execute("SELECT count(*) FROM sessions").fetchone() or (0,)
                (sources,) = connection.execute("SELECT count(*) FROM sources").fetchone() or (0,)
                self._denials(connection)
                counted = rows.source_count()
        self.total = receipts
        if overview.receipts != receipts:
            self.note("count_mismatch", f"{receipts} receipts are there, and they are numbered to {overview.receipts}")
        if overview.sessions != sessions:
            self.note("count_mismatch", f"{sessions} sessions are there, and {overview.sessions} were started")
        if counted != sources:
            self.note("count_mismatch", f"{sources} sources are there, and {counted} are counted")

    def _denials(self, connection: apsw.Connection) -> None:
        """Compare the counts by denial code, in total and by minute, with the receipts."""
        for code, there, by_minute, in_all in connection.execute(_COUNTS):
            counted = f"{in_all:.0f} are counted, and {by_minute:.0f} by the minute"
            self.note("count_mismatch", f"{there:.0f} receipts have the code {code[:128]!r}, {counted}")

    def keys(self, home: Home, rows: LedgerQueries) -> None:
        """Verify the keys from the first to the signing key, whose file must exist."""
        records = rows.keys()
        for number, record in enumerate(records):
            self.keys_done += 1
            try:
                self.keyring = _grown(self.keyring, record, first=number == 0)
            except RemitError as error:
                self.note("key_mismatch", f"key {number + 1}: {error}")
        kid = rows.ledger_state().kid
        if not records or records[-1].kid != kid:
            self.note("key_mismatch", "the key that signs is not the last one")
        with home.folder("keys", create=False) as folder:
            KeyFiles(folder).load(kid)

    def periods(self, rows: LedgerQueries) -> None:
        """Load where the periods of keys ended, and report passports that were signed later."""
        for record in rows.limits():
            try:
                limit = verify_key_limit(record.token, self.keyring)
            except RemitError as error:
                self.note("key_mismatch", f"the end of the period of key {record.kid[:128]!r}: {error}")
            else:
                self.limits.setdefault(limit.kid, []).append(limit)
        self._unlimited(rows)
        for kid, limits in self.limits.items():
            late: dict[str, list[KeyLimit]] = {}
            for limit in limits:
                for passport_id in rows.signed_after(kid, limit.position):
                    late.setdefault(passport_id, []).append(limit)
            for passport_id, passed in late.items():
                fault = limits_fault(passed)
                self.note(fault, f"passport {passport_id[:128]}: {FAULTS[fault]}")

    def _unlimited(self, rows: LedgerQueries) -> None:
        """Report keys that have handed over without an end of their period, since the ledger records such ends.

        It has recorded them since it registers passports: from the first key on that has signed one, or has an end.
        """
        retired, registering = [record.kid for record in rows.keys()[:-1]], rows.registering()
        first = next((at for at, kid in enumerate(retired) if kid in self.limits or kid in registering), len(retired))
        for kid in retired[first:]:
            if kid not in self.limits:
                self.note("limit_missing", f"key {kid[:128]} has handed over without a record of the end of its period")

    def order(self, connection: apsw.Connection) -> None:
        """Report receipts that a key has signed after the first one of a successor.

        For a change of key from before ends of periods were recorded, this is the only check.
        """
        for kid, (_, last) in self.signed.items():
            later = [first for other, (first, _) in self.signed.items() if self.keyring.succeeds(other, kid)]
            # Receipts after a recorded end are reported already.
            until = min([last, *(limit.position.receipts for limit in self.limits.get(kid, ()))])
            if later and min(later) < until:
                self._retired(connection, kid, min(later), until)

    def _retired(self, connection: apsw.Connection, kid: str, after: int, until: int) -> None:
        with translate_errors():
            for session_id, seq, token in connection.execute(_BETWEEN, (after, until)):
                if unverified_kid(token) == kid:
                    self.note("key_retired", f"receipt {seq} of {session_id[:128]}: {FAULTS['key_retired']}")

    def sessions(self, connection: apsw.Connection, rows: LedgerQueries) -> None:
        """Check one session after the other, each at one moment."""
        after: int | None = 0
        while after is not None:
            with _moment(connection):
                walks = [SessionCheck(self, connection, rows, it) for it in rows.sessions(after=after, limit=1)]
            after = None
            for walk in walks:
                after = walk.check()
                self.sessions_done += 1
        self.progress(self.done, self.total)


@contextmanager
def _moment(connection: apsw.Connection) -> Iterator[None]:
    """Read a consistent snapshot, whatever others write meanwhile."""
    with translate_errors():
        connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _grown(keyring: Keyring, record: KeyRecord, *, first: bool) -> Keyring:
    """Return the keyring with one more key. Raises if the key is not valid."""
    if first:
        keyring = build_keyring([record])
    elif record.change:
        keyring = with_successors(keyring, [record.change])
    if keyring.find(record.kid).key != VerifyingKey.from_pem(record.public_pem.encode()):
        raise KeyUnknown("the record is of another key")
    return keyring
