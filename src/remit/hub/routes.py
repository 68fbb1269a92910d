"""Every route of the Hub, as a table."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from remit.hub.desk import RECEIPT_VIEW, Desk
from remit.hub.doors import HUB_SECURITY
from remit.schemas.hub import (
    CheckAnswer,
    ObserveAnswer,
    ObserveRequest,
    PublicReceiptAnswer,
    SignedReceiptAnswer,
    StartAnswer,
    StartRequest,
    StatusAnswer,
)
from remit.schemas.proxy import AttestAnswer, AttestRequest
from remit.schemas.shared import HealthAnswer
from remit.server.openapi import describe
from remit.server.routes import Plain, Request, Route
from remit.version import __version__

__all__ = ["Cookie", "Page", "PageDesk", "describe_hub", "hub_routes", "table_of_routes"]

Page: TypeAlias = Callable[[Request], Awaitable[Plain]]
# Makes the header that lets a browser see all pages.
Cookie: TypeAlias = Callable[[], tuple[bytes, bytes]]
_HTML: Final = "text/html"
_JSON: Final = "application/json"
_METRICS: Final = "text/plain"
_NOTHING: Final = b"{}"


class PageDesk(Protocol):
    """Who makes the pages of the dashboard."""

    async def overview(self, ask: Request) -> Plain:
        """Show whether anything is wrong, what agents do, and what was refused."""

    async def sessions(self, ask: Request) -> Plain:
        """List the sessions."""

    async def session(self, ask: Request) -> Plain:
        """Show one session and its chain."""

    async def receipt(self, ask: Request) -> Plain:
        """Show one receipt."""

    async def denials(self, ask: Request) -> Plain:
        """Show the reasons of denials."""

    async def denials_of(self, ask: Request) -> Plain:
        """List the denials of one reason."""


def hub_routes(desk: Desk, pages: PageDesk, cookie: Cookie, metrics: Page, openapi: Page) -> list[Route]:
    """Return the routes that lead to `desk` and `pages`; `cookie` lets whoever has brought the token see all pages.

    The other two are the business of neither desk.
    """

    async def enter(ask: Request) -> Plain:
        page = await pages.overview(ask)
        return page._replace(headers=(*page.headers, cookie()))

    return [
        Route("GET", "/health", desk.health, HealthAnswer, "Is the Hub there", access="open"),
        Route("GET", "/healthz", desk.health, HealthAnswer, "Is the Hub there", access="open"),
        Route("GET", "/v1/status", desk.status, StatusAnswer, "How the Hub stands"),
        Route("GET", "/v1/export", desk.export, _JSON, "Everything that the Hub holds"),
        Route("POST", "/v1/sessions/start", desk.start, StartAnswer, "Start or find a session", StartRequest),
        Route("POST", "/v1/events/observe", desk.observe, ObserveAnswer, "Take an event in", ObserveRequest),
        Route("POST", "/v1/policy/check", desk.check, CheckAnswer, "What would be decided", ObserveRequest),
        Route(
            "POST",
            "/v1/sessions/{ardur_session_id}/attest",
            desk.attest,
            AttestAnswer,
            "Attest a session",
            AttestRequest,
            without_body=_NOTHING,
        ),
        Route(
            "GET",
            "/v1/receipts/{receipt_id}",
            desk.receipt,
            SignedReceiptAnswer,
            "One receipt, in full or as its public view",
            choices=(RECEIPT_VIEW,),
            also=(PublicReceiptAnswer,),
        ),
        Route("GET", "/", enter, _HTML, "The dashboard", access="page"),
        Route("GET", "/dashboard", enter, _HTML, "The dashboard", access="page"),
        Route("GET", "/dashboard/overview", pages.overview, _HTML, "The dashboard", access="view"),
        Route("GET", "/dashboard/sessions", pages.sessions, _HTML, "The sessions", access="view"),
        Route("GET", "/dashboard/sessions/{session_id}", pages.session, _HTML, "One session", access="view"),
        Route("GET", "/dashboard/receipts/{receipt_id}", pages.receipt, _HTML, "One receipt", access="view"),
        Route("GET", "/dashboard/denials", pages.denials, _HTML, "The reasons of denials", access="view"),
        Route("GET", "/dashboard/denials/{code}", pages.denials_of, _HTML, "Denials of one reason", access="view"),
        Route("GET", "/v1/metrics", metrics, _METRICS, "Metrics for Prometheus"),
        Route("GET", "/v1/openapi.json", openapi, _JSON, "This description"),
    ]


def table_of_routes() -> list[Route]:
    """Return the routes for those who only read about them: nobody is at the desks."""

    async def nothing(ask: Request) -> Plain:  # noqa: ARG001 - nobody asks
        return Plain(b"", _METRICS)

    class Empty:
        overview = sessions = session = receipt = denials = denials_of = staticmethod(nothing)

    return hub_routes(Desk.__new__(Desk), Empty(), lambda: (b"", b""), nothing, nothing)


def describe_hub(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI document of the Hub."""
    return describe(
        routes,
        title="Remit Personal Hub",
        summary="What adapters of this machine report is judged, receipted and shown to its user.",
        version=__version__,
        security=HUB_SECURITY,
    )
