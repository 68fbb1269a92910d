"""Settings: where the home lies, and what its `config.json` says. The only reader of the environment.

Keeps these invariants: a token in the file is one that nobody guesses, and shows itself to whoever asks for it by name,
never by being printed with the rest; the Hub's address is one that only this machine reaches; members of the file that
are not known here stay as they are.
"""

import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, get_args

from msgspec import UNSET, Meta, UnsetType

from remit.claims.shapes import Claims, encode, matching, shape
from remit.claims.strictjson import JSON, parse_object
from remit.errors import FieldInvalid, InputError, StateCorrupt, StateMissing, quote
from remit.ledger.home import Home

__all__ = [
    "COLLECTOR_VARIABLE",
    "CONFIG_FILE",
    "HOME_VARIABLE",
    "HUB_HOSTS",
    "HUB_URL",
    "METRICS_VARIABLE",
    "SAFE_PATH_VARIABLE",
    "TOKEN_NAMES",
    "Settings",
    "TokenName",
    "assistant_config",
    "check_hub_host",
    "collector",
    "distrust_current_folder",
    "ensure_token",
    "home_path",
    "hook_variable",
    "load_settings",
    "numeric_url",
    "parse_hub_url",
    "rotate_token",
    "service_environment",
    "set_hub_url",
    "share_metrics",
    "user_config",
    "user_home",
    "user_path",
    "user_shell",
]

COLLECTOR_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
HOME_VARIABLE: Final = "REMIT_HOME"
METRICS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
SAFE_PATH_VARIABLE: Final = "PYTHONSAFEPATH"
CONFIG_FILE: Final = "config.json"
# Names under which the Hub is asked, and so where it can listen.
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
    """Return where the home lies: as the option says, else REMIT_HOME, else `~/.remit`. An empty text says nothing."""
    try:
        return Path(option or os.environ.get(HOME_VARIABLE) or _DEFAULT).expanduser()
    except RuntimeError:
        raise StateMissing(f"this user has no home directory: name a folder with --home or {HOME_VARIABLE}") from None


def user_home() -> str | None:
    """Return what `~` stands for, where it stands for something."""
    home = os.path.expanduser("~")  # noqa: PTH111 - says so itself when it does not know
    return None if home.startswith("~") else home


def user_config() -> Path | None:
    """Return the folder where programs of this user keep their settings, where it can be told."""
    named, home = os.environ.get(_CONFIG_VARIABLE, ""), user_home()
    if named.startswith("/"):
        return Path(named)
    return None if home is None else Path(home) / ".config"


def assistant_config(variable: str) -> str:
    """Return the folder that a variable of a coding assistant names for its settings; nothing where it names none."""
    named = os.environ.get(variable, "") if variable else ""
    return named if named.startswith("/") else ""


def hook_variable(name: str) -> str:
    """Return a variable that the hooks of an assistant may name in what they send; nothing where it is not set."""
    return os.environ.get(name, "")


def user_shell() -> str:
    """Return the shell that programs are told this user has; nothing where they are told none."""
    return os.environ.get("SHELL", "")


def service_environment() -> dict[str, str]:
    """Return the environment of a service in the background: PYTHONPATH names absolute folders only.

    An empty part of it means the current folder, which an agent may write to.
    """
    kept = os.pathsep.join(part for part in os.environ.get(_MODULES, "").split(os.pathsep) if part.startswith("/"))
    others = {name: value for name, value in os.environ.items() if name != _MODULES}
    return others | ({_MODULES: kept} if kept else {})


def collector() -> str | None:
    """Return where traces go if no option says so: as the variable says that all tools of this kind read."""
    return os.environ.get(COLLECTOR_VARIABLE) or None


def share_metrics(folder: str) -> None:
    """Let processes that are started from now on add their counts up in `folder`: their library reads it so."""
    os.environ[METRICS_VARIABLE] = folder


def distrust_current_folder() -> None:
    """Let no process that is started from now on take modules from the current folder: an agent may write to it."""
    os.environ[SAFE_PATH_VARIABLE] = "1"


def user_path(text: str) -> str:
    """Return a path with the home directory in the place of a `~` at its beginning."""
    path = os.path.expanduser(text)  # noqa: PTH111 - a Path would drop what a closing slash says
    if path.startswith("~"):
        raise FieldInvalid(f"{quote(text)} begins with a home directory that is not known")
    return path


