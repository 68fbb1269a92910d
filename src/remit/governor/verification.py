"""The state of the verification of the ledger, and the supervisor of the verifier process.

One verifier runs per home. Every service of the home tries to take a lock; the one that holds it runs the verifier as
a process of its own, and publishes its reports in `run/verification.json` for other services and for commands. If that
service stops, another one takes over. Invariants: reports of the verifier are parsed strictly and are bounded. A break
that was reported stays reported while the service runs; the session is quarantined in the ledger, and what cannot be
written at once is tried again.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from remit.errors import BrokenChain, LedgerInUse, RemitError, StateMissing
from remit.governor.context import Context, UseCaseRunner
from remit.governor.lifecycle import QUARANTINED, quarantine
from remit.governor.statements import RecordStatement
from remit.ledger.home import Home, open_home
from remit.ledger.records import Session
from remit.ledger.store import Transaction

_FOLDER: Final = "run"
_FILE: Final = "verification.json"
_LOCK: Final = "verifier.lock"
_MODULE: Final = "remit.governor.verifier_process"
_MAX_LINE: Final = 64 * 1024
_MAX_FILE: Final = 256 * 1024
# Sessions whose progress is kept in memory, and in the file for others; all of them are in the summary.
_REMEMBERED: Final = 4096
_PUBLISHED: Final = 256
_LISTED: Final = 100
# A report that is older than this does not describe the ledger as it is.
STALE_S: Final = 60
_BEGIN_S: Final = 1.0
_FOLLOW_S: Final = 1.0
_PUBLISH_S: Final = 1.0
_FIRST_DELAY_S: Final = 1.0
_LONGEST_DELAY_S: Final = 60.0
# A verifier that ran for so long is started again without delay.
_SETTLED_S: Final = 60.0
# Signed statements about broken chains, per minute: an attacker may break many.
_STATEMENTS: Final = 10

_Count: TypeAlias = Annotated[int, Meta(ge=0)]
_Text: TypeAlias = Annotated[str, Meta(max_length=4096)]
_Id: TypeAlias = Annotated[str, Meta(max_length=512)]


class SessionVerified(NamedTuple):
    """A session whose first `length` receipts were verified, at a second since 1970."""

    session_id: _Id
    length: _Count
    at: _Count


class SessionsVerified(Struct, frozen=True, tag="sessions"):
    """Sessions that were verified, or verified further."""

    sessions: Annotated[list[SessionVerified], Meta(max_length=1000)]


class BrokenChainFound(Struct, frozen=True, tag="broken"):
    """A session whose chain is broken at receipt `index`, counted from 0, and why."""

    session_id: _Id
    index: _Count
    fault: _Text
    sentence: _Text


class VerificationSummary(Struct, frozen=True, tag="summary"):
    """How far verification has come. Times are seconds since 1970.

    Everything that was recorded before `verified_at`, up to the receipt `through_receipt`, was verified. A full pass is
    one that verified every signature.
    """

    state: Literal["first_pass", "continuous"]
    sessions_verified: _Count
    receipts_verified: _Count
    through: _Count
    through_receipt: _Id | None
    verified_at: _Count | None
    pass_started_at: _Count
    last_full_pass_at: _Count | None
    broken: _Count
    at: _Count


class VerifierProblem(Struct, frozen=True, tag="problem"):
    """The reason why the verifier cannot continue."""

    said: _Text


Message: TypeAlias = SessionsVerified | BrokenChainFound | VerificationSummary | VerifierProblem
_messages: Final = msgspec.json.Decoder(SessionsVerified | BrokenChainFound | VerificationSummary | VerifierProblem)


class VerificationSnapshot(Struct, frozen=True):
    """The verification state as published for other services and for commands."""

    summary: VerificationSummary | None
    problem: _Text
    sessions: list[SessionVerified]
    broken: list[BrokenChainFound]
    at: _Count

    def is_stale(self, now: float) -> bool:
        """Return whether this is too old to describe the current ledger."""
        return not -STALE_S <= now - self.at <= STALE_S


_snapshots: Final = msgspec.json.Decoder(VerificationSnapshot)


def load_snapshot(home: Home) -> VerificationSnapshot | None:
    """Return the last snapshot published by the service that runs the verifier, or None."""
    try:
        with home.folder(_FOLDER, create=False) as folder:
            data = folder.read(_FILE, max_bytes=_MAX_FILE)
    except StateMissing:
        return None
    try:
        return None if data is None else _snapshots.decode(data)
    except msgspec.MsgspecError:
        return None


class SessionProgress(NamedTuple):
    """The number of verified receipts of a chain, its length, the fault if it is broken, and the time."""

    verified: int
    length: int
    fault: BrokenChain | None = None
    at: int | None = None

    @property
    def complete(self) -> bool:
        """Return whether the whole chain was verified."""
        return self.fault is None and self.verified == self.length


class VerificationState:
    """The state of the verification of the ledger. Thread-safe."""

    def __init__(self, *, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._summary: VerificationSummary | None = None
        self._problem = ""
        self._sessions: OrderedDict[str, SessionVerified] = OrderedDict()
        # Never removed while the service runs.
        self._broken: dict[str, BrokenChainFound] = {}
        # Called with every new break.
        self.on_broken: Callable[[BrokenChainFound], None] = lambda _found: None

    def apply(self, message: Message) -> None:
        """Apply a report of the verifier."""
        with self._lock:
            if isinstance(message, VerificationSummary):
                self._summary, self._problem = message, ""
            elif isinstance(message, VerifierProblem):
                self._problem = message.said
            elif isinstance(message, SessionsVerified):
                self._remember(message.sessions)
        if isinstance(message, BrokenChainFound):
            self._found(message)

    def _remember(self, sessions: list[SessionVerified]) -> None:
        for one in sessions:
            self._sessions[one.session_id] = one
            self._sessions.move_to_end(one.session_id)
        while len(self._sessions) > _REMEMBERED:
            self._sessions.popitem(last=False)

    def _found(self, found: BrokenChainFound) -> None:
        with self._lock:
            known = self._broken.get(found.session_id)
            if known is not None and known.index <= found.index:
                return
            self._broken[found.session_id] = found
        self.on_broken(found)

    def report(self, session_id: str, fault: BrokenChain) -> None:
        """Record a broken chain that was found outside of the verifier."""
        self._found(BrokenChainFound(session_id, fault.index, fault.fault, str(fault)))

    def restarted(self, problem: str) -> None:
        """Record that the verifier was restarted, and why; the results of the last one are discarded."""
        with self._lock:
            self._summary, self._problem = None, problem
            self._sessions.clear()

    def follow(self, snapshot: VerificationSnapshot | None) -> None:
        """Apply the snapshot of another service."""
        with self._lock:
            if snapshot is None or snapshot.is_stale(self._wall()):
                self._summary, self._problem = None, "no verifier reports"
                self._sessions.clear()
                return
            self._summary, self._problem = snapshot.summary, snapshot.problem
            self._remember(snapshot.sessions)
        for found in snapshot.broken:
            self._found(found)

    def snapshot(self) -> VerificationSnapshot:
        """Return the state to publish."""
        with self._lock:
            sessions = list(self._sessions.values())[-_PUBLISHED:]
            broken = list(self._broken.values())[-_LISTED:]
            return VerificationSnapshot(self._summary, self._problem, sessions, broken, int(self._wall()))

    @property
    def summary(self) -> VerificationSummary | None:
        """Return the last summary; None if there is none or it is stale."""
        summary = self._summary
        return None if summary is None or abs(self._wall() - summary.at) > STALE_S else summary

    @property
    def problem(self) -> str:
        """Return the reason why nothing is verified; empty while the verifier works."""
        if self._problem or self.summary is not None:
            return self._problem
        return "the verifier does not report" if self._summary is not None else "the verifier has not reported yet"

    def faults(self) -> dict[str, BrokenChain]:
        """Return the breaks that were found, by session."""
        with self._lock:
            return {name: _fault(found) for name, found in self._broken.items()}

    def progress(self, session: Session) -> SessionProgress:
        """Return the progress of a session. Without a current summary, nothing counts as verified."""
        with self._lock:
            found, one, summary = self._broken.get(session.id), self._sessions.get(session.id), self.summary
        if found is not None:
            return SessionProgress(min(found.index, session.length), session.length, _fault(found))
        if summary is None:
            return SessionProgress(0, session.length)
        if one is not None:
            return SessionProgress(min(one.length, session.length), session.length, None, one.at)
        if summary.verified_at is not None and (session.last_number or 0) <= summary.through:
            return SessionProgress(session.length, session.length, None, summary.verified_at)
        return SessionProgress(0, session.length)


def _fault(found: BrokenChainFound) -> BrokenChain:
    return BrokenChain(found.index, found.fault, found.sentence.partition(": ")[2] or found.sentence)


@dataclass(frozen=True)
class Quarantine:
    """Deny every further call of a session whose chain is broken, and of those that continue it.

    Its delegates continue: they have chains and passports of their own. No new ones are delegated.
    """

    session_id: str

    async def run(self, context: Context) -> bool:
        """Mark the session; return whether it was not marked before."""
        marked: bool = await context.transact(lambda transaction: self._work(context, transaction))
        return marked

    def _work(self, context: Context, transaction: Transaction) -> bool:
        session = transaction.session(self.session_id)
        if session is None or session.broken:
            return False
        quarantine(context, transaction, session, context.now)
        return True


class VerificationObserver(Protocol):
    """Receives metrics and log events of the verification."""

    def chain_failed(self) -> None:
        """Count a chain that did not verify."""

    def log(self, event: str, **members: Any) -> None:  # noqa: ANN401 - whatever a log line holds
        """Write a line to the log."""


class VerifierSupervisor:
    """Runs the verifier of a home, or follows the service that does; quarantines sessions with broken chains."""

    def __init__(self, governor: UseCaseRunner, home: str, observer: VerificationObserver) -> None:
        """Create the supervisor for a service on `home`; `start` starts it."""
        self.state = VerificationState()
        self.state.on_broken = self._note
        self._governor = governor
        self._home = home
        self._observer = observer
        self._stopping = threading.Event()
        self._reading, self._writing = os.pipe()
        # Breaks that are not quarantined yet.
        self._waiting: deque[BrokenChainFound] = deque()
        self._statements: deque[float] = deque()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="verification", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the verifier, if this service runs it."""
        self._stopping.set()
        self._wake()
        if self._thread.ident is not None:
            self._thread.join()
        for fd in (self._reading, self._writing):
            os.close(fd)

    @property
    def pid(self) -> int | None:
        """Return the process id of the verifier, if this service runs it."""
        child = self._child
        return None if child is None else child.pid

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._writing, b"x")

    def _note(self, found: BrokenChainFound) -> None:
        self._waiting.append(found)
        self._wake()

    def _run(self) -> None:
        # The service answers its first requests before another process competes with it for the processor.
        self._pause(_BEGIN_S)
        while not self._stopping.is_set():
            try:
                with open_home(Path(self._home), create=False) as home, home.folder(_FOLDER) as folder:
                    try:
                        with folder.locked(_LOCK, wait=False):
                            self._hold(folder)
                    except LedgerInUse:
                        self.state.follow(load_snapshot(home))
            except (RemitError, OSError) as error:
                self.state.restarted(f"the verifier cannot be started: {error}")
            self._quarantine()
            self._wait(_FOLLOW_S)

    def _pause(self, seconds: float) -> None:
        """Wait for some time, quarantining sessions that are reported broken in the meantime."""
        until = time.monotonic() + seconds
        while not self._stopping.is_set() and (left := until - time.monotonic()) > 0:
            self._wait(left)
            self._quarantine()

    def _wait(self, seconds: float, *others: int) -> list[int]:
        """Wait for a wake-up or for one of the descriptors; return the descriptors that are readable."""
        ready, _, _ = select.select([self._reading, *others], [], [], seconds)
        if self._reading in ready:
            os.read(self._reading, 4096)
        return [fd for fd in ready if fd != self._reading]

    def _hold(self, folder: Home) -> None:
        """Run the verifier, restarting it when it ends, until the service stops."""
        delay = 0.0
        while not self._stopping.is_set():
            begun = time.monotonic()
            problem = self._supervise(folder)
            if self._stopping.is_set():
                return
            delay = _FIRST_DELAY_S if time.monotonic() - begun > _SETTLED_S else min(_LONGEST_DELAY_S, delay * 2 or 1.0)
            self._observer.log("verifier_stopped", why=problem, again_in_s=delay)
            self.state.restarted(f"the verifier has stopped and is started again: {problem}")
            self._publish(folder)
            self._pause(delay)

    def _supervise(self, folder: Home) -> str:
        """Run one verifier process until it ends, and return why it has ended."""
        words = [sys.executable, "-P", "-m", _MODULE, self._home]
        child = subprocess.Popen(  # noqa: S603 - our own program, with the path of the home
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        self._child = child
        try:
            return self._listen(child, folder)
        finally:
            # It only reads, so it can be ended at any moment. The ledger's files are closed when it is gone.
            child.kill()
            child.wait()
            self._child = None
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()

    def _listen(self, child: "subprocess.Popen[bytes]", folder: Home) -> str:
        """Apply the reports of a verifier until it ends."""
        assert child.stdout is not None  # noqa: S101 - a pipe, by the call that made it
        fd, pending, published, problem = child.stdout.fileno(), b"", 0.0, ""
        while not self._stopping.is_set():
            if fd in self._wait(_PUBLISH_S, fd):
                data = os.read(fd, _MAX_LINE)
                if not data:
                    return problem or f"exit status {child.wait()}"
                *lines, pending = (pending + data).split(b"\n")
                try:
                    if len(pending) > _MAX_LINE:
                        raise msgspec.DecodeError("a line that is too long")
                    for message in map(_messages.decode, lines):
                        problem = message.said if isinstance(message, VerifierProblem) else problem
                        self.state.apply(message)
                except msgspec.MsgspecError as error:
                    return f"its report cannot be read: {error}"
            self._quarantine()
            if time.monotonic() - published >= _PUBLISH_S:
                published = time.monotonic()
                self._publish(folder)
        return ""

    def _publish(self, folder: Home) -> None:
        with suppress(RemitError, OSError):
            folder.replace(_FILE, json.dumps(msgspec.to_builtins(self.state.snapshot())).encode(), durable=False)

    def _quarantine(self) -> None:
        """Quarantine the sessions found broken; failed writes are retried later."""
        for _ in range(len(self._waiting)):
            found = self._waiting.popleft()
            try:
                newly = self._governor.run(Quarantine(found.session_id))
            except RemitError:
                self._waiting.append(found)
                return
            if newly:
                self._observer.chain_failed()
                self._observer.log("chain_broken", session=found.session_id, receipt=found.index + 1, fault=found.fault)
                self._declare(found)

    def _declare(self, found: BrokenChainFound) -> None:
        """Record a statement that the chain is broken, at most a fixed number per minute."""
        now = time.monotonic()
        while self._statements and now - self._statements[0] > 60:  # noqa: PLR2004 - a minute
            self._statements.popleft()
        if len(self._statements) >= _STATEMENTS:
            return
        self._statements.append(now)
        statement = RecordStatement(
            tool="remit.verify",
            target=found.session_id,
            report=structs.asdict(found),
            code=QUARANTINED,
            reason=f"the chain of the session is broken: {found.sentence}",
            counted=f"broken at receipt {found.index + 1}: {found.fault}",
        )
        with suppress(RemitError):
            self._governor.run(statement)
