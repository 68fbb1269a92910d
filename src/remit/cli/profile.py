"""`remit profile`: a profile to begin with, and what a profile comes to.

A profile is for the folder that it names, started at the place of the file; a link is taken where it lies. Keeps this
invariant: a file that is there is not overwritten without `--force`, and nothing but a file ever is; what is written is
whole, or not there.
"""

import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final, NamedTuple

import click
from msgspec import to_builtins

from remit.claims.mission import Mission
from remit.cli.errors import report_errors
from remit.cli.options import common_options
from remit.cli.render import note, show_data, show_facts
from remit.cli.resources import resolve_path, resolve_scope
from remit.config import user_path
from remit.errors import FieldInvalid, InputError, quote
from remit.profiles.compiling import compile_profile, remarks_on
from remit.profiles.lines import MAX_BYTES, decode_profile
from remit.profiles.profile import Profile, parse_profile
from remit.profiles.templates import DEFAULT_TEMPLATE, TEMPLATES, template
from remit.profiles.words import describe_mission

__all__ = [
    "AGENT_ID",
    "PROFILE_FILE",
    "ChosenProfile",
    "LoadedProfile",
    "choose_profile",
    "load_profile",
    "mission_of",
    "profile",
    "profile_folder",
]

PROFILE_FILE: Final = "REMIT.md"


class ChosenProfile(NamedTuple):
    """A profile, where it came from, and its digest. `path` is absolute; without one it is a template."""

    profile: Profile
    source: str
    path: str | None
    digest: str


def choose_profile(named: str | None, folder: str | None) -> ChosenProfile:
    """Return the profile that was named, else the one of a folder, if one is meant, else the usual template."""
    path = Path(_expanded(named)) if named is not None else Path(folder or "/", PROFILE_FILE)
    if named is None and (folder is None or not _is_there(path)):
        text = template(DEFAULT_TEMPLATE)
        return ChosenProfile(parse_profile(text), f"template {DEFAULT_TEMPLATE}", None, _digest(text.encode("utf-8")))
    data = _read(path)
    try:
        profile = parse_profile(decode_profile(data))
        return ChosenProfile(profile, str(path), resolve_path(str(path), "--profile"), _digest(data))
    except InputError as error:
        raise FieldInvalid(error.problem, place=f"{path.name} {error.place}") from None


def profile_folder(profile: Profile, start: str) -> str:
    """Return the folder that a profile is for, absolute and real, or raise where a link leads out of `start`."""
    whole = os.path.realpath(start)
    folder = resolve_path(os.path.join(start, profile.folder), "Folder")  # noqa: PTH118 - dots stay
    if os.path.commonpath((whole, folder)) != whole:
        raise FieldInvalid(f"{quote(profile.folder)} is a link that leads elsewhere: use “Use” for it", place="Folder")
    return folder


def _expanded(named: str) -> str:
    try:
        return user_path(named)
    except InputError as error:
        raise FieldInvalid(error.problem, place="--profile") from None


