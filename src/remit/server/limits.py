"""How much, how many and how long: the limits of a server as one value, and the limiter of its connections."""

import resource
from collections.abc import Iterable
from itertools import chain, islice
from typing import Final, NamedTuple, Protocol, final

__all__ = ["RESERVED_FILES", "ConnectionLimiter", "Limited", "Limits", "most_connections"]

# What a service needs beside its connections: the ledger, threads, logs, and some room.
RESERVED_FILES: Final = 48
# So many connections, the first that came, are compared; a flood of others costs nothing beyond.
_COMPARED: Final = 64


class Limits(NamedTuple):
    """The limits of one server. Times are in seconds."""

    target_bytes: int = 8 * 1024
    header_bytes: int = 16 * 1024
    header_fields: int = 100
    body_bytes: int = 1024 * 1024
    # Requests of one connection that wait for their answers.
    unanswered: int = 8

    # How often connections are looked after: what follows can take that much longer.
    watch_s: float = 0.5
    handshake_s: float = 9.0
    # From the first byte, or from the connection, to the end of the headers; and from there to the end of the body.
    header_s: float = 9.0
    body_s: float = 29.0
    # A body must arrive at this rate, after a moment to get going.
    body_bytes_per_s: int = 1024
    body_patience_s: float = 3.0
    idle_s: float = 14.0
    # How long a client may leave an answer lying, and after which time it makes room for others.
    send_s: float = 30.0
    stalled_s: float = 1.0
    # What is dropped of a client that goes on sending after all was said to it.
    linger_s: float = 1.0
    linger_bytes: int = 16 * 1024 * 1024
    stop_s: float = 4.0

    connections: int = 1024
    connections_per_peer: int = 64


def most_connections(asked: int) -> int:
    """Return how many connections fit the files that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(4, min(asked, soft - RESERVED_FILES))


class Limited(Protocol):
    """A connection, as far as the limiter is concerned."""

    since: float

    @property
    def peer(self) -> str:
        """Return the address that it comes from."""

    @property
    def is_busy(self) -> bool:
        """Tell whether a request was read in full, and it is up to us that it is not answered yet."""

    @property
    def is_stalled(self) -> bool:
        """Tell whether the client does not read what was sent to it."""

    @property
    def is_authenticated(self) -> bool:
        """Tell whether a request was authorized by a token."""

    def abort(self) -> None:
        """Close at once."""


@final
class ConnectionLimiter:
    """Bounds the connections, in all and of one peer.

    An idle connection never keeps another out. Where there is no room, a connection is closed whose client does not
    read, else the one that has waited longest among those without a token, else the one that has waited longest of all.
    A request that was read in full, from a client that reads, is never cut off. Making room costs the same however many
    connections without a token there are.
    """

    __slots__ = ("_connections", "_most", "_most_per_peer")

    def __init__(self, most: int, most_per_peer: int) -> None:
        self._most = most
        self._most_per_peer = most_per_peer
        self._connections: dict[str, dict[Limited, None]] = {}

    def __len__(self) -> int:
        """Return how many connections there are."""
        return sum(map(len, self._connections.values()))

    def admit(self, connection: Limited) -> bool:
        """Count a connection, and tell whether there was room or some could be made."""
        peers = self._connections.get(connection.peer, {})
        room = True
        if len(peers) >= self._most_per_peer:
            room = self._make_room(peers)
        elif len(self) >= self._most:
            room = self._make_room(chain.from_iterable(self._connections.values()))
        if room:
            self._connections.setdefault(connection.peer, {})[connection] = None
        return room

    def leave(self, connection: Limited) -> None:
        """Count a connection no longer."""
        peers = self._connections.get(connection.peer, {})
        peers.pop(connection, None)
        if not peers:
            self._connections.pop(connection.peer, None)

    def _make_room(self, connections: Iterable[Limited]) -> bool:
        connections = list(connections)
        first = (one for one in connections if (not one.is_authenticated or one.is_stalled) and not one.is_busy)
        longest = min(islice(first, _COMPARED), key=_order, default=None)
        if longest is None:
            longest = min((one for one in connections if not one.is_busy), key=_order, default=None)
        if longest is None:
            return False
        self.leave(longest)
        longest.abort()
        return True


def _order(connection: Limited) -> tuple[bool, float]:
    return not connection.is_stalled, connection.since
