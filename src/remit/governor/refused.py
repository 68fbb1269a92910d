"""The sessions that deny every call, and the rate of their calls: a bounded table in the memory of one process."""

import threading
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from remit.claims.attestation import SessionState
from remit.governor.clock import Moment

MAX_PER_S: Final = 10
_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60_000
_MAX_SESSIONS: Final = 4096


class SkippedCalls(NamedTuple):
    """The number of calls of a session that were not evaluated, and since when."""

    calls: int
    since_ms: int


@dataclass(slots=True)
class _Entry:
    """A session: when its last calls were evaluated, and the calls skipped since the last receipt about them."""

    state: SessionState = "active"
    limited: bool = True
    evaluated_ms: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_PER_S))
    skipped: int = 0
    since_ms: int = 0
    reported_ms: int | None = None


class RefusedSessions:
    """The sessions that deny every call, as far as this process has seen, and the rate of their calls.

    At most 4096 sessions are kept; those without skipped calls to report are evicted first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sessions: dict[str, _Entry] = {}

    def note(self, session_id: str, state: SessionState, now: Moment, *, refused: bool) -> None:
        """Note whether a session denies every call, as of its last call."""
        with self._lock:
            entry = self.sessions.get(session_id)
            if entry is None:
                if not refused:
                    return
                self._make_room()
                entry = self.sessions[session_id] = _Entry()
                entry.evaluated_ms.append(now.mono_ms)
            entry.state, entry.limited = state, refused
            if not refused and not entry.skipped:
                del self.sessions[session_id]

    def _make_room(self) -> None:
        if len(self.sessions) >= _MAX_SESSIONS:
            idle = (name for name, entry in self.sessions.items() if not entry.skipped)
            self.sessions.pop(next(idle, next(iter(self.sessions))))

    def admits(self, session_id: str, now: Moment, skip_states: Collection[SessionState]) -> bool:
        """Return whether a call may be evaluated, and count it; not limited if its state is one of `skip_states`."""
        with self._lock:
            entry = self.sessions.get(session_id)
            if entry is None or not entry.limited or entry.state in skip_states:
                return True
            times = entry.evaluated_ms
            if len(times) < MAX_PER_S or now.mono_ms - times[0] >= _SECOND_MS:
                times.append(now.mono_ms)
                return True
            entry.since_ms = entry.since_ms if entry.skipped else now.wall_ms
            entry.skipped += 1
            return False

    def take(self, session_id: str, now: Moment, *, at_once: bool = False) -> SkippedCalls | None:
        """Return the skipped calls to report and mark them as reported; None if nothing is due."""
        with self._lock:
            entry = self.sessions.get(session_id)
            if entry is None or not entry.skipped:
                return None
            if not at_once and entry.reported_ms is not None and now.mono_ms - entry.reported_ms < _MINUTE_MS:
                return None
            skipped = SkippedCalls(entry.skipped, entry.since_ms)
            entry.skipped, entry.reported_ms = 0, now.mono_ms
            return skipped

    def put_back(self, session_id: str, skipped: SkippedCalls) -> None:
        """Add back calls that could not be reported."""
        with self._lock:
            entry = self.sessions.setdefault(session_id, _Entry())
            entry.skipped += skipped.calls
            entry.since_ms = skipped.since_ms

    def unreported(self) -> list[str]:
        """Return the sessions with skipped calls to report."""
        with self._lock:
            return [name for name, entry in self.sessions.items() if entry.skipped]
