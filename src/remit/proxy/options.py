"""How a governance proxy is to run, as one value that another process can be given."""

from typing import Any, NamedTuple

from remit.server.record import beyond_usual

__all__ = ["ProxyOptions"]


class ProxyOptions(NamedTuple):
    """What was asked for at the start. Paths are as they were given."""

    home: str
    host: str = "127.0.0.1"
    port: int = 0
    # The ledger process and the others, which are fronts; 1 is all in one. None is for what suits the machine.
    processes: int | None = None
    allowed_hosts: tuple[str, ...] = ()
    require_token: bool = False
    insecure_http: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    client_ca: str | None = None
    connections_per_peer: int = 64
    policies: str | None = None
    user_home: str | None = None
    log_level: str = "info"
    log_json: bool = True
    otlp_endpoint: str | None = None

    def asked(self) -> dict[str, Any]:
        """Return what was asked for beyond the usual, as far as clients can tell the difference."""
        return beyond_usual(self._asdict(), ProxyOptions("")._asdict())
