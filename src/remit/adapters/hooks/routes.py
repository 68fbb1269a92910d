"""The route of hooks, as data. It stands beside the Hub's own."""

from typing import Final

from remit.adapters.hooks.desk import HookDesk, failing
from remit.http.routes import Route

__all__ = ["HOOK_PATH", "hook_routes", "table_of_routes"]

HOOK_PATH: Final = "/v1/hooks/{assistant}/{protection}"


def hook_routes(desk: HookDesk) -> list[Route]:
    """Return the routes that lead to `desk`."""
    return [
        Route(
            "POST",
            HOOK_PATH,
            desk.hook,
            "application/json",
            "Decide on a call of a coding assistant, or take its outcome in",
            dict,
            access="hook",
            failing=failing,
        )
    ]


def table_of_routes() -> list[Route]:
    """Return the routes for those who only read about them: nobody is at the desk."""
    return hook_routes(HookDesk.__new__(HookDesk))
