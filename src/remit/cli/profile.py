"""`remit profile`: writes a profile from a template, and shows what a profile allows. Also loads profiles for others.

A profile is for the folder that it names, relative to the folder of its file. Invariants: the folder lies
inside that one, links followed; a template replaces a missing file only, never an unreadable one; and an existing file
is not overwritten without `--force`.
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
from remit.config import expand_user_path
from remit.errors import FieldInvalid, InputError, quote
from remit.profiles.compiling import compile_profile, remarks_on
from remit.profiles.lines import MAX_BYTES, decode_profile
from remit.profiles.profile import PROFILE_FILE, ChosenProfile, Profile, parse_profile
from remit.profiles.templates import DEFAULT_TEMPLATE, TEMPLATES, template
from remit.profiles.words import describe_mission


def choose_profile(named: str | None, folder: str | None) -> ChosenProfile:
    """Load the named profile, else REMIT.md of the folder, else the default template."""
    path = Path(_expand_path(named)) if named is not None else Path(folder or "/", PROFILE_FILE)
    if named is None and (folder is None or not _exists(path)):
        text = template(DEFAULT_TEMPLATE)
        return ChosenProfile(parse_profile(text), f"template {DEFAULT_TEMPLATE}", None, _digest(text.encode("utf-8")))
    data = _read(path)
    try:
        profile = parse_profile(decode_profile(data))
        return ChosenProfile(profile, str(path), resolve_path(str(path), "--profile"), _digest(data))
    except InputError as error:
        raise FieldInvalid(error.problem, place=f"{path.name} {error.place}") from None


def profile_folder(profile: Profile, start: str) -> str:
    """Return the folder that a profile is for, absolute and real. Raises if a link leads out of `start`."""
    whole = os.path.realpath(start)
    folder = resolve_path(os.path.join(start, profile.folder), "Folder")  # noqa: PTH118 - dots stay
    if os.path.commonpath((whole, folder)) != whole:
        raise FieldInvalid(
            f"{quote(profile.folder)} is a link to another place: allow that place with “Use”", place="Folder"
        )
    return folder


def _expand_path(named: str) -> str:
    try:
        return expand_user_path(named)
    except InputError as error:
        raise FieldInvalid(error.problem, place="--profile") from None


def _exists(path: Path) -> bool:
    """Return whether there is anything of this name, even a dangling link. Raises if that cannot be found out."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        raise FieldInvalid(f"{path} cannot be read", place=path.name) from None
    return True


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise FieldInvalid(f"{path} is not a file", place=path.name)
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError:
        raise FieldInvalid(f"{path} cannot be read", place=path.name) from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# The agent id for a profile, if none is given.
AGENT_ID: Final = "agent:assistant"
_MODES: Final = {
    "ask": "the assistant asks as usual before permitted calls",
    "allow": "the assistant need not ask before permitted calls",
}


class LoadedProfile(NamedTuple):
    """A profile, and the folder that it is for, absolute and real."""

    profile: Profile
    folder: str


@click.group()
def profile() -> None:
    """Write a profile to edit, and show what it allows."""


@profile.command("init")
@click.option(
    "--template",
    "name",
    type=click.Choice(TEMPLATES),
    default=DEFAULT_TEMPLATE,
    show_default=True,
    help="The template to start from.",
)
@click.option("--path", default=PROFILE_FILE, show_default=True, metavar="FILE", help="The file to write.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@common_options
def _init_command(*, name: str, path: str, force: bool, home: str | None, as_json: bool) -> None:  # noqa: ARG001 - like every command
    """Write a profile: a Markdown file that describes in plain words what an assistant may do.

    Example: remit profile init --template read-only
    """
    with report_errors(as_json=as_json):
        file = Path(expand_user_path(path))
        _write(file, template(name).encode(), force=force)
    if as_json:
        return show_data({"ok": True, "path": str(file), "template": name})
    check = "remit profile check" + ("" if path == PROFILE_FILE else f" {path}")
    protect = "remit protect claude-code" + ("" if path == PROFILE_FILE else f" --profile {path}")
    return show_facts({"written": f"{file} ({name})", "next": f"edit it, then: {check}", "then": protect})


def _write(file: Path, content: bytes, *, force: bool) -> None:
    try:
        if force:
            _replace(Path(os.path.realpath(file)), content)
        else:
            _create(file, content)
    except FileExistsError:
        refused = FieldInvalid(f"{file} exists already", place="--path")
        refused.add_note("Overwrite it with --force, or name another file with --path.")
        raise refused from None
    except (OSError, ValueError):
        raise FieldInvalid(f"{file} cannot be written", place="--path") from None


def _create(file: Path, content: bytes) -> None:
    new = file.open("xb")
    try:
        with new:
            new.write(content)
    except OSError:
        file.unlink()
        raise


def _replace(file: Path, content: bytes) -> None:
    mode = _file_mode(file)
    unfinished = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    _create(unfinished, content)
    try:
        if mode is not None:
            unfinished.chmod(mode)
        unfinished.replace(file)
    except OSError:
        unfinished.unlink()
        raise


def _file_mode(file: Path) -> int | None:
    """Return the mode of a file; None if there is none. Raises for a folder, a pipe or a device."""
    try:
        mode = file.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise FieldInvalid(f"{file} is not a regular file", place="--path")
    return mode & 0o777


@profile.command("check")
@click.argument("path", default=PROFILE_FILE, metavar="[FILE]")
@common_options
def _check_command(*, path: str, home: str | None, as_json: bool) -> None:  # noqa: ARG001 - like every command
    """Show in plain words what the profile FILE allows; by default REMIT.md.

    Example: remit profile check
    """
    with report_errors(as_json=as_json):
        loaded = load_profile(path)
        mission = compile_mission(loaded)
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
    """Load the profile in a file. Raises if it cannot be read or breaks a rule."""
    named = expand_user_path(path)
    if not os.path.lexists(named):
        missing = FieldInvalid(f"{named} does not exist", place=Path(named).name)
        missing.add_note("Write one with: remit profile init")
        raise missing
    parsed = choose_profile(named, ".").profile
    beside = os.path.dirname(os.path.abspath(named))  # noqa: PTH100, PTH120 - links stay
    return LoadedProfile(parsed, profile_folder(parsed, beside))


def compile_mission(loaded: LoadedProfile, agent_id: str = AGENT_ID) -> Mission:
    """Return the mission of a profile for its folder, with links resolved."""
    return compile_profile(loaded.profile, loaded.folder, agent_id, resolve=_resolve)


def _resolve(path: str) -> tuple[str, ...]:
    try:
        return resolve_scope([path])
    except InputError as error:
        raise FieldInvalid(f"{path!r}: {error.problem}", place="profile") from None
