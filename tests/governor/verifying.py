"""A verifier over the ledger of a test, which is asked for its passes one by one and never waits."""

from collections.abc import Callable

from remit.claims.attestation import Tally
from remit.claims.keys import Keyring
from remit.errors import BrokenChain
from remit.governor.attest import ChainVerification, verify_from
from remit.governor.verification import Message
from remit.governor.verifier import Verifier
from remit.ledger.store import LedgerReader
from tests.governor.world import Service, SetClock

__all__ = ["StillPace", "from_the_root", "verifier_of"]


class StillPace:
    """The pace of a verifier by the clock of a test: a pause is due after so many steps, and takes no time."""

    def __init__(self, clock: SetClock, *, every: int = 10) -> None:
        self.clock = clock
        self.every = every
        self.steps = 0
        self.pauses: list[bool] = []

    def wall(self) -> float:
        """Return the time of the test."""
        return self.clock.wall_ms / 1000

    def due(self) -> bool:
        """Tell whether a pause is due."""
        self.steps += 1
        return self.steps % self.every == 0

    def pause(self, *, full_speed: bool) -> None:
        """Remember that there was a pause."""
        self.pauses.append(full_speed)

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.clock.pass_s(int(seconds))


def from_the_root(reader: LedgerReader) -> Callable[[str, Keyring, Callable[[], None]], BrokenChain | None]:
    """Return the check of one session from its first receipt, for a ledger that is not in a file."""

    def check(session_id: str, keyring: Keyring, step: Callable[[], None]) -> BrokenChain | None:
        session = reader.session(session_id)
        if session is None:
            return None
        for _ in range(session.length):
            step()
        return verify_from(
            reader, session, keyring, ChainVerification(None, Tally(), None, 0), limit=session.length
        ).fault

    return check


def verifier_of(
    service: Service,
    tell: Callable[[Message], None],
    *,
    reader: LedgerReader | None = None,
    pace: StillPace | None = None,
) -> Verifier:
    """Return a verifier over what a service keeps, by its clock."""
    reading = reader or service.governor.context.reader
    return Verifier(reading, from_the_root(reading), tell, pace or StillPace(service.clock))
