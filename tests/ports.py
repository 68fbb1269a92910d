"""Ports for tests that must know one before anything listens on it; all others bind to port 0."""

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["refusing_port", "spare_port"]

# Below the ports that systems choose from for port 0 and for connections, and above the ones of well-known services.
_SPARE = range(20_000, 32_000)


@contextmanager
def refusing_port() -> Iterator[int]:
    """Give a port that refuses connections, and that nobody else can take meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def spare_port() -> int:
    """Return a free port that nobody else gets by chance."""
    for port in random.SystemRandom().sample(_SPARE, 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("no port is free")
