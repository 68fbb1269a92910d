"""`remit profile`: a profile to begin with, and what a profile comes to.

A profile is for the folder that it names, started at the place of the file; a link is taken where it lies. Keeps this
invariant: a file that is there is not overwritten without `--force`, and nothing but a file ever is; what is written is
whole, or not there.
"""

import os
import secrets
import stat
from pathlib import Path
from typing import Final, NamedTuple

import click
from msgspec import to_builtins

from remit.claims.mission import Mission
from remit.cli.errors import reported
from remit.cli.options import everywhere
from remit.cli.profiles import PROFILE_FILE, choose_profile, folder_of
from remit.cli.render import note, show_data, show_facts
from remit.cli.resources import real_scope
from remit.config import user_path
from remit.errors import FieldInvalid, InputError
from remit.profiles.compiling import compile_profile, remarks_on
from remit.profiles.profile import Profile
from remit.profiles.templates import DEFAULT_TEMPLATE, TEMPLATES, template
from remit.profiles.words import describe_mission

__all__ = ["AGENT_ID", "Loaded", "load_profile", "mission_of", "profile"]

# Who acts under a profile, where nobody says who it is.
AGENT_ID: Final = "agent:assistant"
_MODES: Final = {
    "ask": "what is permitted, the assistant asks about as usual",
    "allow": "what is permitted, the assistant need not ask about",
}


class Loaded(NamedTuple):
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
@everywhere
def _init_command(*, name: str, path: str, force: bool, home: str | None, as_json: bool) -> None:  # noqa: ARG001 - like every command
    """Write a profile: a file in plain words that says what an assistant may do.

    Example: remit profile init --template read-only
    """
    with reported(as_json=as_json):
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
@everywhere
def _check_command(*, path: str, home: str | None, as_json: bool) -> None:  # noqa: ARG001 - like every command
    """Say in plain words what the profile FILE lets an assistant do; REMIT.md where none is named.

    Example: remit profile check
    """
    with reported(as_json=as_json):
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


def load_profile(path: str) -> Loaded:
    """Return the profile in a file, or raise for what cannot be read or breaks a rule."""
    named = user_path(path)
    if not os.path.lexists(named):
        missing = FieldInvalid("is not there", place=Path(named).name)
        missing.add_note("Write one with: remit profile init")
        raise missing
    said = choose_profile(named, ".").profile
    beside = os.path.dirname(os.path.abspath(named))  # noqa: PTH100, PTH120 - a link is taken where it lies
    return Loaded(said, folder_of(said, beside))


def mission_of(loaded: Loaded, agent_id: str = AGENT_ID) -> Mission:
    """Return the mission of a profile for its own folder, with every path as it really is."""
    return compile_profile(loaded.profile, loaded.folder, agent_id, resolve=_resolve)


def _resolve(path: str) -> tuple[str, ...]:
    try:
        return real_scope([path])
    except InputError as error:
        raise FieldInvalid(f"{path!r}: {error.problem}", place="profile") from None
