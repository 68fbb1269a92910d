"""Verifies every chain of a ledger continuously, and reports the progress.

The first pass takes the sessions in the order of their last receipt, newest first. What a signed bookmark covers is
hashed and compared with the root that the bookmark states; everything else is verified by signature. After that three
things run in turns, at a bounded share of one core:

- receipts that are new are verified by signature, newest sessions first;
- the receipts that were verified are read again and hashed, and compared with the digest that this process remembers;
- every session is checked from its first receipt by signature, and compared with its row, oldest first.

Nothing is written here, and no private key is needed. Invariants: a session that is reported as verified was read up to
the stated length by this process; a chain that was found broken stays reported; an error of reading is not a break.
"""

from collections import deque
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Final, NamedTuple, Protocol, TypeAlias

from remit.claims.bookmark import verify_bookmark
from remit.claims.chain import Head, Lineage, walk_chain
from remit.claims.keys import Keyring
from remit.claims.merkle import Frontier, hash_leaf
from remit.claims.receipt import verify_receipt
from remit.errors import BrokenChain, KeyUnknown, RemitError, TokenError
from remit.governor.verification import (
    BrokenChainFound,
    Message,
    SessionsVerified,
    SessionVerified,
    VerificationSummary,
)
from remit.ledger.findings import FAULTS, check_period, is_limit_stated, period_fault
from remit.ledger.keys import KeyPeriods, build_keyring
from remit.ledger.records import Session, StoredReceipt, unverified_kid
from remit.ledger.store import LedgerReader

_PAGE: Final = 200
_SESSIONS: Final = 100
# The maximum number of sessions reported in one message.
_REPORTED: Final = 100
# A pass over a small ledger is not started more often than this.
_PASS_S: Final = 10.0
_POLL_S: Final = 1.0
# Faults that may be caused by a key that is not loaded yet.
_KEY_FAULTS: Final = frozenset((KeyUnknown.code, "issuer_changed", "limit_missing"))
# While nothing changes, a summary shows that the verifier is alive.
_HEARTBEAT_S: Final = 5.0


class Pace(Protocol):
    """Limits the processor time used, and provides the time."""

    def wall(self) -> float:
        """Return the time in seconds since 1970."""

    def due(self) -> bool:
        """Return whether a pause is due."""

    def pause(self, *, full_speed: bool) -> None:
        """Pause long enough to stay within the share of the processor; not at all at full speed."""

    def sleep(self, seconds: float) -> None:
        """Wait while there is nothing to do."""


# Checks one session by its id: all signatures from its first receipt, and all values of its row. Returns the fault, if
# there is one, and calls the given function after each receipt.
DeepCheck: TypeAlias = Callable[[str, Keyring, Callable[[], None]], BrokenChain | None]


class _VerifiedPart(NamedTuple):
    """The verified part of a session: the number of receipts, the hash of the last, and a digest over all of them."""

    length: int = 0
    last_hash: str | None = None
    digest: bytes = b""


def _roll(digest: bytes, token: str) -> bytes:
    """Return the digest over all tokens so far and one more."""
    return sha256(digest + token.encode()).digest()


