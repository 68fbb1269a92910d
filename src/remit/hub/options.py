"""The options of a Hub."""

from typing import Any, NamedTuple

from remit.server.run_files import non_default_options


class HubOptions(NamedTuple):
    """The options of the command. Paths are as they were given."""

    home: str
    host: str = "127.0.0.1"
    port: int = 8765
    # 2 for a separate ledger process, 1 for everything in one process, None for the default of the machine.
    processes: int | None = None
    policies: str | None = None
    user_home: str | None = None
    log_level: str = "info"
    log_json: bool = True
    otlp_endpoint: str | None = None

    def asked(self) -> dict[str, Any]:
        """Return the options that differ from the defaults and make a difference to clients."""
        return non_default_options(self._asdict(), HubOptions("")._asdict())
