"""A constant answer from the proxy's own server software: `python -m bench.hello`, started by `bench.proxy`.

Protocol, limits and TLS are the proxy's. What is missing is what the proxy does itself: routes, session, judgement,
receipt and ledger. So the difference between the two is the price of evidence.
"""

import argparse
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from remit.ledger.home import open_home
from remit.proxy.authority import server_identity
from remit.proxy.tls import CertificateFiles
from remit.server.connection import Exchange
from remit.server.limits import Limits
from remit.server.server import Server, bind, listening_url, run_server

__all__ = ["main"]

HOST: Final = "127.0.0.1"
BODY: Final = b'{"ok":true}'
HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]


async def hello(exchange: Exchange) -> None:
    """Read the request to its end, and answer."""
    if await exchange.read_body(Limits().body_bytes) is not None:
        exchange.respond(200, HEADERS, BODY)


def credentials(home: Path) -> CertificateFiles:
    """Return a certificate of the home's authority, as the proxy would have it."""
    with open_home(home) as opened:
        identity = server_identity(opened, [HOST], datetime.now(UTC))
    return CertificateFiles(identity.cert, identity.key)


def main() -> None:
    """Serve until the process is asked to end; takes the proxy's options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--connections-per-peer", type=int, default=Limits().connections_per_peer)
    parser.add_argument("--insecure-http", action="store_true")
    parser.add_argument("--json", action="store_true", required=True)
    chosen = parser.parse_args()
    tls = None if chosen.insecure_http else credentials(chosen.home).context
    limits = Limits(connections_per_peer=chosen.connections_per_peer)
    listening = bind(HOST, chosen.port)
    ready = json.dumps({"listening": listening_url(listening, tls=tls is not None), "pid": os.getpid()})
    run_server(lambda: Server(hello, listening, limits=limits, tls=tls), lambda: print(ready, flush=True))


if __name__ == "__main__":
    main()
