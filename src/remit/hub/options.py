"""How a Hub is to run, as one value."""

from typing import Any, NamedTuple

from remit.server.record import beyond_usual

__all__ = ["HubOptions"]


class HubOptions(NamedTuple):
    """What was asked for at the start. Paths are as they were given."""

    home: str
    host: str = "127.0.0.1"
    port: int = 8765
    # 2 for a ledger process of its own, 1 for all in one. None is for what suits the machine.
    processes: int | None = None
    policies: str | None = None
    user_home: str | None = None
    log_level: str = "info"
    log_json: bool = True
    otlp_endpoint: str | None = None

    def asked(self) -> dict[str, Any]:
        """Return what was asked for beyond the usual, as far as clients can tell the difference."""
        return beyond_usual(self._asdict(), HubOptions("")._asdict())
