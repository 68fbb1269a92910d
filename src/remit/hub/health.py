"""How far each chain was verified: in the background, a slice at a time, and only while somebody looks.

Keeps two invariants. What `look` calls verified was verified from the signed bookmark on, by the rules of an
attestation; a break that was found stays found. And decisions keep their speed: a slice is short, and is followed by a
pause of the same length. Nothing is written here: quarantine is for `governor/attest.py`.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from remit.errors import BrokenChain, RemitError
from remit.governor.attest import Verified, verified_before, verify_on
from remit.governor.means import Keys
from remit.ledger.port import Reader
from remit.ledger.records import Session

__all__ = ["Health", "Progress"]

_SLICE: Final = 50
_REMEMBERED: Final = 256
# How long after the last look a chain is still worked on.
_INTEREST_S: Final = 60.0


class Progress(NamedTuple):
    """How many receipts of a chain were verified, of how many, and where it breaks, if it does."""

    verified: int
    length: int
    fault: BrokenChain | None = None

    @property
    def complete(self) -> bool:
        """Tell whether the whole chain was verified."""
        return self.fault is None and self.verified == self.length


class Health:
    """Verifies the chains that somebody looks at, one after the other. For any thread."""

    def __init__(self, reader: Reader, keys: Keys, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._keys = keys
        self._clock = clock
        self._known: OrderedDict[str, Verified] = OrderedDict()
        # The chains to work on, each with the moment up to which somebody cares; the first one's turn is next.
        self._wanted: OrderedDict[str, float] = OrderedDict()
        self._change = threading.Condition()
        self._stop = threading.Event()
        self._busy = False
        self._thread: threading.Thread | None = None

    def look(self, session: Session) -> Progress:
        """Return how far the chain of a session was verified by now, and see to it that the work goes on."""
        with self._change:
            known = self._known.get(session.id)
            if known is not None:
                self._known.move_to_end(session.id)
            if not _finished(known, session):
                self._want(session.id)
        reached = known.head.length if known and known.head else 0
        return Progress(min(reached, session.length), session.length, known.fault if known else None)

    def faults(self) -> dict[str, BrokenChain]:
        """Return the breaks that were found, by session."""
        with self._change:
            return {name: known.fault for name, known in self._known.items() if known.fault is not None}

    def rest(self, timeout_s: float) -> bool:
        """Wait until there is nothing to do; tell whether it came to that."""
        with self._change:
            return self._change.wait_for(lambda: not self._wanted and not self._busy, timeout_s)

    def close(self) -> None:
        """Stop after the slice that is under way."""
        self._stop.set()
        with self._change:
            self._wanted.clear()
            self._change.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _want(self, name: str) -> None:
        if self._stop.is_set():
            return
        self._wanted[name] = self._clock() + _INTEREST_S
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="chain-health", daemon=True)
            self._thread.start()
        self._change.notify_all()

    def _work(self) -> None:
        while (name := self._next()) is not None:
            began = time.perf_counter()
            try:
                more = self._verify_slice(name)
            except RemitError:
                more = False  # the ledger cannot be read just now: the next look asks again
            took = time.perf_counter() - began
            with self._change:
                self._busy = False
                if not more:
                    self._wanted.pop(name, None)
                self._change.notify_all()
            self._stop.wait(took)

    def _next(self) -> str | None:
        """Wait for a chain that somebody cares for; None when all is over."""
        with self._change:
            while not self._stop.is_set():
                now = self._clock()
                while self._wanted:
                    name, until = next(iter(self._wanted.items()))
                    if now <= until:
                        self._wanted.move_to_end(name)
                        self._busy = True
                        return name
                    del self._wanted[name]
                self._change.notify_all()
                self._change.wait()
        return None

    def _verify_slice(self, name: str) -> bool:
        """Verify a little more of one chain; tell whether there is more to do."""
        session = self._reader.session(name)
        if session is None:
            return False
        keyring = self._keys.keyring()
        verified = self._known.get(name) or verified_before(self._reader, session, keyring)
        verified = verify_on(self._reader, session, keyring, verified, limit=_SLICE)
        if verified.fault is not None:
            # Another process may have changed to a key that is not known here yet.
            verified = verify_on(self._reader, session, self._keys.refresh(), verified, limit=_SLICE)
        with self._change:
            self._known[name] = verified
            self._known.move_to_end(name)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return not _finished(verified, session)


def _finished(known: Verified | None, session: Session) -> bool:
    """Tell whether nothing is left to verify: all of it was, or it breaks."""
    if known is None:
        return not session.length and session.receipt_hash is None
    if known.fault is not None:
        return True
    length, last = (known.head.length, known.head.receipt_hash) if known.head else (0, None)
    return (length, last) == (session.length, session.receipt_hash)
