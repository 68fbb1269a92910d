"""Every route of the Hub, as a table."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from remit.hub.auth import HUB_SECURITY
from remit.hub.handlers import RECEIPT_VIEW, HubHandlers
from remit.schemas.hub import (
    CheckAnswer,
    HubStartAnswer,
    HubStartRequest,
    ObserveAnswer,
    ObserveRequest,
    PublicReceiptAnswer,
    SignedReceiptAnswer,
    StatusAnswer,
)
from remit.schemas.proxy import AttestAnswer, AttestRequest
from remit.schemas.shared import HealthAnswer
from remit.server.openapi import describe
from remit.server.routes import BytesResponse, Request, Route
from remit.version import __version__

PageHandler: TypeAlias = Callable[[Request], Awaitable[BytesResponse]]
# Returns the `Set-Cookie` header that gives a browser access to all pages.
Cookie: TypeAlias = Callable[[], tuple[bytes, bytes]]
_HTML: Final = "text/html"
_JSON: Final = "application/json"
_METRICS: Final = "text/plain"
_EMPTY_OBJECT: Final = b"{}"


class DashboardPages(Protocol):
    """The interface of `DashboardHandlers`, so that describing the API does not import templates."""

    async def overview(self, request: Request) -> BytesResponse:
        """Show alerts, active sessions, and recent denials."""

    async def sessions(self, request: Request) -> BytesResponse:
        """List the sessions."""

    async def session(self, request: Request) -> BytesResponse:
        """Show one session and its chain."""

    async def receipt(self, request: Request) -> BytesResponse:
        """Show one receipt."""

    async def denials(self, request: Request) -> BytesResponse:
        """Show the denial codes, each with its number of denials."""

    async def denials_of(self, request: Request) -> BytesResponse:
        """List the denials with one code."""


def hub_routes(
    handlers: HubHandlers, pages: DashboardPages, cookie: Cookie, metrics: PageHandler, openapi: PageHandler
) -> list[Route]:
    """Return all routes of the Hub, except those of hooks.

    A client that opens the dashboard with the token in the query gets the `cookie` for the other pages.
    """

    async def overview_with_cookie(request: Request) -> BytesResponse:
        page = await pages.overview(request)
        return page._replace(headers=(*page.headers, cookie()))

    return [
        Route("GET", "/health", handlers.health, HealthAnswer, "Health check", access="open"),
        Route("GET", "/healthz", handlers.health, HealthAnswer, "Health check", access="open"),
        Route("GET", "/v1/status", handlers.status, StatusAnswer, "Status of the Hub"),
        Route("GET", "/v1/export", handlers.export, _JSON, "Export all sessions and receipts"),
        Route("POST", "/v1/sessions/start", handlers.start, HubStartAnswer, "Start or find a session", HubStartRequest),
        Route(
            "POST", "/v1/events/observe", handlers.observe, ObserveAnswer, "Judge and record an event", ObserveRequest
        ),
        Route(
            "POST",
            "/v1/policy/check",
            handlers.check,
            CheckAnswer,
            "Judge an event without recording it",
            ObserveRequest,
        ),
        Route(
            "POST",
            "/v1/sessions/{ardur_session_id}/attest",
            handlers.attest,
            AttestAnswer,
            "Attest a session",
            AttestRequest,
            without_body=_EMPTY_OBJECT,
        ),
        Route(
            "GET",
            "/v1/receipts/{receipt_id}",
            handlers.receipt,
            SignedReceiptAnswer,
            "One receipt, in full or as its public view",
            choices=(RECEIPT_VIEW,),
            also=(PublicReceiptAnswer,),
        ),
        Route("GET", "/", overview_with_cookie, _HTML, "The dashboard", access="page"),
        Route("GET", "/dashboard", overview_with_cookie, _HTML, "The dashboard", access="page"),
        Route("GET", "/dashboard/overview", pages.overview, _HTML, "The dashboard", access="view"),
        Route("GET", "/dashboard/sessions", pages.sessions, _HTML, "The sessions", access="view"),
        Route("GET", "/dashboard/sessions/{session_id}", pages.session, _HTML, "One session", access="view"),
        Route("GET", "/dashboard/receipts/{receipt_id}", pages.receipt, _HTML, "One receipt", access="view"),
        Route("GET", "/dashboard/denials", pages.denials, _HTML, "Denial codes", access="view"),
        Route("GET", "/dashboard/denials/{code}", pages.denials_of, _HTML, "Denials with one code", access="view"),
        Route("GET", "/v1/metrics", metrics, _METRICS, "Metrics for Prometheus"),
        Route("GET", "/v1/openapi.json", openapi, _JSON, "This OpenAPI document"),
    ]


def documented_routes() -> list[Route]:
    """Return all routes with stub handlers, to describe the API."""

    async def nothing(request: Request) -> BytesResponse:  # noqa: ARG001 - never called
        return BytesResponse(b"", _METRICS)

    class Empty:
        overview = sessions = session = receipt = denials = denials_of = staticmethod(nothing)

    return hub_routes(HubHandlers.__new__(HubHandlers), Empty(), lambda: (b"", b""), nothing, nothing)


def describe_hub(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI document of the Hub."""
    return describe(
        routes,
        title="Remit Personal Hub",
        summary="Judges events that adapters on this machine report, signs receipts, and shows them to the user.",
        version=__version__,
        security=HUB_SECURITY,
    )
