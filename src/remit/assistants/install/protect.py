"""Installs the protection of an assistant: chooses its id, builds its record, and carries out its plan.

Also finds a stored protection to remove, and ends the sessions whose mission was replaced. Ids are deterministic, so
that protecting an assistant twice updates one protection. An id is not a secret: hooks authenticate with a token.
"""

import hashlib
import os
import re
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import to_builtins

from remit import version
from remit.assistants.install.files import read_file
from remit.assistants.install.install import install, load_intact
from remit.assistants.install.plan import HookConnection, InstallTarget, JsonEdit, Plan, Planner
from remit.assistants.reconcile.evidence import load_governed_sessions
from remit.assistants.records import (
    PROTECTIONS_FOLDER,
    SCRIPT_NAME,
    OnTamper,
    Protection,
    Protections,
    hook_script_text,
    wire_name,
)
from remit.claims.canonical import canonicalize
from remit.claims.mission import Mission
from remit.claims.types import encode
from remit.errors import ProtectionNotFound
from remit.governor.context import UseCaseRunner
from remit.governor.sessions import EndSession
from remit.ledger.home import Home
from remit.profiles.profile import PROFILE_FILE, ChosenProfile
from remit.server.hook_tokens import hook_token, proof_key

# Files that make git run programs.
_GIT_PATHS: Final = (".git/config", ".git/hooks", ".git/info")
# Where shared settings have the id: in the hook command, or in the URL that the first release wrote.
_ID_IN_SETTINGS: Final = re.compile(rb"(?:/protections/hook\.py\\?\" |/v1/hooks/claude-code/)(prot-[0-9a-f]{12})\b")


class InstallRequest(NamedTuple):
    """The assistant, and where its hooks are installed."""

    planner: Planner
    place: InstallTarget
    on_tamper: OnTamper = "end"


class HubAddress(NamedTuple):
    """The address of the Hub, its token, and whether it is running."""

    url: str
    token: str
    is_running: bool = True


class InstalledProtection(NamedTuple):
    """A stored protection, its plan, and whether active sessions may still have an older mission."""

    protection: Protection
    plan: Plan
    replaced_mission: bool


def install_protection(
    home: Home, request: InstallRequest, chosen: ChosenProfile, mission: Mission, hub: HubAddress
) -> InstalledProtection:
    """Write the hooks and store the protection."""
    protections = Protections(home)
    with protections.locked():
        protections.put_script(hook_script_text().encode("utf-8"))
        name = request.planner.name
        own = build_connection(home.path, protection_id(name, request.place, home.path), name, hub.url, hub.token)
        wire, plan = own, request.planner.plan(request.place, own)
        shared = find_shared_protection_id(plan) if request.place.level == "project" else None
        if shared is not None and _is_free(protections, shared, request):
            wire = build_connection(home.path, shared, name, hub.url, hub.token)
            plan = request.planner.plan(request.place, wire)
        known = load_intact(protections, wire.protection)
        protection = Protection(
            id=wire.protection,
            assistant=name,
            level=request.place.level,
            folder=request.place.folder,
            mode=chosen.profile.mode,
            mission=to_builtins(mission),
            profile=chosen.path or chosen.source,
            profile_digest=chosen.digest,
            # Running the command again keeps the time of the first protection.
            made_at=known.made_at if known else datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            hub_url=hub.url,
            form=plan.form,
            version=request.place.version,
            guards=_guarded_paths(request.place, chosen, plan, wire),
            generation=_next_generation(known),
            on_tamper=request.on_tamper,
        )
        adopted = wire.protection != own.protection
        stored = install(protections, protection, plan, wire.content(), adopted=adopted)
    return InstalledProtection(stored, plan, known is not None and encode(known.mission) != encode(stored.mission))


def protection_id(assistant: str, target: InstallTarget, home: str) -> str:
    """Return the id of the protection of a target, stored in the Remit home `home`."""
    anchors = {"local": target.folder, "project": target.folder, "managed": target.managed}
    anchor = anchors.get(target.level, target.config or target.user_home) or ""
    return "prot-" + hashlib.sha256(canonicalize([assistant, target.level, anchor, home])).hexdigest()[:12]


def find_shared_protection_id(plan: Plan) -> str | None:
    """Return the id in the shared settings, if there is exactly one: all users of the settings use the same id."""
    changes = (change for change in plan.changes if isinstance(change, JsonEdit))
    texts = (read_file(change.path).data or b"" for change in changes)
    ids = {found[1] for text in texts for found in _ID_IN_SETTINGS.finditer(text)}
    return ids.pop().decode("ascii") if len(ids) == 1 else None