def _is_there(path: Path) -> bool:
    """Tell whether something has this name: a link that leads nowhere does, and what cannot be seen may."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        raise FieldInvalid("cannot be read", place=path.name) from None
    return True


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise FieldInvalid("is not a file", place=path.name)
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError:
        raise FieldInvalid("cannot be read", place=path.name) from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Who acts under a profile, where nobody says who it is.
AGENT_ID: Final = "agent:assistant"
_MODES: Final = {
    "ask": "what is permitted, the assistant asks about as usual",
    "allow": "what is permitted, the assistant need not ask about",
}


class LoadedProfile(NamedTuple):
    """A profile that was read: what it says, and the folder that it is for, absolute and real."""

    profile: Profile
    folder: str


@click.group()
def profile() -> None:
    """Write a profile to edit, and see what it comes to."""


@profile.command("init")
@click.option(
    "--template",
    "name",
    type=click.Choice(TEMPLATES),
    default=DEFAULT_TEMPLATE,
    show_default=True,
    help="What to begin with.",
)
@click.option("--path", default=PROFILE_FILE, show_default=True, metavar="FILE", help="The file to write.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@common_options
def _init_command(*, name: str, path: str, force: bool, home: str | None, as_json: bool) -> None:  # noqa: ARG001 - like every command
    """Write a profile: a file in plain words that says what an assistant may do.

    Example: remit profile init --template read-only
    """
    with report_errors(as_json=as_json):
        file = Path(user_path(path))
        _write(file, template(name).encode(), force=force)
    if as_json:
        return show_data({"ok": True, "path": str(file), "template": name})
    check = "remit profile check" + ("" if path == PROFILE_FILE else f" {path}")
    protect = "remit protect claude-code" + ("" if path == PROFILE_FILE else f" --profile {path}")
    return show_facts({"written": f"{file} ({name})", "next": f"edit it, look at it with: {check}", "then": protect})


def _write(file: Path, content: bytes, *, force: bool) -> None:
    try:
        if force:
            _replace(Path(os.path.realpath(file)), content)
        else:
            _create(file, content)
    except FileExistsError:
        refused = FieldInvalid(f"there is a {file.name} already", place="--path")
        refused.add_note("Look at it, and overwrite it with --force, or write another file with --path.")
        raise refused from None
    except (OSError, ValueError):
        raise FieldInvalid("is a file that cannot be written", place="--path") from None


def _create(file: Path, content: bytes) -> None:
    new = file.open("xb")
    try:
        with new:
            new.write(content)
    except OSError:
        file.unlink()
        raise


def _replace(file: Path, content: bytes) -> None:
    mode = _mode_of(file)
    unfinished = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    _create(unfinished, content)
    try:
        if mode is not None:
            unfinished.chmod(mode)
        unfinished.replace(file)
    except OSError:
        unfinished.unlink()
        raise


def _mode_of(file: Path) -> int | None:
    """Return the mode of a file, None for one that is not there, or raise for a folder, a pipe or a device."""
    try:
        mode = file.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise FieldInvalid("is not a file, and nothing else is replaced", place="--path")
    return mode & 0o777


@profile.command("check")
@click.argument("path", default=PROFILE_FILE, metavar="[FILE]")
@common_options
def _check_command(*, path: str, home: str | None, as_json: bool) -> None:  # noqa: ARG001 - like every command
    """Say in plain words what the profile FILE lets an assistant do; REMIT.md where none is named.

    Example: remit profile check
    """
    with report_errors(as_json=as_json):
        loaded = load_profile(path)
        mission = mission_of(loaded)
        remarks = remarks_on(loaded.profile)
    if as_json:
        told = {"ok": True, "mode": loaded.profile.mode, "mission": to_builtins(mission), "remarks": remarks}
        return show_data(told)
    for sentence in (*describe_mission(mission), f"Mode {loaded.profile.mode}: {_MODES[loaded.profile.mode]}."):
        show_facts({}, mark=sentence)
    for remark in remarks:
        note(remark)
    return None


def load_profile(path: str) -> LoadedProfile:
    """Return the profile in a file, or raise for what cannot be read or breaks a rule."""
    named = user_path(path)
    if not os.path.lexists(named):
        missing = FieldInvalid("is not there", place=Path(named).name)
        missing.add_note("Write one with: remit profile init")
        raise missing
    said = choose_profile(named, ".").profile
    beside = os.path.dirname(os.path.abspath(named))  # noqa: PTH100, PTH120 - a link is taken where it lies
    return LoadedProfile(said, profile_folder(said, beside))


def mission_of(loaded: LoadedProfile, agent_id: str = AGENT_ID) -> Mission:
    """Return the mission of a profile for its own folder, with every path as it really is."""
    return compile_profile(loaded.profile, loaded.folder, agent_id, resolve=_resolve)


def _resolve(path: str) -> tuple[str, ...]:
    try:
        return resolve_scope([path])
    except InputError as error:
        raise FieldInvalid(f"{path!r}: {error.problem}", place="profile") from None
