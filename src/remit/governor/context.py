"""The context that use cases run in: keys, policy engines, clock, ledger reader and caches.

A use case is a dataclass with a coroutine method `run`. It awaits only methods of its `Context` (ledger transactions
and computations in worker threads), so the same use case runs on threads and on event loops: see `governor.py`.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from remit.claims.keys import Keyring, SigningKey
from remit.claims.passport import AUDIENCES, Passport, verify_passport
from remit.claims.receipt import SignedReceipt, verify_receipt
from remit.errors import KeyUnknown, PassportError, StateCorrupt, TokenError
from remit.governor.clock import Clock, Moment
from remit.governor.refused import RefusedSessions
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.records import Session
from remit.ledger.store import LedgerReader, Prepare, Work
from remit.policy.engines import Engine
from remit.policy.files import Files

_MAX_CACHED: Final = 4096

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Runtime(Protocol):
    """How a use case runs transactions and slow computations: blocking in a thread, or awaited on an event loop."""

    def transact(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> Awaitable[_T]:
        """Run `work` in a ledger transaction and return its result once it is durable; see `Ledger.run`."""

    async def to_thread(self, compute: Callable[[], _T], *, limit_key: str = "") -> _T:
        """Run a slow computation in a worker thread, so that it does not block the event loop.

        `limit_key` is the session it is done for, if any: the number of concurrent computations per session is limited.
        """

    def to_quick_thread(self, compute: Callable[[], _T]) -> Awaitable[_T]:
        """Run a computation that is quick unless a file system hangs, off the event loop."""

    def run(self, case: "UseCase[_T]", context: "Context") -> Coroutine[Any, Any, _T]:
        """Run a use case as part of another one, in this process or in the ledger process."""


class UseCase(Protocol[_T_co]):
    """An operation of the service."""

    def run(self, context: "Context") -> Coroutine[Any, Any, _T_co]:
        """Run the use case and return its result."""


class Keys(Protocol):
    """The signing keys, and the keyring of trusted keys."""

    def signing(self, kid: str) -> SigningKey:
        """Return the private key of this id."""

    def keyring(self) -> Keyring:
        """Return the trusted keys."""

    def refresh(self) -> Keyring:
        """Reload the trusted keys and return them."""


@dataclass
class Context:
    """The dependencies and caches of use cases."""

    keys: Keys
    engines: Sequence[Engine]
    observers: Sequence[Engine]
    files: Files
    clock: Clock
    stopwatch: Callable[[], float]
    entropy: Callable[[int], bytes]
    reader: LedgerReader
    # The private key files. Only the ledger process has them.
    key_files: KeyFiles | None = None
    # Verified passports by session id. A passport never changes, so entries never become stale.
    passports: dict[str, Passport] = field(default_factory=dict)
    # Certificate thumbprints by session id; they never change either.
    holders: dict[str, str] = field(default_factory=dict)
    # The last active session id by source key. Entries may be stale: the session may have ended since.
    sources: dict[str, str] = field(default_factory=dict)
    # Sessions whose last receipt this process has verified; it is not verified again before each append.
    heads: dict[str, bool] = field(default_factory=dict)
    # By session id: the last receipt that this process made from a report, and its `timestamp` in milliseconds.
    timestamps: dict[str, tuple[str, int]] = field(default_factory=dict)
    # Sessions that deny every call, with the rate of their calls.
    refused: RefusedSessions = field(default_factory=RefusedSessions)
    # Set for each request by `for_request`.
    runtime: Runtime = field(init=False, repr=False)
    now: Moment = field(init=False, repr=False)
    # Whether an engine other than the passport's rules sees the remaining budget.
    sees_budgets: bool = field(init=False)

    def __post_init__(self) -> None:
        self.sees_budgets = any(getattr(engine, "sees_budgets", True) for engine in self.engines[1:])

    def for_request(self, runtime: Runtime) -> "Context":
        """Return a copy for one request.

        The request is verified, judged, recorded and committed as of `now`, even if its transaction is retried.
        """
        context = object.__new__(Context)
        # Equivalent to `copy.copy` in a fifth of the time; this runs for every request.
        context.__dict__.update(self.__dict__)
        context.now = self.clock.now()
        context.runtime = runtime
        return context

    def transact(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> Awaitable[_T]:
        """Run `work` in a ledger transaction; see `Runtime`."""
        return self.runtime.transact(work, alone=alone, prepare=prepare)

    def to_thread(self, compute: Callable[[], _T], *, limit_key: str = "") -> Awaitable[_T]:
        """Run a slow computation in a worker thread; see `Runtime`."""
        return self.runtime.to_thread(compute, limit_key=limit_key)

    def to_quick_thread(self, compute: Callable[[], _T]) -> Awaitable[_T]:
        """Run a quick computation off the event loop; see `Runtime`."""
        return self.runtime.to_quick_thread(compute)

    def run(self, case: "UseCase[_T]") -> Coroutine[Any, Any, _T]:
        """Run a use case as part of another one; see `Runtime`."""
        return self.runtime.run(case, self)

    def verified(self, token: str, now_s: int) -> Passport:
        """Verify a stored passport as of `now_s`. Reloads the keys once, as another process may have added one."""
        try:
            return verify_passport(token, self.keys.keyring(), now=now_s, audiences=AUDIENCES)
        except KeyUnknown:
            return verify_passport(token, self.keys.refresh(), now=now_s, audiences=AUDIENCES)

    def receipt(self, token: str) -> SignedReceipt:
        """Verify a stored receipt. Reloads the keys once, as another process may have added one."""
        try:
            return verify_receipt(token, self.keys.keyring())
        except KeyUnknown:
            return verify_receipt(token, self.keys.refresh())

    def passport_of(self, session: Session) -> Passport:
        """Return the passport of a session, verified as of the start of the session; cached."""
        known = self.passports.get(session.id)
        if known is None:
            try:
                known = self.verified(session.passport, session.verified_at_s)
            except (TokenError, PassportError):
                raise StateCorrupt(
                    "the passport of the session in ledger.db does not verify; run: remit ledger check"
                ) from None
            _remember(self.passports, session.id, value=known)
        return known

    def holder_of(self, session: Session) -> str:
        """Return the certificate thumbprint that a session is bound to, or an empty string, and cache it."""
        _remember(self.holders, session.id, value=session.holder)
        return session.holder

    def note_source(self, key: str, session_id: str) -> None:
        """Cache the current session of a source key."""
        _remember(self.sources, key, value=session_id)

    def trust_head(self, session: Session) -> None:
        """Record that the last receipt of a session has been verified."""
        _remember(self.heads, session.id, value=True)

    def note_timestamp(self, session_id: str, receipt_id: str, at_ms: int) -> None:
        """Cache the `timestamp` of the last receipt of a session."""
        _remember(self.timestamps, session_id, value=(receipt_id, at_ms))

    def new_id(self, kind: str) -> str:
        """Return a new random id with the prefix `kind`."""
        return f"{kind}:{self.entropy(16).hex()}"


class UseCaseRunner(Protocol):
    """Runs use cases: a `Governor` in the ledger process, or a `RemoteGovernor` in a front process."""

    context: Context

    def run(self, case: UseCase[_T]) -> _T:
        """Run a use case and return its result. Blocks the calling thread."""

    def arun(self, case: UseCase[_T]) -> Coroutine[Any, Any, _T]:
        """Run a use case on an event loop, without blocking it."""

    def close(self) -> None:
        """Finish pending work and release resources."""


def _remember(cache: dict[str, _T], name: str, *, value: _T) -> None:
    """Add an entry to a cache, evicting the oldest one if it is full."""
    if len(cache) >= _MAX_CACHED:
        cache.pop(next(iter(cache)), None)
    cache[name] = value
