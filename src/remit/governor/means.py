"""What use cases work with.

A use case is a value with typed members, and a coroutine `run`. It awaits work for the ledger and computations aside
through its `Means`, and nothing else, so the same use case serves threads and event loops: see `governor.py`.
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
from remit.ledger.port import Prepare, Reader, Work
from remit.ledger.records import Session
from remit.policy.engines import Engine
from remit.policy.files import Files

__all__ = ["Keys", "Means", "UseCase", "UseCaseRunner", "Waiting"]

_MAX_KNOWN: Final = 4096

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Waiting(Protocol):
    """How a use case waits for what takes time."""

    def transact(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> Awaitable[_T]:
        """Return what the ledger's work answers, once it is durable; see `Ledger.run`."""

    async def aside(self, compute: Callable[[], _T], *, fair_to: str = "") -> _T:
        """Return what takes long to compute, and must not keep an event loop waiting.

        `fair_to` is the session on whose account it is: one session gets so many of these at a time, and no more.
        """

    def quickly(self, compute: Callable[[], _T]) -> Awaitable[_T]:
        """Return what is quick to compute, unless a file system hangs: for that, too, no event loop waits."""

    def run(self, case: "UseCase[_T]", means: "Means") -> Coroutine[Any, Any, _T]:
        """Return the answer of a use case that is a part of another: from here, or from the process that runs it."""


class UseCase(Protocol[_T_co]):
    """One thing that the service does."""

    def run(self, means: "Means") -> Coroutine[Any, Any, _T_co]:
        """Do it, and return the answer."""


class Keys(Protocol):
    """The keys: those that sign, and those that are believed."""

    def signing(self, kid: str) -> SigningKey:
        """Return the private key of this id."""

    def keyring(self) -> Keyring:
        """Return the keys that are believed."""

    def refresh(self) -> Keyring:
        """Read again which keys are believed, and return them."""


@dataclass
class Means:
    """What use cases work with."""

    keys: Keys
    engines: Sequence[Engine]
    observers: Sequence[Engine]
    files: Files
    clock: Clock
    stopwatch: Callable[[], float]
    entropy: Callable[[int], bytes]
    reader: Reader
    # Where private keys are made and removed; only the process that signs has it.
    key_files: KeyFiles | None = None
    # Of the sessions that this process has looked at. A passport never changes, so neither does what is kept here.
    passports: dict[str, Passport] = field(default_factory=dict)
    # To whom sessions are bound that this process has looked at; this never changes either.
    holders: dict[str, str] = field(default_factory=dict)
    # The session that was active last for the key of a source; one that is over is found out when it is asked.
    sources: dict[str, str] = field(default_factory=dict)
    # Sessions whose last receipt was found to be genuine. What follows upon it is our own, or was compared with it.
    heads: dict[str, bool] = field(default_factory=dict)
    # By session: the id of the last receipt that this process made from a report, and its `timestamp` in milliseconds.
    timestamps: dict[str, tuple[str, int]] = field(default_factory=dict)
    # Sessions whose calls were refused, and at which rate they come.
    refused: RefusedSessions = field(default_factory=RefusedSessions)
    # Of one request: how it waits, and the moment that it is decided as of; see `at_one_moment`.
    waiting: Waiting = field(init=False, repr=False)
    now: Moment = field(init=False, repr=False)
    # Whether an engine beside the passport's own rules is shown how much is left.
    sees_budgets: bool = field(init=False)

    def __post_init__(self) -> None:
        self.sees_budgets = any(getattr(engine, "sees_budgets", True) for engine in self.engines[1:])

    def at_one_moment(self, waiting: Waiting) -> "Means":
        """Return these means for one request.

        It is verified, judged, recorded and committed as of `now`, also when its work runs again.
        """
        means = object.__new__(Means)
        # As `copy.copy` does, in a fifth of the time: this is done for every request.
        means.__dict__.update(self.__dict__)
        means.now = self.clock.now()
        means.waiting = waiting
        return means

    def transact(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> Awaitable[_T]:
        """Have the ledger do some work; see `Waiting`."""
        return self.waiting.transact(work, alone=alone, prepare=prepare)

    def aside(self, compute: Callable[[], _T], *, fair_to: str = "") -> Awaitable[_T]:
        """Compute what takes long; see `Waiting`."""
        return self.waiting.aside(compute, fair_to=fair_to)

    def quickly(self, compute: Callable[[], _T]) -> Awaitable[_T]:
        """Compute what is quick; see `Waiting`."""
        return self.waiting.quickly(compute)

    def run(self, case: "UseCase[_T]") -> Coroutine[Any, Any, _T]:
        """Have a use case done as a part of another; see `Waiting`."""
        return self.waiting.run(case, self)

    def verified(self, token: str, now_s: int) -> Passport:
        """Return the passport of a token that was kept; a key that is not known may have come in by another process."""
        try:
            return verify_passport(token, self.keys.keyring(), now=now_s, audiences=AUDIENCES)
        except KeyUnknown:
            return verify_passport(token, self.keys.refresh(), now=now_s, audiences=AUDIENCES)

    def receipt(self, token: str) -> SignedReceipt:
        """Return the receipt of a token that was kept, verified."""
        try:
            return verify_receipt(token, self.keys.keyring())
        except KeyUnknown:
            return verify_receipt(token, self.keys.refresh())

    def passport_of(self, session: Session) -> Passport:
        """Return the passport of a session, verified as of its start: that it has expired since changes nothing."""
        known = self.passports.get(session.id)
        if known is None:
            try:
                known = self.verified(session.passport, session.verified_at_s)
            except (TokenError, PassportError):
                raise StateCorrupt(
                    "the passport that ledger.db keeps of the session does not verify: remit ledger check"
                ) from None
            _remember(self.passports, session.id, value=known)
        return known

    def holder_of(self, session: Session) -> str:
        """Return to whom a session is bound."""
        _remember(self.holders, session.id, value=session.holder)
        return session.holder

    def note_source(self, key: str, session_id: str) -> None:
        """Remember which session belongs to the key of a source."""
        _remember(self.sources, key, value=session_id)

    def trust_head(self, session: Session) -> None:
        """Note that the last receipt of a session is genuine."""
        _remember(self.heads, session.id, value=True)

    def note_timestamp(self, session_id: str, receipt_id: str, at_ms: int) -> None:
        """Remember the `timestamp` of the last receipt of a session."""
        _remember(self.timestamps, session_id, value=(receipt_id, at_ms))

    def new_id(self, kind: str) -> str:
        """Return an id that nobody has used."""
        return f"{kind}:{self.entropy(16).hex()}"


class UseCaseRunner(Protocol):
    """Whatever runs use cases: a `Governor` in the process of the ledger, or a `RemoteGovernor` in a front."""

    means: Means

    def run(self, case: UseCase[_T]) -> _T:
        """Return the answer of a use case. Waits; for threads."""

    def arun(self, case: UseCase[_T]) -> Coroutine[Any, Any, _T]:
        """Return the answer of a use case. For an event loop, which it never keeps waiting."""

    def close(self) -> None:
        """Finish what was asked for."""


def _remember(known: dict[str, _T], name: str, *, value: _T) -> None:
    """Keep what is known under a name, and forget the oldest where there is much."""
    if len(known) >= _MAX_KNOWN:
        known.pop(next(iter(known)), None)
    known[name] = value
