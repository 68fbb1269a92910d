"""How far each chain was verified: in the background, a slice at a time, and only while somebody looks.

Keeps three invariants. What `look` calls verified was read from the first receipt on, by the rules of an attestation,
at a moment that it names: neither a bookmark nor an earlier pass is believed for long, because a ledger can be changed
at any time. A break that was found stays found, whoever found it. And decisions keep their speed: a slice is short, and
is followed by a pause of the same length. Nothing is written here: quarantine is for `governor/attest.py`.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from remit.claims.attestation import Tally
from remit.errors import BrokenChain
from remit.governor.attest import Verified, verify_on
from remit.governor.means import Keys
from remit.ledger.port import Reader
from remit.ledger.records import Session

__all__ = ["Health", "Progress"]

_SLICE: Final = 50
_REMEMBERED: Final = 256
# How long after the last look a chain is still worked on.
_INTEREST_S: Final = 60.0
# How long a pass is believed: at least so long, and so many times as long as it took.
_BELIEVED_S: Final = 60.0
_BELIEVED_TIMES: Final = 10


class Progress(NamedTuple):
    """How many receipts of a chain were verified, of how many, and where it breaks, if it does.

    The first `whole` of them were read from the root on in one pass, which ended `at` that second of the wall; those
    after them were verified as they came. Before the first pass has ended, `at` is None.
    """

    verified: int
    length: int
    fault: BrokenChain | None = None
    whole: int = 0
    at: int | None = None

    @property
    def complete(self) -> bool:
        """Tell whether the whole chain was verified."""
        return self.fault is None and self.verified == self.length


class _Pass(NamedTuple):
    """A pass from the root on that is under way: how long it took up to the moment of its last slice."""

    verified: Verified
    seen: float
    took: float = 0.0


class _Done(NamedTuple):
    """A pass that has ended. What it found goes on with the chain; the next pass is due on the clock."""

    verified: Verified
    whole: int
    at: int
    due: float


class _Chain(NamedTuple):
    """What is known of a chain: by the last pass that has ended, and by the one that is under way."""

    going: _Pass | None
    done: _Done | None = None


class Health:
    """Verifies the chains that somebody looks at, one after the other. For any thread."""

    def __init__(
        self,
        reader: Reader,
        keys: Keys,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._reader = reader
        self._keys = keys
        self._clock = clock
        self._wall = wall
        self._known: OrderedDict[str, _Chain] = OrderedDict()
        # Never forgotten: what is broken is what somebody has to know.
        self._faults: dict[str, BrokenChain] = {}
        # The chains to work on, each with the moment up to which somebody cares; the first one's turn is next.
        self._wanted: OrderedDict[str, float] = OrderedDict()
        self._change = threading.Condition()
        self._stop = threading.Event()
        self._busy = False
        self._thread: threading.Thread | None = None

    def look(self, session: Session) -> Progress:
        """Return how far the chain of a session was verified by now, and see to it that the work goes on."""
        with self._change:
            chain = self._known.get(session.id)
            if chain is not None:
                self._known.move_to_end(session.id)
            if self._is_open(session, chain):
                self._want(session.id)
            return _progress(session, chain, self._faults.get(session.id))

    def report(self, session_id: str, fault: BrokenChain) -> None:
        """Take it that a chain is broken here, and see to it that the first place is found where it is."""
        with self._change:
            if self._keep(session_id, fault):
                self._known[session_id] = self._begun()
                self._want(session_id)

    def faults(self) -> dict[str, BrokenChain]:
        """Return the breaks that were found, by session."""
        with self._change:
            return dict(self._faults)

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
            except Exception:  # noqa: BLE001 - the edge of the thread: it goes on, and the next look asks again
                more = False
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
        with self._change:
            before = self._known.get(name)
            chain = self._due(name, before or self._begun())
        chain = self._further(session, chain)
        with self._change:
            # Whoever has reported a break meanwhile has begun another pass, which counts.
            if self._known.get(name) is before:
                self._known[name] = self._settled(session, chain)
                self._known.move_to_end(name)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
            return self._is_open(session, self._known.get(name))

    def _due(self, name: str, chain: _Chain) -> _Chain:
        """Return a chain with another pass begun, if the last one is too old to be believed."""
        stale = chain.going is None and chain.done is not None and self._clock() >= chain.done.due
        return chain._replace(going=self._begun().going) if stale and name not in self._faults else chain

    def _further(self, session: Session, chain: _Chain) -> _Chain:
        """Return a chain with a slice more: of the pass that is under way, and of what came after the last one."""
        going, done = chain
        if going is not None:
            verified = self._verified(session, going.verified)
            now = self._clock()
            # A pass that rests while nobody looks does not take longer for that.
            going = _Pass(verified, now, going.took + min(now - going.seen, _INTEREST_S))
        if done is not None and not _reached(done.verified, session):
            done = done._replace(verified=self._verified(session, done.verified))
        return _Chain(going, done)

    def _verified(self, session: Session, before: Verified) -> Verified:
        verified = verify_on(self._reader, session, self._keys.keyring(), before, limit=_SLICE)
        if verified.fault is not None:
            # Another process may have changed to a key that is not known here yet.
            verified = verify_on(self._reader, session, self._keys.refresh(), verified, limit=_SLICE)
        return verified

    def _settled(self, session: Session, chain: _Chain) -> _Chain:
        """Return what is known after a slice: a pass that has come to its end is done."""
        going, done = chain
        if going is not None and (going.verified.fault is not None or _reached(going.verified, session)):
            if going.verified.fault is not None:
                self._keep(session.id, going.verified.fault)
            due = self._clock() + max(_BELIEVED_S, _BELIEVED_TIMES * going.took)
            return _Chain(None, _Done(going.verified, _length(going.verified), int(self._wall()), due))
        if done is not None and done.verified.fault is not None and self._keep(session.id, done.verified.fault):
            # What lies before may have been changed as well since it was read.
            return self._begun()
        return chain

    def _begun(self) -> _Chain:
        return _Chain(_Pass(Verified(None, Tally(), None, 0), self._clock()))

    def _keep(self, name: str, fault: BrokenChain) -> bool:
        """Remember a break; tell whether it is the first in its chain that is known."""
        known = self._faults.get(name)
        if known is not None and known.index <= fault.index:
            return False
        self._faults[name] = fault
        return True

    def _is_open(self, session: Session, chain: _Chain | None) -> bool:
        """Tell whether there is anything to do for a chain."""
        if chain is not None and chain.going is not None:
            return True
        if session.id in self._faults:
            return False
        if chain is None or chain.done is None:
            return bool(session.length) or session.receipt_hash is not None
        return self._clock() >= chain.done.due or not _reached(chain.done.verified, session)


def _progress(session: Session, chain: _Chain | None, fault: BrokenChain | None) -> Progress:
    going, done = chain or _Chain(None)
    shown = done or going
    reached = min(_length(shown.verified), session.length) if shown else 0
    return Progress(reached, session.length, fault, done.whole if done else 0, done.at if done else None)


def _length(verified: Verified) -> int:
    return verified.head.length if verified.head else 0


def _reached(verified: Verified, session: Session) -> bool:
    """Tell whether a chain was verified up to where its session says that it ends."""
    last = verified.head.receipt_hash if verified.head else None
    return (_length(verified), last) == (session.length, session.receipt_hash)