def build_connection(home: str, protection: str, assistant: str, hub_url: str, hub_token: str) -> HookConnection:
    """Return how the hooks of a protection connect to the Hub. `home` is the real path of the home."""
    folder = Path(home, PROTECTIONS_FOLDER)
    return HookConnection(
        protection=protection,
        assistant=assistant,
        url=f"{hub_url}/v1/hooks/{assistant}/{protection}",
        token=hook_token(hub_token, protection),
        proof=proof_key(hub_token, protection),
        path=str(folder / wire_name(protection)),
        # Not the Python of a virtual environment, which may be in the governed folder.
        python=os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
        script=str(folder / SCRIPT_NAME),
    )


def _next_generation(known: Protection | None) -> int:
    """Return a number larger than that of any earlier protection here, even one that was removed."""
    return max(int(time.time()), known.generation + 1 if known else 1)


def _is_free(protections: Protections, protection: str, request: InstallRequest) -> bool:
    """Return whether the id in shared settings is not used for another place in this home."""
    known = load_intact(protections, protection)
    return (
        not protections.holds(protection)
        if known is None
        else (known.assistant, known.folder) == (request.planner.name, request.place.folder)
    )


def _guarded_paths(place: InstallTarget, chosen: ChosenProfile, plan: Plan, wire: HookConnection) -> tuple[str, ...]:
    """Return the guarded paths, each as a link and resolved: calls may name either."""
    here = str(Path(place.folder, PROFILE_FILE)) if place.folder else f"**/{PROFILE_FILE}"
    own = [chosen.path] if chosen.path else []
    named = (*plan.guards, here, *own, wire.python, *control_paths(place.folder))
    return tuple(dict.fromkeys(real for path in named for real in _real_names(path)))


def _real_names(path: str) -> tuple[str, ...]:
    if not path.startswith("/"):
        return (path,)
    return f"{os.path.realpath(Path(path).parent)}/{Path(path).name}", os.path.realpath(path)


def control_paths(folder: str | None) -> tuple[str, ...]:
    """Return paths in a folder that can change what any assistant runs: git's hooks, and Remit if installed there."""
    if folder is None:
        return (*(f"**/{name}" for name in _GIT_PATHS), *_own_folders())
    inside = (path for path in _own_folders() if Path(path).is_relative_to(folder) and path != folder)
    return (*(str(Path(folder, name)) for name in _GIT_PATHS), *inside)


def _own_folders() -> tuple[str, ...]:
    """Return the folder of this package, and its virtual environment if it has one."""
    package = os.path.realpath(Path(version.__file__).parent)
    has_own = sys.prefix != sys.base_prefix
    return (package, *((os.path.realpath(sys.prefix),) if has_own else ()))


def find_protection(known: Iterable[Protection], request: InstallRequest, home: str) -> Protection:
    """Return the protection of a place. Raises `ProtectionNotFound` with a list of those of the assistant."""
    level, folder = request.place.level, request.place.folder
    own = protection_id(request.planner.name, request.place, home)
    ours = [one for one in known if one.assistant == request.planner.name]
    # User settings may be in several folders; shared settings may have an id from another home.
    here = [one for one in ours if one.id == own or (one.level == level == "project" and one.folder == folder)]
    if here:
        return here[0]
    missing = ProtectionNotFound(f"this home protects no {level} settings of {request.planner.title} here")
    others = [f"--settings {one.level}{_describe_place(one)}" for one in ours]
    missing.add_note(f"It protects: {'; '.join(others)}" if others else f"It does not protect {request.planner.title}.")
    raise missing


def _describe_place(protection: Protection) -> str:
    """Return the options that identify a protection among others of its level."""
    if protection.folder:
        return f" --scope {protection.folder}"
    return f" ({protection.files[-1].path})" if protection.files else ""


def end_sessions(governor: UseCaseRunner, protection: Protection) -> int:
    """End the active sessions of a protection, and return their number. The next call starts a new one."""
    governed = load_governed_sessions(governor.context.reader, protection.assistant)
    ours = [session for one in governed if one.protection == protection.id for session in one.sessions]
    # Sessions of subagents end with their parent.
    active = [session for session in ours if session.state == "active" and session.parent is None]
    for session in active:
        governor.run(EndSession(session.id))
    return len(active)
