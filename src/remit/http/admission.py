"""Room for connections: so many in all, and so many of one peer.

Keeps this invariant: whoever only keeps a connection open never keeps another out. Where there is no room, one that
leaves its answers lying is closed, else the one that has waited longest without having asked for anything; a request
that was asked in full, by someone who takes the answer, is never cut off.
"""

from typing import Protocol, final

__all__ = ["Admission", "Guest"]


class Guest(Protocol):
    """A connection, as far as this is concerned."""

    since: float

    @property
    def is_busy(self) -> bool:
        """Tell whether a request was asked in full, and it is up to us that it is not answered yet."""

    @property
    def is_stalled(self) -> bool:
        """Tell whether an answer was left lying."""

    @property
    def peer(self) -> str:
        """Return who it is from."""

    @property
    def transport(self) -> "_Closable":
        """Return what is closed."""


class _Closable(Protocol):
    def abort(self) -> None:
        """Close at once."""


@final
class Admission:
    """Who is in."""

    __slots__ = ("_guests", "_most", "_most_per_peer")

    def __init__(self, most: int, most_per_peer: int) -> None:
        self._most = most
        self._most_per_peer = most_per_peer
        self._guests: dict[str, dict[Guest, None]] = {}

    def admit(self, guest: Guest) -> bool:
        """Take a connection in, and tell whether there was room or some could be made."""
        peers = self._guests.get(guest.peer, {})
        room = True
        if len(peers) >= self._most_per_peer:
            room = self._make_room(peers)
        elif sum(map(len, self._guests.values())) >= self._most:
            room = self._make_room({other: None for guests in self._guests.values() for other in guests})
        if room:
            self._guests.setdefault(guest.peer, {})[guest] = None
        return room

    def leave(self, guest: Guest) -> None:
        """Let a connection go."""
        peers = self._guests.get(guest.peer, {})
        peers.pop(guest, None)
        if not peers:
            self._guests.pop(guest.peer, None)

    def _make_room(self, guests: dict[Guest, None]) -> bool:
        waiting = [guest for guest in guests if not guest.is_busy]
        if not waiting:
            return False
        longest = min(waiting, key=lambda guest: (not guest.is_stalled, guest.since))
        self.leave(longest)
        longest.transport.abort()
        return True
