"""Parts that the proxy and the Hub share: the metrics and OpenAPI routes, the run file, ledger gauges, and closing."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Final, Protocol, TypeAlias

from remit.claims.types import encode
from remit.governor.verification import VerificationState
from remit.ledger.home import open_home
from remit.ledger.store import LedgerReader
from remit.server.routes import BytesResponse, Request, Route
from remit.server.run_files import ServiceName, run_file
from remit.server.telemetry import Metrics

# The commands that stop a service wait for five seconds: this long for requests in flight, and this long for closing.
DRAIN_S: Final = 3.0
_CLOSING_S: Final = 1.5

_Handler: TypeAlias = Callable[[Request], Awaitable[BytesResponse]]


class Closeable(Protocol):
    """A part of a service that is closed when the service stops."""

    def close(self) -> None:
        """Finish pending work, and release resources."""


def close_all(*parts: Closeable) -> None:
    """Close the parts in this order. If one hangs, on a disk or a collector, stop waiting: the process ends next."""

    def close() -> None:
        for part in parts:
            part.close()

    closing = Thread(target=close, daemon=True)
    closing.start()
    closing.join(_CLOSING_S)


@contextmanager
def announce(
    home: str, service: ServiceName, url: str, options: dict[str, Any], ready: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Yield a function to call when the service is ready: it writes the run file, which is removed at the end."""
    with open_home(Path(home)) as opened, run_file(opened, service, url, options) as write:

        def announce_ready() -> None:
            write()
            ready(url)

        yield announce_ready


def set_ledger_gauges(metrics: Metrics, reader: LedgerReader, verification: VerificationState) -> None:
    """Read the gauges of the ledger from `reader` and `verification`."""

    def verified_at() -> float:
        summary = verification.summary
        return float(summary.verified_at or 0) if summary else 0.0

    metrics.set_gauges(
        open_sessions=reader.active_session_count,
        kill_switch=lambda: reader.ledger_state().kill_switch,
        broken_sessions=reader.broken_count,
        verified_at=verified_at,
    )


def build_routes(
    make_routes: Callable[[_Handler, _Handler], list[Route]],
    metrics: Metrics,
    describe: Callable[[list[Route]], dict[str, Any]],
) -> list[Route]:
    """Return the routes that `make_routes` makes with the handlers of the metrics and of the OpenAPI document."""

    async def get_metrics(request: Request) -> BytesResponse:  # noqa: ARG001
        return BytesResponse(*await asyncio.get_running_loop().run_in_executor(None, metrics.render))

    async def get_description(request: Request) -> BytesResponse:  # noqa: ARG001
        return description

    routes = make_routes(get_metrics, get_description)
    description = BytesResponse(encode(describe(routes)), "application/json")
    return routes
