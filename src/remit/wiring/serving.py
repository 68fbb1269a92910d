"""What every service of ours is put together with: pages that all get alike, a note that it runs, and its end."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Final, Protocol, TypeAlias

from remit.claims.shapes import encode
from remit.governor.verification import VerificationState
from remit.ledger.home import open_home
from remit.ledger.port import Reader
from remit.server.record import ServiceName, noted
from remit.server.routes import Plain, Request, Route
from remit.server.telemetry import Metrics

__all__ = ["FINISHING_S", "Closing", "close_all", "noted_in", "watch_ledger", "with_pages"]

# Those who stop a service wait for five seconds: so long for what was asked, and so long for closing.
FINISHING_S: Final = 3.0
_CLOSING_S: Final = 1.5

_Page: TypeAlias = Callable[[Request], Awaitable[Plain]]


class Closing(Protocol):
    """A part that is let go of in the end."""

    def close(self) -> None:
        """Finish, and let go."""


def close_all(*parts: Closing) -> None:
    """Let go of the parts; one that hangs, on a disk or a collector, is left to itself: the process ends next."""

    def close() -> None:
        for part in parts:
            part.close()

    closing = Thread(target=close, daemon=True)
    closing.start()
    closing.join(_CLOSING_S)


@contextmanager
def noted_in(
    home: str, service: ServiceName, url: str, asked: dict[str, Any], ready: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Give what is called when a service is ready; commands find it by the home from then on, while it runs."""
    with open_home(Path(home)) as opened, noted(opened, service, url, asked) as note:

        def tell() -> None:
            note()
            ready(url)

        yield tell


def watch_ledger(metrics: Metrics, reader: Reader, verification: VerificationState) -> None:
    """Have the metrics say how the ledger is, whenever they are read."""

    def verified_at() -> float:
        summary = verification.summary
        return float(summary.verified_at or 0) if summary else 0.0

    metrics.watch(
        open_sessions=reader.open_sessions,
        kill_switch=lambda: reader.switches().kill_switch,
        broken_sessions=reader.broken_count,
        verified_at=verified_at,
    )


def with_pages(
    routes_for: Callable[[_Page, _Page], list[Route]],
    metrics: Metrics,
    describe: Callable[[list[Route]], dict[str, Any]],
) -> list[Route]:
    """Return the routes that `routes_for` makes with the two pages that everyone gets alike."""

    async def show_metrics(request: Request) -> Plain:  # noqa: ARG001
        return Plain(*await asyncio.get_running_loop().run_in_executor(None, metrics.render))

    async def show_description(request: Request) -> Plain:  # noqa: ARG001
        return description

    routes = routes_for(show_metrics, show_description)
    description = Plain(encode(describe(routes)), "application/json")
    return routes
