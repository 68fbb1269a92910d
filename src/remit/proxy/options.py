"""How a governance proxy is to run, as one value that another process can be given."""

from typing import Any, Final, NamedTuple

__all__ = ["ProxyOptions"]


class ProxyOptions(NamedTuple):
    """What was asked for at the start. Paths are as they were given."""

    home: str
    host: str = "127.0.0.1"
    port: int = 0
    workers: int = 1
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
        usual = ProxyOptions("")._asdict()
        chosen = {name: value for name, value in self._asdict().items() if value != usual[name]}
        return {name: value for name, value in chosen.items() if name not in _OUR_OWN}


_OUR_OWN: Final = frozenset(("home", "log_json", "log_level", "user_home"))
