"""Environment variables of an assistant that bypass its hooks, or redirect their requests.

Invariant: only names are returned, never values, because values may be secrets.
"""

from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["BYPASSING_VARIABLES", "PROXY_VARIABLES", "relevant_variables"]

# Variables with which hooks do not run.
BYPASSING_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "claude-code": ("CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE")
}
# Also in lower case. HTTP requests of hooks are sent to these proxies.
PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_NO_PROXY: Final = "NO_PROXY"
_THIS_MACHINE: Final = ("*", "127.0.0.1")
_OFF: Final = ("", "0", "false", "no", "off")
_SWITCHES: Final = frozenset(name for names in BYPASSING_VARIABLES.values() for name in names)


def relevant_variables(environ: bytes) -> tuple[str, ...]:
    """Return the names of relevant variables in the content of /proc/PID/environ.

    Proxy variables are relevant only if NO_PROXY does not except this machine.
    """
    variables = dict(_pairs(environ))
    switched = [name for name, value in variables.items() if name in _SWITCHES and value.strip().lower() not in _OFF]
    if _excepts_this_machine(variables):
        return tuple(switched)
    return (*switched, *(name for name, value in variables.items() if name.upper() in PROXY_VARIABLES and value))


def _pairs(environ: bytes) -> Iterator[tuple[str, str]]:
    for item in environ.decode("utf-8", "replace").split("\0"):
        name, _, value = item.partition("=")
        if name in _SWITCHES or name.upper() in (*PROXY_VARIABLES, _NO_PROXY):
            yield name, value


def _excepts_this_machine(variables: Mapping[str, str]) -> bool:
    """Return whether NO_PROXY excepts this machine, in each spelling of it that is set."""
    lists = [value.replace(",", " ").split() for name, value in variables.items() if name.upper() == _NO_PROXY]
    return bool(lists) and all(any(item in _THIS_MACHINE for item in listed) for listed in lists)
