"""How far `remit protect` reaches beside settings: into sessions that run, and to what runs git's hooks, and Remit.

Keeps this invariant: once a protection has another mission, no session of it goes on under the one before.
"""

import os
import sys
from pathlib import Path
from typing import Final

import click

import remit
from remit.assistants.doctor.evidence import governed_sessions
from remit.assistants.install.plan import Level, Place, Planner
from remit.assistants.records import Protection
from remit.cli.errors import NO
from remit.cli.render import note
from remit.cli.service import opened_service
from remit.errors import FieldInvalid
from remit.governor.sessions import End

__all__ = ["check_agreed", "end_sessions", "steering"]

# Settings that cover more than the folder they were asked for in.
_WIDE: Final[dict[Level, str]] = {
    "user": "these settings hold in every folder that you work in, not only in this one",
    "managed": "these settings hold for everyone on this machine, in every folder",
}
# What git runs or follows without being told to by its command line.
_OF_GIT: Final = (".git/config", ".git/hooks", ".git/info")


def check_agreed(planner: Planner, place: Place, *, yes: bool, as_json: bool) -> None:
    """Raise unless a person has agreed to settings that cover more than one folder; at a terminal, ask."""
    wide = _WIDE.get(place.level)
    if wide is None or yes:
        return
    if not as_json and sys.stdin.isatty() and sys.stderr.isatty():
        note(f"{planner.title}: {wide}")
        if click.confirm("remit: protect all of that?", err=True):
            return
        note("nothing was changed")
        raise SystemExit(NO)
    refused = FieldInvalid(f"{planner.title}: {wide}", place="--settings")
    refused.add_note(f"To agree: remit protect {planner.name} --settings {place.level} --yes")
    raise refused


def end_sessions(home: str | None, protection: Protection, *, as_json: bool) -> int:
    """Return how many sessions of a protection were ended; the next call of each begins one under the new mission."""
    with opened_service(home, as_json=as_json) as service:
        governed = governed_sessions(service.governor.means.reader, protection.assistant)
        ours = [session for one in governed if one.protection == protection.id for session in one.sessions]
        # Those of subagents end with the one that started them.
        running = [session for session in ours if session.state == "active" and session.parent is None]
        for session in running:
            service.governor.run(End(session.id))
    return len(running)


def steering(folder: str | None) -> tuple[str, ...]:
    """Return what steers any assistant in a folder: what git runs by itself, and Remit if it is installed there."""
    if folder is None:
        return (*(f"**/{name}" for name in _OF_GIT), *_installed())
    inside = (path for path in _installed() if Path(path).is_relative_to(folder) and path != folder)
    return (*(str(Path(folder, name)) for name in _OF_GIT), *inside)


def _installed() -> tuple[str, ...]:
    """Return the folder of this program, and its virtual environment if it has one."""
    package = os.path.realpath(Path(remit.__file__).parent)
    is_own = sys.prefix != sys.base_prefix
    return (package, *((os.path.realpath(sys.prefix),) if is_own else ()))
