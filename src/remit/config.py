"""Settings from the environment and from `config.json` of the home. The only reader of the environment.

Invariants: a token in the file is too long to guess, and is left out of the representation of
`HomeSettings`; the Hub's address is a loopback address; unknown members of the file are preserved.
"""

import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, get_args

from msgspec import UNSET, Meta, UnsetType

from remit.claims.strictjson import JSON, parse_object
from remit.claims.types import Claims, convert, encode, matches
from remit.errors import FieldInvalid, InputError, StateCorrupt, StateMissing, quote
from remit.ledger.home import Home

COLLECTOR_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
HOME_VARIABLE: Final = "REMIT_HOME"
METRICS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
SAFE_PATH_VARIABLE: Final = "PYTHONSAFEPATH"
CONFIG_FILE: Final = "config.json"
# The hosts that the Hub can listen on, and that clients may name in a request.
HUB_HOSTS: Final = ("127.0.0.1", "localhost", "::1")
HUB_URL: Final = "http://127.0.0.1:8765"
TokenName: TypeAlias = Literal["admin", "hub", "proxy"]
TOKEN_NAMES: Final[tuple[TokenName, ...]] = get_args(TokenName)
_DEFAULT: Final = "~/.remit"
_LOCK: Final = "config.lock"
_CONFIG_VARIABLE: Final = "XDG_CONFIG_HOME"
_HUB_URL: Final = re.compile(r"http://(?P<host>127\.0\.0\.1|localhost|\[::1\]):(?P<port>[1-9][0-9]{0,4})")
_MAX_BYTES: Final = 256 * 1024
_MAX_PORT: Final = 65535
_TOKEN_BYTES: Final = 32

_MODULES: Final = "PYTHONPATH"


def home_path(option: str | None) -> Path:
    """Return the path of the home: the option, else REMIT_HOME, else `~/.remit`. An empty value counts as not set."""
    try:
        return Path(option or os.environ.get(HOME_VARIABLE) or _DEFAULT).expanduser()
    except RuntimeError:
        raise StateMissing(f"this user has no home directory: set --home or {HOME_VARIABLE}") from None


def user_home() -> str | None:
    """Return the home directory of the user; None if it is not known."""
    home = os.path.expanduser("~")  # noqa: PTH111 - returns "~" itself if it is not known
    return None if home.startswith("~") else home


def user_config() -> Path | None:
    """Return the configuration directory of the user (XDG); None if it is not known."""
    named, home = os.environ.get(_CONFIG_VARIABLE, ""), user_home()
    if named.startswith("/"):
        return Path(named)
    return None if home is None else Path(home) / ".config"


def assistant_config_folder(variable: str) -> str:
    """Return the folder that an environment variable of a coding assistant names for its settings; empty if unset."""
    named = os.environ.get(variable, "") if variable else ""
    return named if named.startswith("/") else ""


def get_hook_variable(name: str) -> str:
    """Return an environment variable that hooks of an assistant may refer to; empty if unset."""
    return os.environ.get(name, "")


def user_shell() -> str:
    """Return the login shell of the user, from SHELL; empty if unset."""
    return os.environ.get("SHELL", "")


def service_environment() -> dict[str, str]:
    """Return the environment for a background service: PYTHONPATH is reduced to absolute folders.

    An empty part of it means the current folder, which an agent may write to.
    """
    kept = os.pathsep.join(part for part in os.environ.get(_MODULES, "").split(os.pathsep) if part.startswith("/"))
    others = {name: value for name, value in os.environ.items() if name != _MODULES}
    return others | ({_MODULES: kept} if kept else {})


def otlp_endpoint_from_environment() -> str | None:
    """Return the OpenTelemetry endpoint from the standard environment variable; the default for `--otlp-endpoint`."""
    return os.environ.get(COLLECTOR_VARIABLE) or None


def set_metrics_folder(folder: str) -> None:
    """Make child processes share their Prometheus metrics in `folder`, by the variable that its library reads."""
    os.environ[METRICS_VARIABLE] = folder


def disable_imports_from_current_folder() -> None:
    """Keep child processes from importing modules from the current folder, which an agent may be able to write to."""
    os.environ[SAFE_PATH_VARIABLE] = "1"


def expand_user_path(text: str) -> str:
    """Return a path with a leading `~` expanded."""
    path = os.path.expanduser(text)  # noqa: PTH111 - a Path would drop a trailing slash
    if path.startswith("~"):
        raise FieldInvalid(f"{quote(text)} begins with the home directory of an unknown user: write out the path")
    return path


