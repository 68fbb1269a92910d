"""The limits of a server: sizes, counts and timeouts; and the limiter of its connections."""

import resource
from collections.abc import Iterable
from itertools import chain, islice
from typing import Final, NamedTuple, Protocol, final

# File descriptors that a service needs besides its connections: the ledger, threads, logs, and a reserve.
RESERVED_FILES: Final = 48
# Connections that are compared to choose one to close, oldest first. Bounds the cost when there is a flood of them.
_COMPARED: Final = 64


class Limits(NamedTuple):
    """The limits of one server. Times are in seconds."""

    target_bytes: int = 8 * 1024
    header_bytes: int = 16 * 1024
    header_fields: int = 100
    body_bytes: int = 1024 * 1024
    # Pipelined requests of one connection.
    unanswered: int = 8

    # How often timeouts are checked: each of the following can take that much longer.
    watch_s: float = 0.5
    handshake_s: float = 9.0
    # From the first byte, or from the start of the connection, to the end of the headers; and from there to the end of
    # the body.
    header_s: float = 9.0
    body_s: float = 29.0
    # A body must arrive at this rate, after an initial grace period.
    body_bytes_per_s: int = 1024
    body_patience_s: float = 3.0
    idle_s: float = 14.0
    # How long a client may leave a response unread; and after which time it may be closed to make room for others.
    send_s: float = 30.0
    stalled_s: float = 1.0
    # How long, and how much, a client may go on sending after the last response.
    linger_s: float = 1.0
    linger_bytes: int = 16 * 1024 * 1024
    stop_s: float = 4.0

    connections: int = 1024
    connections_per_peer: int = 64


def most_connections(limit: int) -> int:
    """Return `limit`, reduced to what the limit of open files allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(4, min(limit, soft - RESERVED_FILES))


class Limited(Protocol):
    """The members of a connection that the limiter uses."""

    since: float

    @property
    def peer(self) -> str:
        """Return the address of the client."""

    @property
    def is_busy(self) -> bool:
        """Return whether a request was read in full, has no response yet, and its client reads."""

    @property
    def is_stalled(self) -> bool:
        """Return whether the client does not read what was sent to it."""

    @property
    def is_authenticated(self) -> bool:
        """Return whether a token of the client was accepted."""

    def abort(self) -> None:
        """Close at once."""


@final
class ConnectionLimiter:
    """Limits the number of connections, in total and per peer.

    An idle connection never keeps a new one out. If there is no room, one is closed: first one whose client does not
    read, then the longest idle one without an accepted token, then the longest idle one. A request that was read in
    full, of a client that reads, is never cut off. The cost does not grow with the number of connections without a
    token.
    """

    __slots__ = ("_connections", "_most", "_most_per_peer")

    def __init__(self, most: int, most_per_peer: int) -> None:
        self._most = most
        self._most_per_peer = most_per_peer
        self._connections: dict[str, dict[Limited, None]] = {}

    def __len__(self) -> int:
        """Return the number of connections."""
        return sum(map(len, self._connections.values()))

    def admit(self, connection: Limited) -> bool:
        """Count a connection; return False if there is no room and none could be made."""
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
        """Do not count a connection any more."""
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