class Verifier:
    """The verification of a whole ledger by one process."""

    def __init__(self, reader: LedgerReader, deep: DeepCheck, tell: Callable[[Message], None], pace: Pace) -> None:
        """Read from `reader`, and report to `tell`."""
        self._reader = reader
        self._deep = deep
        self._tell = tell
        self._pace = pace
        self._periods = KeyPeriods(reader)
        self._read_keys()
        self._known: dict[str, _VerifiedPart] = {}
        self._broken: dict[str, BrokenChain] = {}
        self._fresh: list[SessionVerified] = []
        # The number of the last receipt up to which everything was verified, and its id.
        self._through = 0
        self._through_id: str | None = None
        self._verified_at: float | None = None
        # Of all known sessions together.
        self._receipts = 0
        self._first_pass_done = False
        self._pass_started_at = pace.wall()
        self._last_full_pass_at: float | None = None
        self._told_at = 0.0
        self._hash_pass: Iterator[None] | None = None
        self._hash_pass_at = 0.0
        # Both interrupt a signature pass; neither may be re-entered.
        self._catching_up = False
        self._hashing = False

    def run(self) -> None:
        """Verify until the process is stopped."""
        self.first_pass()
        while True:
            self.full_pass()
            while self._pace.wall() - self._pass_started_at < _PASS_S:
                self._pace.sleep(_POLL_S)
                self.catch_up()
                self._summarize()

    def first_pass(self) -> None:
        """Verify all sessions once, at full speed, the last appended to first."""
        self._summarize(now=True)
        started = self._pace.wall()
        by_signature = True
        overview = self._reader.overview()
        for name in self._reader.appended_to(0, overview.receipts):
            by_signature = self._take(name, bookmark=True) and by_signature
        for session in self._sessions():
            if session.id not in self._known and session.id not in self._broken:
                self._take(session.id, bookmark=True)
        self._reached(overview.receipts, overview.last_receipt_id, started)
        self._first_pass_done = True
        if by_signature:
            self._last_full_pass_at = self._pace.wall()
        self.catch_up()
        self._summarize(now=True)

    def catch_up(self) -> None:
        """Verify the receipts that are new, by signature, the last sessions first."""
        self._catching_up = True
        try:
            self._catch_up()
        finally:
            self._catching_up = False

    def _catch_up(self) -> None:
        started = self._pace.wall()
        overview = self._reader.overview()
        if overview.receipts > self._through:
            self._limits = self._periods.limits()
            for name in self._reader.appended_to(self._through, overview.receipts):
                self._take(name)
        elif overview.receipts < self._through:
            # Receipts at the end of the ledger were removed: the sessions they belonged to are found by a pass.
            self._through = overview.receipts
        self._reached(overview.receipts, overview.last_receipt_id, started)

    def full_pass(self) -> None:
        """Check every session from its first receipt by signature, the oldest first."""
        self._pass_started_at = self._pace.wall()
        self._read_keys()
        there = set[str]()
        for session in self._sessions():
            there.add(session.id)
            if session.id not in self._broken:
                self._check(session)
            self._step()
        self._check_present(there)
        self._last_full_pass_at = self._pace.wall()
        self.catch_up()
        self._summarize(now=True)

    def hash_pass(self) -> Iterator[None]:
        """Hash again what was verified, and compare; yield after each page."""
        self._hash_pass_at = self._pace.wall()
        there = set[str]()
        for listed in self._sessions():
            there.add(listed.id)
            known = self._known.get(listed.id)
            # A page of sessions can be stale by the time its last one is processed.
            session = self._reader.session(listed.id)
            if known is None or session is None or session.id in self._broken:
                continue
            digest = b""
            for kept in self._kept(session.id, 0, known.length):
                digest = _roll(digest, kept.token)
                yield
            moved = session.length == known.length and session.receipt_hash != known.last_hash
            if digest != known.digest or session.length < known.length or moved:
                replaced = BrokenChain(0, "head_mismatch", "receipts were replaced since they were verified")
                self._verify_again(session.id, replaced)
            yield
        self._check_present(there)

    def _read_keys(self) -> None:
        """Reload the trusted keys and the ends of their periods: other processes change both."""
        self._limits = self._periods.limits()
        self._keyring = build_keyring(self._reader.keys())

    def _sessions(self) -> Iterator[Session]:
        after = 0
        while page := self._reader.sessions(after=after, limit=_SESSIONS):
            after = page[-1].number
            yield from page

    def _kept(self, session_id: str, after: int, end: int) -> Iterator[StoredReceipt]:
        """Yield the receipts of a session after number `after` up to number `end`, a page at a time."""
        while after < end:
            page = self._reader.receipts(session_id, after=after, limit=min(_PAGE, end - after))
            if not page:
                return
            yield from page
            after += len(page)

    # One session

    def _take(self, session_id: str, *, bookmark: bool = False) -> bool:
        """Verify the unverified part of a session; return whether all of it was verified by signature."""
        session = self._reader.session(session_id)
        if session is None or session_id in self._broken:
            return True
        known = self._known.get(session_id)
        covered = self._by_bookmark(session) if bookmark and known is None else None
        start = covered or known or _VerifiedPart()
        try:
            self._verify(session, start)
        except BrokenChain as broken:
            if start.length or broken.fault in _KEY_FAULTS:
                self._verify_again(session_id, broken)
            else:
                # Every receipt before it was verified just now.
                self._found(session_id, broken)
        return covered is None

    def _verify_again(self, session_id: str, found: BrokenChain) -> None:
        """Verify a session from its first receipt with the keys as they are now, and report where it is broken.

        What was `found` is no break only if a key was missing: another process may have changed to a new one.
        """
        self._read_keys()
        session = self._reader.session(session_id)
        if session is None:
            return
        try:
            self._verify(session, _VerifiedPart())
        except BrokenChain as broken:
            self._found(session_id, broken)
        else:
            if found.fault not in _KEY_FAULTS:
                self._found(session_id, found)

    def _verify(self, session: Session, known: _VerifiedPart) -> None:
        """Verify the signatures after `known`, up to the end of the chain according to the session row."""
        if session.length < known.length:
            raise BrokenChain(session.length, "head_mismatch", "the chain was longer when it was verified before")
        head, digest = self._head_of(session, known), known.digest
        # The ledger numbers of receipts that were read but not verified yet.
        numbers: deque[int] = deque()

        def rolled() -> Iterator[str]:
            nonlocal digest
            for kept in self._kept(session.id, known.length, session.length):
                digest = _roll(digest, kept.token)
                numbers.append(kept.number)
                yield kept.token

        for receipt, reached in walk_chain(rolled(), self._keyring, start=head):
            check_period(self._limits, receipt.kid, numbers.popleft(), reached.length - 1)
            if is_limit_stated(receipt.claims):
                self._check_stated(receipt.claims.target, reached.length - 1)
            head = reached
            self._step()
        _check_end(session, head)
        self._check_nothing_beyond(session)
        self._verified(session.id, _VerifiedPart(session.length, session.receipt_hash, digest))

    def _check_stated(self, limit_id: str, index: int) -> None:
        """Raise `BrokenChain` if a statement about the end of a key's period exists, but its record is missing."""
        if all(limit.jti != limit_id for limits in self._limits.values() for limit in limits):
            raise BrokenChain(index, "limit_missing", FAULTS["limit_missing"])

    def _check_nothing_beyond(self, session: Session) -> None:
        """Raise `BrokenChain` if there are receipts after the last one according to the session row."""
        if self._reader.receipts(session.id, after=session.length, limit=1):
            # A receipt and its session row are committed together: if the row has not moved, it is wrong.
            now = self._reader.session(session.id)
            if now is not None and now.length <= session.length:
                raise BrokenChain(
                    session.length, "head_mismatch", "the chain goes on after the head in the session row"
                )

    def _head_of(self, session: Session, known: _VerifiedPart) -> Head | None:
        """Return the head of the chain when it was verified, from the last receipt at that time."""
        if not known.length:
            return None
        token = next((kept.token for kept in self._kept(session.id, known.length - 1, known.length)), "")
        try:
            last = verify_receipt(token, self._keyring)
        except TokenError as error:
            raise BrokenChain(known.length - 1, error.code, str(error)) from error
        if last.hash != known.last_hash:
            raise BrokenChain(known.length - 1, "parent_hash_mismatch", "another receipt is in its place")
        claims = last.claims
        lineage = Lineage(claims.grant_id, claims.actor, claims.verifier_id, claims.trace_id, claims.run_nonce)
        return Head(lineage, known.length, claims.receipt_id, last.hash, claims.iat, last.kid)

    def _by_bookmark(self, session: Session) -> _VerifiedPart | None:
        """Return what a signed bookmark covers, if the receipts still have the root that it states.

        It counts only if the period of its key has not ended, and if it covers no receipt that was signed after the
        period of its key: what a key signed may have been distrusted since the bookmark was made.
        """
        token = self._reader.bookmark(session.id)
        if token is None or unverified_kid(token) in self._limits:
            return None
        try:
            head, tally = verify_bookmark(token, self._keyring)
        except RemitError:
            return None
        if not _belongs_to(head, session) or head.length > session.length:
            return None
        tree, digest = Frontier(), b""
        for kept in self._kept(session.id, 0, head.length):
            if self._limits and period_fault(self._limits, unverified_kid(kept.token), kept.number):
                return None
            tree.append(hash_leaf(kept.token.encode()))
            digest = _roll(digest, kept.token)
            self._step()
        if tree.size != head.length or tree.root().hex() != tally.counted()["receipts_root"]:
            return None
        return _VerifiedPart(head.length, head.receipt_hash, digest)

    def _check(self, session: Session) -> None:
        """Check one session with all values of its row."""
        broken = self._deep(session.id, self._keyring, self._step)
        if broken is not None:
            # Another process may have rotated the key.
            self._read_keys()
            broken = self._deep(session.id, self._keyring, self._step)
        if broken is not None:
            self._found(session.id, broken)
            return
        self._take(session.id)
        known = self._known.get(session.id)
        if known is not None and session.id not in self._broken:
            self._verified(session.id, known)

    def _check_present(self, there: set[str]) -> None:
        """Report verified sessions that no longer exist."""
        for name in [name for name in self._known if name not in there and name not in self._broken]:
            if self._reader.session(name) is None:
                self._found(name, BrokenChain(0, "head_mismatch", "the session was removed from the ledger"))

    # Reports

    def _verified(self, session_id: str, known: _VerifiedPart) -> None:
        before = self._known.get(session_id, _VerifiedPart()).length
        if session_id in self._broken or known.length < before:
            return
        self._receipts += known.length - before
        self._known[session_id] = known
        self._fresh.append(SessionVerified(session_id, known.length, int(self._pace.wall())))
        if len(self._fresh) >= _REPORTED:
            self._tell_sessions()

    def _found(self, session_id: str, broken: BrokenChain) -> None:
        if session_id in self._broken:
            return
        self._broken[session_id] = broken
        self._receipts -= self._known.pop(session_id, _VerifiedPart()).length
        self._tell(BrokenChainFound(session_id, broken.index, broken.fault, str(broken)))
        self._summarize(now=True)

    def _reached(self, number: int, receipt_id: str | None, at: float) -> None:
        self._through, self._through_id, self._verified_at = number, receipt_id, at

    def _step(self) -> None:
        """Pause if that is due; during a long pass, also verify new receipts and continue the hash pass."""
        if not self._pace.due():
            return
        if self._first_pass_done and not self._catching_up and not self._hashing:
            self.catch_up()
        if self._first_pass_done and not self._hashing:
            self._hash_some()
        self._summarize()
        self._pace.pause(full_speed=not self._first_pass_done)

    def _hash_some(self) -> None:
        """Continue the hash pass for as long as the last slice of the signature pass has taken."""
        if self._hash_pass is None:
            if self._pace.wall() - self._hash_pass_at < _PASS_S:
                return
            self._hash_pass = self.hash_pass()
        self._hashing = True
        try:
            for _ in self._hash_pass:
                if self._pace.due():
                    return
        finally:
            self._hashing = False
        self._hash_pass = None

    def _tell_sessions(self) -> None:
        if self._fresh:
            self._tell(SessionsVerified(self._fresh))
            self._fresh = []

    def _summarize(self, *, now: bool = False) -> None:
        wall = self._pace.wall()
        every = _HEARTBEAT_S if self._first_pass_done and not self._fresh else _POLL_S
        if not now and 0 <= wall - self._told_at < every:
            return
        self._told_at = wall
        self._tell_sessions()
        self._tell(
            VerificationSummary(
                state="continuous" if self._first_pass_done else "first_pass",
                sessions_verified=len(self._known),
                receipts_verified=self._receipts,
                through=self._through if self._first_pass_done else 0,
                through_receipt=self._through_id if self._first_pass_done else None,
                verified_at=None if self._verified_at is None else int(self._verified_at),
                pass_started_at=int(self._pass_started_at),
                last_full_pass_at=None if self._last_full_pass_at is None else int(self._last_full_pass_at),
                broken=len(self._broken),
                at=int(wall),
            )
        )


def _belongs_to(head: Head, session: Session) -> bool:
    grant_id, actor, _, trace_id, run_nonce = head.lineage
    return (grant_id, actor, trace_id, run_nonce) == (session.id, session.actor, session.trace_id, session.run_nonce)


def _check_end(session: Session, head: Head | None) -> None:
    """Raise unless the chain is the session's own, and ends at the head in the session row."""
    if head is not None and not _belongs_to(head, session):
        raise BrokenChain(0, "lineage_changed", "the chain is that of another session, run or actor")
    length, last = (head.length, head.receipt_hash) if head else (0, None)
    if (length, last) != (session.length, session.receipt_hash):
        raise BrokenChain(length, "head_mismatch", "the chain does not end at the head in the session row")