@dataclass(frozen=True)
class HomeSettings:
    """The known members of `config.json`."""

    # Required by the admin endpoints of the proxy.
    admin_token: str | None = field(default=None, repr=False)
    # Required by a proxy with `--require-token`.
    proxy_token: str | None = field(default=None, repr=False)
    # Required by the Hub.
    hub_token: str | None = field(default=None, repr=False)
    # Where the Hub listens, and where its clients connect.
    hub_url: str = HUB_URL


_Token: TypeAlias = Annotated[str, matches("[A-Za-z0-9_-]{43,256}")]


class _ConfigMembers(Claims, frozen=True, kw_only=True):
    admin_token: _Token | UnsetType = UNSET
    proxy_token: _Token | UnsetType = UNSET
    hub_token: _Token | UnsetType = UNSET
    hub_url: Annotated[str, Meta(max_length=256)] = HUB_URL

    def __post_init__(self) -> None:
        """Raise unless `hub_url` is an address that the Hub can have."""
        parse_hub_url(self.hub_url)


def load_settings(home: Home) -> HomeSettings:
    """Return the settings of a home; the defaults if it has no `config.json`."""
    return _settings(_read(home))


def ensure_token(home: Home, name: TokenName) -> str:
    """Return the token of this name; create it if there is none."""
    with home.locked(_LOCK):
        members = _read(home)
        known: str | None = getattr(_settings(members), _member(name))
        return known or _replace_token(home, members, name)


def rotate_token(home: Home, name: TokenName) -> str:
    """Create a new token of this name, and return it. The old one is not kept."""
    with home.locked(_LOCK):
        return _replace_token(home, _read(home), name)


def set_hub_url(home: Home, url: str) -> None:
    """Store where the Hub listens. Clients connect there from now on."""
    parse_hub_url(url)
    with home.locked(_LOCK):
        home.replace(CONFIG_FILE, encode(_read(home) | {"hub_url": without_localhost(url)}))


def without_localhost(url: str) -> str:
    """Return an address of the Hub with 127.0.0.1 for `localhost`, which could be another user's port on `[::1]`."""
    return url.replace("//localhost:", "//127.0.0.1:", 1)


def parse_hub_url(url: str) -> tuple[str, int]:
    """Parse an address of the Hub: plain HTTP, a loopback host and a port, and nothing else."""
    found = _HUB_URL.fullmatch(url)
    if found is None or int(found["port"]) > _MAX_PORT:
        hosts = ", ".join(HUB_HOSTS)
        raise FieldInvalid(f"must be http://HOST:PORT with one of the hosts {hosts}", place="$.hub_url")
    return found["host"].strip("[]"), int(found["port"])


def check_hub_host(host: str, place: str) -> None:
    """Raise unless the Hub can listen on this host. `place` names the option or member for the message."""
    if host not in HUB_HOSTS:
        raise FieldInvalid(f"must be one of {', '.join(HUB_HOSTS)}: the Hub listens on this machine only", place=place)


def _replace_token(home: Home, members: dict[str, JSON], name: TokenName) -> str:
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    home.replace(CONFIG_FILE, encode(members | {_member(name): token}))
    return token


def _member(name: TokenName) -> str:
    if name not in TOKEN_NAMES:
        raise FieldInvalid(f"{quote(name)} is not one of {', '.join(TOKEN_NAMES)}", place="$.name")
    return f"{name}_token"


def _read(home: Home) -> dict[str, JSON]:
    """Return all members of the file, after checking the known ones."""
    data = home.read(CONFIG_FILE, max_bytes=_MAX_BYTES)
    try:
        members = {} if data is None else parse_object(data, max_bytes=_MAX_BYTES)
        _parse_known(members)
    except InputError as error:
        damaged = StateCorrupt(f"{CONFIG_FILE} is damaged: {error}")
        damaged.add_note(f"Repair it, or move {CONFIG_FILE} away: new tokens are created, and clients need them.")
        raise damaged from None
    return members


def _settings(members: dict[str, JSON]) -> HomeSettings:
    known = _parse_known(members)
    return HomeSettings(
        known.admin_token or None, known.proxy_token or None, known.hub_token or None, without_localhost(known.hub_url)
    )


def _parse_known(members: dict[str, JSON]) -> _ConfigMembers:
    return convert(
        _ConfigMembers, {name: members[name] for name in _ConfigMembers.__struct_fields__ if name in members}
    )
