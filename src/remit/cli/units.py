"""The file that makes the system start Remit with the user's session: a systemd unit or a launchd agent.

Invariants: the file contains no token; another file is not overwritten without `--force`; and every path in it
is quoted so that the system reads it back unchanged, or is refused. The user enables the unit.
"""

import os
import plistlib
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from remit.config import user_config, user_home
from remit.errors import FieldInvalid, StateMissing

_PLACE: Final = "--service"
_NAME: Final = "remit"
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_UNIT: Final = """\
[Unit]
Description=Remit: the Personal Hub and the governance proxy

[Service]
Type=simple
ExecStart={command}
Restart=on-failure
RestartSec=5
KillMode=mixed
TimeoutStopSec=20
NoNewPrivileges=yes
UMask=0077

[Install]
WantedBy=default.target
"""


class Unit(NamedTuple):
    """A unit file, and the command that enables it."""

    path: Path
    content: bytes
    enable: str


def unit_for(home: Path) -> Unit:
    """Return the unit that runs `remit up` over a home, for this system."""
    build = _BUILDERS.get(sys.platform)
    if build is None:
        raise FieldInvalid("this system has neither systemd nor launchd: start `remit up` in another way", place=_PLACE)
    # -P: no modules from the current directory.
    words = [sys.executable, "-P", "-m", "remit", "up", "--home", os.path.abspath(home)]  # noqa: PTH100 - links stay
    if not all(word.isprintable() for word in words):
        raise FieldInvalid("the path of the home or of Python has characters that a unit cannot hold", place=_PLACE)
    return build(words)


def systemd_unit(words: Sequence[str]) -> Unit:
    """Return the systemd unit for one user."""
    folder = user_config()
    if folder is None:
        raise StateMissing("this user has no configuration directory: set HOME or XDG_CONFIG_HOME")
    if "$" in words[0]:
        raise FieldInvalid("the path of Python has a dollar sign, which systemd does not allow there", place=_PLACE)
    command = " ".join(map(_quote, words))
    path = folder / "systemd" / "user" / f"{_NAME}.service"
    enable = f"systemctl --user daemon-reload && systemctl --user enable --now {_NAME}"
    return Unit(path, _UNIT.format(command=command).encode(), enable)


def _quote(word: str) -> str:
    """Quote a word for systemd: quotes, specifiers and variables are escaped."""
    return '"' + "".join(_ESCAPES.get(character, character) for character in word) + '"'


_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"}


def launchd_agent(words: Sequence[str]) -> Unit:
    """Return the launchd agent for one user."""
    home = user_home()
    if home is None:
        raise StateMissing("this user has no home directory: set HOME")
    members = {
        "Label": _NAME,
        "ProgramArguments": list(words),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ProcessType": "Background",
        "Umask": 0o077,
    }
    path = Path(home) / "Library" / "LaunchAgents" / f"{_NAME}.plist"
    enable = f"launchctl bootstrap gui/{os.getuid()} ~/Library/LaunchAgents/{_NAME}.plist"
    return Unit(path, plistlib.dumps(members), enable)


_BUILDERS: Final[Mapping[str, Callable[[Sequence[str]], Unit]]] = {"darwin": launchd_agent, "linux": systemd_unit}


def check_unit(unit: Unit, *, force: bool) -> None:
    """Raise if another file is at the path of the unit, unless `force` is set."""
    try:
        existing: bytes | None = unit.path.read_bytes()
    except FileNotFoundError:
        existing = None
    except OSError:
        raise FieldInvalid(f"{unit.path} cannot be read", place=_PLACE) from None
    if existing not in (None, unit.content) and not force:
        refused = FieldInvalid(f"another {unit.path.name} exists already", place=_PLACE)
        refused.add_note(f"Check it, and overwrite it with --force: {unit.path}")
        raise refused


def write_unit(unit: Unit) -> None:
    """Write the file atomically, with permissions for its owner only."""
    unfinished = unit.path.with_name(f".{unit.path.name}.{secrets.token_hex(8)}")
    try:
        _make_folders(unit.path.parent)
        try:
            with os.fdopen(os.open(unfinished, _NEW, _FILE_MODE), "wb") as file:
                file.write(unit.content)
            unfinished.replace(unit.path)
        finally:
            with suppress(FileNotFoundError):
                unfinished.unlink()
    except OSError:
        raise FieldInvalid(f"{unit.path} cannot be written", place=_PLACE) from None


def _make_folders(last: Path) -> None:
    """Create a folder and its missing parents: `Path.mkdir` would leave the modes of the parents to the umask."""
    for folder in (*reversed(last.parents), last):
        if not folder.is_dir():
            folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