@dataclass(frozen=True)
class Settings:
    """What `config.json` says that is known here."""

    # Who shows it may use the admin endpoints of the proxy.
    admin_token: str | None = field(default=None, repr=False)
    # Who shows it may use a proxy that asks for a token.
    proxy_token: str | None = field(default=None, repr=False)
    # Who shows it may use the Hub.
    hub_token: str | None = field(default=None, repr=False)
    # Where the Hub is to listen, and where its clients look for it.
    hub_url: str = HUB_URL


_Token: TypeAlias = Annotated[str, matching("[A-Za-z0-9_-]{43,256}")]


class _Members(Claims, frozen=True, kw_only=True):
    admin_token: _Token | UnsetType = UNSET
    proxy_token: _Token | UnsetType = UNSET
    hub_token: _Token | UnsetType = UNSET
    hub_url: Annotated[str, Meta(max_length=256)] = HUB_URL

    def __post_init__(self) -> None:
        """Hold an address of the Hub, and no other."""
        parse_hub_url(self.hub_url)


def load_settings(home: Home) -> Settings:
    """Return the settings of a home; one without `config.json` has those that everyone begins with."""
    return _settings(_read(home))


def ensure_token(home: Home, name: TokenName) -> str:
    """Return the token of this name, made first where there is none."""
    with home.locked(_LOCK):
        members = _read(home)
        known: str | None = getattr(_settings(members), _member(name))
        return known or _renewed(home, members, name)


def rotate_token(home: Home, name: TokenName) -> str:
    """Return a new token of this name; the one before is not kept."""
    with home.locked(_LOCK):
        return _renewed(home, _read(home), name)


def set_hub_url(home: Home, url: str) -> None:
    """Keep where the Hub is to listen; clients look for it there from now on."""
    parse_hub_url(url)
    with home.locked(_LOCK):
        home.replace(CONFIG_FILE, encode(_read(home) | {"hub_url": numeric_url(url)}))


def numeric_url(url: str) -> str:
    """Return an address of the Hub with a number for `localhost`, which may mean a port of another user at `[::1]`."""
    return url.replace("//localhost:", "//127.0.0.1:", 1)


def parse_hub_url(url: str) -> tuple[str, int]:
    """Return the host and the port in an address of the Hub: plain HTTP, within this machine, and nothing after it."""
    found = _HUB_URL.fullmatch(url)
    if found is None or int(found["port"]) > _MAX_PORT:
        hosts = ", ".join(HUB_HOSTS)
        raise FieldInvalid(f"must be http://HOST:PORT, and HOST one of {hosts}", place="$.hub_url")
    return found["host"].strip("[]"), int(found["port"])


def check_hub_host(host: str, place: str) -> None:
    """Raise unless the Hub can listen there; `place` is where it was said."""
    if host not in HUB_HOSTS:
        raise FieldInvalid(f"must be one of {', '.join(HUB_HOSTS)}: the Hub is for this machine only", place=place)


def _renewed(home: Home, members: dict[str, JSON], name: TokenName) -> str:
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    home.replace(CONFIG_FILE, encode(members | {_member(name): token}))
    return token


def _member(name: TokenName) -> str:
    if name not in TOKEN_NAMES:
        raise FieldInvalid(f"{quote(name)} is not one of {', '.join(TOKEN_NAMES)}", place="$.name")
    return f"{name}_token"


def _read(home: Home) -> dict[str, JSON]:
    """Return all members of the file, once those that are known here are what they must be."""
    data = home.read(CONFIG_FILE, max_bytes=_MAX_BYTES)
    try:
        members = {} if data is None else parse_object(data, max_bytes=_MAX_BYTES)
        _known(members)
    except InputError as error:
        damaged = StateCorrupt(f"{CONFIG_FILE} is damaged: {error}")
        damaged.add_note(f"Put it right, or move {CONFIG_FILE} away: tokens are made anew, and clients need them.")
        raise damaged from None
    return members


def _settings(members: dict[str, JSON]) -> Settings:
    known = _known(members)
    return Settings(
        known.admin_token or None, known.proxy_token or None, known.hub_token or None, numeric_url(known.hub_url)
    )


def _known(members: dict[str, JSON]) -> _Members:
    return shape(_Members, {name: members[name] for name in _Members.__struct_fields__ if name in members})
