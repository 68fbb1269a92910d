"""Variables that settings of Claude Code set for it, and that take its calls past hooks.

The environment that Claude Code is started from is not looked at here.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid, quote

__all__ = ["ENVIRONMENT", "NO_PROXY", "check_environment", "is_left_out"]

ENVIRONMENT: Final = "env"
# What the first release has set, whose hooks asked the Hub over HTTP.
NO_PROXY: Final = ("NO_PROXY", "no_proxy")
_HUB_HOSTS: Final = ("127.0.0.1", "localhost")
_ALL_HOSTS: Final = "*"
# Each turns hooks off, or lets other code into the programs that ask.
_DIVERTING: Final = frozenset((
    "CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE", "CLAUDE_CODE_SHELL_PREFIX",
    "BASH_ENV", "BUN_OPTIONS", "ENV", "NODE_OPTIONS",
))  # fmt: skip
# Where the command of shared settings finds its interpreter, and the home.
_DIVERTING_SHARED: Final = frozenset(("HOME", "PATH", "REMIT_HOME"))
_LOADING: Final = ("LD_", "DYLD_")


def check_environment(settings: Mapping[str, JSON], place: str, *, shared: bool = False) -> None:
    """Raise if settings set a variable that can take calls past their hooks; an empty one does not.

    `shared` says that the hooks are in shared settings, and so name no path of this machine.
    """
    diverting = _DIVERTING | _DIVERTING_SHARED if shared else _DIVERTING
    for name, value in _variables(settings).items():
        if value != "" and (name.upper() in diverting or name.upper().startswith(_LOADING)):
            problem = f"sets {quote(name)}, which can take calls past their hooks: take it out first"
            refused = FieldInvalid(problem, place=f"{place} {ENVIRONMENT}")
            refused.add_note("What you need of it belongs into the environment that Claude Code is started from.")
            raise refused


def is_left_out(said: JSON) -> bool:
    """Tell whether a list of hosts that no proxy is used for has the Hub's in it."""
    hosts = set(_hosts(said))
    return _ALL_HOSTS in hosts or hosts.issuperset(_HUB_HOSTS)


def _hosts(said: JSON) -> Iterable[str]:
    return said.replace(",", " ").split() if isinstance(said, str) else ()


def _variables(settings: Mapping[str, JSON]) -> Mapping[str, JSON]:
    variables = settings.get(ENVIRONMENT)
    return variables if isinstance(variables, dict) else {}
