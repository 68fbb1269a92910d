"""Variables that settings of Claude Code set for it: those that take its calls past hooks, and those that keep it near.

An HTTP hook that goes to a proxy is answered by the proxy. So proxies in settings are an obstacle, and where hooks are
written the Hub's address is left out of every proxy, because what stands there counts more than what comes later from
weaker settings. The environment that Claude Code is started from is not looked at here.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid, quote

__all__ = ["ENVIRONMENT", "NO_PROXY", "check_environment", "is_left_out", "left_out"]

ENVIRONMENT: Final = "env"
# Claude Code reads either; some of its parts only the one, some only the other.
NO_PROXY: Final = ("NO_PROXY", "no_proxy")
_HUB_HOSTS: Final = ("127.0.0.1", "localhost")
_ALL_HOSTS: Final = "*"
# Each takes requests elsewhere, turns hooks off, or lets other code into the programs that ask.
_DIVERTING: Final = frozenset((
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "CLAUDE_CODE_HTTP_PROXY", "CLAUDE_CODE_HTTPS_PROXY",
    "CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE", "CLAUDE_CODE_SHELL_PREFIX",
    "BASH_ENV", "BUN_OPTIONS", "NODE_OPTIONS",
))  # fmt: skip
_LOADING: Final = ("LD_", "DYLD_")


def check_environment(settings: Mapping[str, JSON], place: str) -> None:
    """Raise if settings set a variable that can take calls past their hooks; an empty one does not."""
    for name, value in _variables(settings).items():
        if value != "" and (name.upper() in _DIVERTING or name.upper().startswith(_LOADING)):
            problem = f"sets {quote(name)}, which can take calls past their hooks: take it out first"
            refused = FieldInvalid(problem, place=f"{place} {ENVIRONMENT}")
            refused.add_note("What you need of it belongs into the environment that Claude Code is started from.")
            raise refused


def left_out(settings: Mapping[str, JSON], unproxied: str, url: str) -> str:
    """Return the hosts that no proxy is used for: those that settings and the environment name, and the Hub's."""
    variables = _variables(settings)
    hosts = [host for said in (*map(variables.get, NO_PROXY), unproxied) for host in _hosts(said)]
    if _ALL_HOSTS in hosts:
        return _ALL_HOSTS
    hub = url.partition("://")[2].partition("/")[0].rpartition(":")[0]
    return ",".join(dict.fromkeys((*hosts, *_HUB_HOSTS, hub)))


def is_left_out(said: JSON) -> bool:
    """Tell whether a list of hosts that no proxy is used for has the Hub's in it."""
    hosts = set(_hosts(said))
    return _ALL_HOSTS in hosts or hosts.issuperset(_HUB_HOSTS)


def _hosts(said: JSON) -> Iterable[str]:
    return said.replace(",", " ").split() if isinstance(said, str) else ()


def _variables(settings: Mapping[str, JSON]) -> Mapping[str, JSON]:
    variables = settings.get(ENVIRONMENT)
    return variables if isinstance(variables, dict) else {}
