"""What use cases work with, and the steps they are made of.

A use case is a value with typed members. Its `steps` is a generator that asks for what takes time: work for the ledger,
or a computation aside. It never waits itself, so the same use case serves threads and event loops: see `governor.py`.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from remit.claims.keys import Keyring, SigningKey
from remit.claims.passport import Passport, verify_passport
from remit.governor.clock import Clock
from remit.ledger.port import Reader, Session, Switches, Work
from remit.policy.engines import Engine
from remit.policy.files import Files

__all__ = ["Aside", "Commit", "Keys", "Live", "Means", "Steps", "UseCase"]

_MAX_LIVE: Final = 4096

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Commit(NamedTuple):
    """Ask for work to be done by the ledger; the answer comes when it is durable."""

    work: Work[Any]
    alone: bool = False


class Aside(NamedTuple):
    """Ask for something that takes long, and must not keep an event loop waiting."""

    compute: Callable[[], Any]


Steps: TypeAlias = Generator[Commit | Aside, Any, _T]


class UseCase(Protocol[_T_co]):
    """One thing that the service does."""

    def steps(self, means: "Means") -> Steps[_T_co]:
        """Go through the steps and return the answer."""


class Keys(Protocol):
    """The keys: those that sign, and those that are believed."""

    def signing(self, kid: str) -> SigningKey:
        """Return the private key of this id."""

    def keyring(self) -> Keyring:
        """Return the keys that are believed."""


class Live(NamedTuple):
    """A session as it was last seen, with its passport read."""

    session: Session
    passport: Passport
    switches: Switches


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
    live: dict[str, Live] = field(default_factory=dict)

    def remember(self, session: Session, passport: Passport, switches: Switches) -> Live:
        """Keep how a session stands, for the next call to be judged by; the ledger compares before it counts."""
        known = self.live.get(session.id)
        if known is not None and known.session.length > session.length:
            return known  # an answer that was overtaken by a later one
        if known is None and len(self.live) >= _MAX_LIVE:
            del self.live[next(iter(self.live))]
        found = self.live[session.id] = Live(session, passport, switches)
        return found

    def passport_of(self, session: Session) -> Passport:
        """Return the passport of a session, verified as of its start: that it has expired since changes nothing."""
        known = self.live.get(session.id)
        if known is not None:
            return known.passport
        return verify_passport(session.passport, self.keys.keyring(), now=session.started_ms // 1000)

    def new_id(self, kind: str) -> str:
        """Return an id that nobody has used."""
        return f"{kind}:{self.entropy(16).hex()}"
