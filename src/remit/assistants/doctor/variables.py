"""Variables in the environment of an assistant that leave its hooks out, or lead them elsewhere.

Pure. Keeps this invariant: names come out, values never do, as secrets are among them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["PROXIES", "TURNING_OFF", "telling_variables"]

# Those that do what an option does with which hooks are left out.
TURNING_OFF: Final[Mapping[str, tuple[str, ...]]] = {"claude-code": ("CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE")}
# Written in small letters too. What is asked over HTTP goes to whom they name.
PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_EXCEPTED: Final = "NO_PROXY"
_HERE: Final = ("*", "127.0.0.1")
_OFF: Final = ("", "0", "false", "no", "off")
_SWITCHES: Final = frozenset(name for names in TURNING_OFF.values() for name in names)


def telling_variables(environ: bytes) -> tuple[str, ...]:
    """Return the names of variables that matter, in an environment as the system writes it.

    Those of proxies matter only if nothing excepts this machine from them.
    """
    given = dict(_pairs(environ))
    switched = [name for name, value in given.items() if name in _SWITCHES and value.strip().lower() not in _OFF]
    if _excepts_here(given):
        return tuple(switched)
    return (*switched, *(name for name, value in given.items() if name.upper() in PROXIES and value))


def _pairs(environ: bytes) -> Iterator[tuple[str, str]]:
    for item in environ.decode("utf-8", "replace").split("\0"):
        name, _, value = item.partition("=")
        if name in _SWITCHES or name.upper() in (*PROXIES, _EXCEPTED):
            yield name, value


def _excepts_here(given: Mapping[str, str]) -> bool:
    """Tell whether this machine is excepted, whichever of the two spellings is heeded."""
    lists = [value.replace(",", " ").split() for name, value in given.items() if name.upper() == _EXCEPTED]
    return bool(lists) and all(any(item in _HERE for item in listed) for listed in lists)
