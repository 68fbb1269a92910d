"""Room for connections: so many in all, and so many of one peer.

Invariants: an idle connection never keeps another out. Where there is no room, a connection is closed whose client does
not take its answer, else the one that has waited longest among those that have not shown a token yet, else the one that
has waited longest of all. A request that was asked in full, by a client that takes the answer, is never cut off. Making
room costs the same however many connections without a token there are.
"""

from collections.abc import Iterable
from itertools import chain, islice
from typing import Final, Protocol, final

__all__ = ["Admission", "Guest"]

# So many connections, the first that came, are compared; a flood of others costs nothing beyond.
_COMPARED: Final = 64


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
    def is_authenticated(self) -> bool:
        """Tell whether a request on it has shown a token that opened a route."""

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
            room = self._make_room(chain.from_iterable(self._guests.values()))
        if room:
            self._guests.setdefault(guest.peer, {})[guest] = None
        return room

    def leave(self, guest: Guest) -> None:
        """Let a connection go."""
        peers = self._guests.get(guest.peer, {})
        peers.pop(guest, None)
        if not peers:
            self._guests.pop(guest.peer, None)

    def _make_room(self, guests: Iterable[Guest]) -> bool:
        guests = list(guests)
        first = (guest for guest in guests if (not guest.is_authenticated or guest.is_stalled) and not guest.is_busy)
        longest = min(islice(first, _COMPARED), key=_order, default=None)
        if longest is None:
            longest = min((guest for guest in guests if not guest.is_busy), key=_order, default=None)
        if longest is None:
            return False
        self.leave(longest)
        longest.transport.abort()
        return True


def _order(guest: Guest) -> tuple[bool, float]:
    return not guest.is_stalled, guest.since
