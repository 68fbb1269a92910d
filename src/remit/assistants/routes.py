"""The HTTP route for hooks of coding assistants. The Hub serves it beside its own routes."""

from typing import Final

from remit.assistants.handlers import HookHandlers
from remit.server.routes import Route

HOOK_PATH: Final = "/v1/hooks/{assistant}/{protection}"
_DESCRIPTION: Final = (
    "The request and the answer are JSON objects in the form that the assistant defines for its hooks. Every request "
    "that reaches this route is answered with 200 and `X-Remit-Hook: 1`, because some assistants run the tool on any "
    "other status: an answer that does not permit the call denies it. A wrong token, an unknown protection, a body "
    "that cannot be read, a full disk and any other failure are denials too, with a reason. "
    "Other statuses come only before the route is found (`Host`, malformed or slow HTTP, too many connections) and for "
    "a page of a foreign origin (403)."
)


def hook_routes(handlers: HookHandlers) -> list[Route]:
    """Return the routes for `handlers`."""
    return [
        Route(
            "POST",
            HOOK_PATH,
            handlers.handle,
            "application/json",
            "Decide on a tool call of a coding assistant, or record its outcome",
            dict,
            access="hook",
            on_error=handlers.deny_failed,
            description=_DESCRIPTION,
            subject="protection",
        )
    ]


def documented_routes() -> list[Route]:
    """Return the routes for documentation. Their handlers cannot be called."""
    return hook_routes(HookHandlers.__new__(HookHandlers))
