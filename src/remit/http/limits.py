"""How much, how many and how long: the limits of a server, as one value."""

import resource
from typing import Final, NamedTuple

__all__ = ["RESERVED_FILES", "Limits", "most_connections"]

# What a service needs beside its connections: the ledger, threads, logs, and some room.
RESERVED_FILES: Final = 48


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
