"""How a Hub is to run, as one value."""

from typing import Any, Final, NamedTuple

__all__ = ["HubOptions"]


class HubOptions(NamedTuple):
    """What was asked for at the start. Paths are as they were given."""

    home: str
    host: str = "127.0.0.1"
    port: int = 8765
    policies: str | None = None
    user_home: str | None = None
    log_level: str = "info"
    log_json: bool = True
    otlp_endpoint: str | None = None

    def asked(self) -> dict[str, Any]:
        """Return what was asked for beyond the usual, as far as clients can tell the difference."""
        usual = HubOptions("")._asdict()
        chosen = {name: value for name, value in self._asdict().items() if value != usual[name]}
        return {name: value for name, value in chosen.items() if name not in _OUR_OWN}


_OUR_OWN: Final = frozenset(("home", "log_json", "log_level", "user_home"))
