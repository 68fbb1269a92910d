"""Checks the environment variables in settings of Claude Code for those that bypass hooks.

The environment that Claude Code itself is started with is not checked here.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid, quote

ENVIRONMENT: Final = "env"
# Set by the first release, whose hooks sent HTTP requests to the Hub.
NO_PROXY: Final = ("NO_PROXY", "no_proxy")
_HUB_HOSTS: Final = ("127.0.0.1", "localhost")
_ALL_HOSTS: Final = "*"
# Each turns hooks off, or loads other code into the hook command.
_BYPASSING: Final = frozenset((
    "CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE", "CLAUDE_CODE_SHELL_PREFIX",
    "BASH_ENV", "BUN_OPTIONS", "ENV", "NODE_OPTIONS",
))  # fmt: skip
# The hook command in shared settings finds the interpreter and the Remit home through these.
_BYPASSING_SHARED: Final = frozenset(("HOME", "PATH", "REMIT_HOME"))
_LOADER_PREFIXES: Final = ("LD_", "DYLD_")


def check_environment(settings: Mapping[str, JSON], place: str, *, shared: bool = False) -> None:
    """Raise if settings set a variable that can bypass hooks to a value that is not empty.

    `shared` means that the hooks are in shared settings, whose hook command depends on more variables.
    """
    bypassing = _BYPASSING | _BYPASSING_SHARED if shared else _BYPASSING
    for name, value in _variables(settings).items():
        if value != "" and (name.upper() in bypassing or name.upper().startswith(_LOADER_PREFIXES)):
            problem = f"sets {quote(name)}, which can take calls past their hooks: take it out first"
            refused = FieldInvalid(problem, place=f"{place} {ENVIRONMENT}")
            refused.add_note("If you need the variable, set it in the environment that Claude Code is started from.")
            raise refused


def lists_hub(value: JSON) -> bool:
    """Return whether the value of NO_PROXY contains the hosts of the Hub."""
    hosts = set(_hosts(value))
    return _ALL_HOSTS in hosts or hosts.issuperset(_HUB_HOSTS)


def _hosts(value: JSON) -> Iterable[str]:
    return value.replace(",", " ").split() if isinstance(value, str) else ()


def _variables(settings: Mapping[str, JSON]) -> Mapping[str, JSON]:
    variables = settings.get(ENVIRONMENT)
    return variables if isinstance(variables, dict) else {}
