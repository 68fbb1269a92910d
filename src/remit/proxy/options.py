"""The options of a governance proxy. They can be pickled, for worker processes."""

from typing import Any, NamedTuple

from remit.server.run_files import non_default_options


class ProxyOptions(NamedTuple):
    """The options of the command. Paths are as they were given."""

    home: str
    host: str = "127.0.0.1"
    port: int = 0
    # The ledger process and its front processes together; 1 for everything in one process, None for the default of
    # the machine.
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
        """Return the options that differ from the defaults and make a difference to clients."""
        return non_default_options(self._asdict(), ProxyOptions("")._asdict())
