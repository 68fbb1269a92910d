"""Every route of the governance proxy, as a table."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from remit.proxy.handlers import ProxyHandlers
from remit.schemas.proxy import (
    AttestAnswer,
    AttestRequest,
    DelegateAnswer,
    DelegateRequest,
    EndRequest,
    EvaluateAnswer,
    EvaluateRequest,
    KillSwitchAnswer,
    KillSwitchRequest,
    ResultAnswer,
    ResultRequest,
    RevokeAnswer,
    RevokeRequest,
    SessionAnswer,
    StartAnswer,
    StartRequest,
)
from remit.schemas.shared import HealthAnswer, KeysAnswer
from remit.server.openapi import describe
from remit.server.routes import BytesResponse, Request, Route
from remit.version import __version__

PageHandler = Callable[[Request], Awaitable[BytesResponse]]
_METRICS = "text/plain"
_NOTHING = b"{}"


def proxy_routes(handlers: ProxyHandlers, metrics: PageHandler, openapi: PageHandler) -> list[Route]:
    """Return all routes of the proxy."""
    return [
        Route("POST", "/session/start", handlers.start, StartAnswer, "Start a session from a passport", StartRequest),
        Route("POST", "/evaluate", handlers.evaluate, EvaluateAnswer, "Decide on a tool call", EvaluateRequest),
        Route("POST", "/result", handlers.result, ResultAnswer, "Bind an outcome to its decision", ResultRequest),
        Route("POST", "/session/end", handlers.end, SessionAnswer, "End a session", EndRequest),
        Route(
            "POST",
            "/sessions/{session_id}/attest",
            handlers.attest,
            AttestAnswer,
            "Attest a session",
            AttestRequest,
            without_body=_NOTHING,
        ),
        Route("POST", "/delegate", handlers.delegate, DelegateAnswer, "Make a narrower passport", DelegateRequest),
        Route(
            "POST",
            "/revoke",
            handlers.revoke,
            RevokeAnswer,
            "Revoke a passport or a session",
            RevokeRequest,
            access="admin",
        ),
        Route(
            "POST",
            "/kill-switch",
            handlers.kill_switch,
            KillSwitchAnswer,
            "Revoke all sessions and refuse new ones, or allow new ones again",
            KillSwitchRequest,
            access="admin",
        ),
        Route("GET", "/health", handlers.health, HealthAnswer, "Health check", access="open"),
        Route("GET", "/healthz", handlers.health, HealthAnswer, "Health check", access="open"),
        Route("GET", "/.well-known/jwks.json", handlers.keys, KeysAnswer, "The public keys", access="open"),
        Route("GET", "/metrics", metrics, _METRICS, "Metrics for Prometheus"),
        Route("GET", "/openapi.json", openapi, "application/json", "This OpenAPI document"),
    ]


def documented_routes() -> list[Route]:
    """Return the routes with handlers that cannot be called, to describe the API."""

    async def nothing(request: Request) -> BytesResponse:  # noqa: ARG001 - never called
        return BytesResponse(b"", _METRICS)

    return proxy_routes(ProxyHandlers.__new__(ProxyHandlers), nothing, nothing)


def describe_proxy(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI document of the proxy."""
    return describe(
        routes,
        title="Remit governance proxy",
        summary="Every tool call of an agent gets a decision and a signed receipt.",
        version=__version__,
    )
