"""`remit protect`: installs hooks so that a coding assistant is governed by a profile; `--undo` removes them."""

import os
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import click
from msgspec import to_builtins
from rich.text import Text

import remit
from remit.assistants.install.install import UndoneFile, install, load_intact, uninstall
from remit.assistants.install.naming import protection_id, shared_protection_id
from remit.assistants.install.plan import (
    HookConnection,
    InstallTarget,
    Plan,
    Planner,
)
from remit.assistants.reconcile.evidence import governed_sessions
from remit.assistants.records import Level, OnTamper, Protection, Protections, hook_script_text
from remit.assistants.registry import PLANNERS
from remit.claims.mission import EVERYTHING, Mission
from remit.claims.types import encode
from remit.cli.assistants import check_folder, find_program, get_program_version, make_wire
from remit.cli.background import start_service
from remit.cli.errors import NO, report_errors
from remit.cli.homes import open_command_home, open_service
from remit.cli.hub import hub_options
from remit.cli.options import common_options
from remit.cli.profile import PROFILE_FILE, ChosenProfile, choose_profile, profile_folder
from remit.cli.render import TerminalConsole, escape_text, note, show_data, show_facts
from remit.cli.resources import resolve_path, resolve_scope
from remit.cli.setup import prepare_home
from remit.config import assistant_config_folder, ensure_token, home_path, load_settings, user_home
from remit.errors import FieldInvalid, HomeUnsafe, ProtectionNotFound, StateMissing
from remit.governor.sessions import EndSession
from remit.ledger.home import Home
from remit.profiles.compiling import compile_profile, remarks_on
from remit.server.run_files import load_running

__all__ = [
    "ProtectionSummary",
    "confirm_wide_settings",
    "control_paths",
    "end_sessions",
    "protect",
    "show_protected",
    "show_undone",
]

# Settings that apply beyond the current folder.
_WIDE_LEVELS: Final[dict[Level, str]] = {
    "user": "these settings apply in every folder that you work in, not only in this one",
    "managed": "these settings apply to everyone on this machine, in every folder",
}
# Files that make git run programs by itself.
_GIT_PATHS: Final = (".git/config", ".git/hooks", ".git/info")


def confirm_wide_settings(planner: Planner, place: InstallTarget, *, yes: bool, as_json: bool) -> None:
    """Ask for confirmation if the settings apply beyond one folder. Raises without a terminal and `--yes`."""
    wide = _WIDE_LEVELS.get(place.level)
    if wide is None or yes:
        return
    if not as_json and sys.stdin.isatty() and sys.stderr.isatty():
        note(f"{planner.title}: {wide}")
        if click.confirm("remit: continue?", err=True):
            return
        note("nothing was changed")
        raise SystemExit(NO)
    refused = FieldInvalid(f"{planner.title}: {wide}", place="--settings")
    refused.add_note(f"To confirm: remit protect {planner.name} --settings {place.level} --yes")
    raise refused


def end_sessions(home: str | None, protection: Protection, *, as_json: bool) -> int:
    """End the active sessions of a protection, and return their number. The next call starts a new one."""
    with open_service(home, as_json=as_json) as service:
        governed = governed_sessions(service.governor.context.reader, protection.assistant)
        ours = [session for one in governed if one.protection == protection.id for session in one.sessions]
        # Sessions of subagents end with their parent.
        running = [session for session in ours if session.state == "active" and session.parent is None]
        for session in running:
            service.governor.run(EndSession(session.id))
    return len(running)


def control_paths(folder: str | None) -> tuple[str, ...]:
    """Return paths in a folder that can change what any assistant runs: git's hooks, and Remit if installed there."""
    if folder is None:
        return (*(f"**/{name}" for name in _GIT_PATHS), *_own_folders())
    inside = (path for path in _own_folders() if Path(path).is_relative_to(folder) and path != folder)
    return (*(str(Path(folder, name)) for name in _GIT_PATHS), *inside)


def _own_folders() -> tuple[str, ...]:
    """Return the folder of this package, and its virtual environment if it has one."""
    package = os.path.realpath(Path(remit.__file__).parent)
    is_own = sys.prefix != sys.base_prefix
    return (package, *((os.path.realpath(sys.prefix),) if is_own else ()))


_MARKS: Final = {
    "protected": ("+", "green"),
    "not protected": ("-", "yellow"),
    "next": (">", "cyan"),
    "files": ("-", "dim"),
}
_WHERE: Final[dict[Level, str]] = {
    "local": "your own, in this folder",
    "project": "shared with everyone who works in this folder",
    "user": "yours, in every folder",
    "managed": "for everyone on this machine",
}
_TAMPERING: Final[dict[OnTamper, str]] = {
    "end": "if the settings cannot be kept in place, its sessions end",
    "stop": "if the settings cannot be kept in place, its sessions end and its processes are stopped",
}


class ProtectionSummary(NamedTuple):
    """What the output of `remit protect` says."""

    title: str
    protection: Protection
    plan: Plan
    from_template: bool
    hub_runs: bool
    # How many sessions were ended because they had another mission.
    ended: int = 0


def show_protected(summary: ProtectionSummary, *, as_json: bool) -> None:
    """Print what is protected, and what to do next."""
    if as_json:
        return show_data(_document(summary))
    for warning in summary.plan.warnings:
        note(f"careful: {warning}")
    if summary.ended:
        note(f"ended {summary.ended} sessions with the old mission; their next call starts a new one")
    where = summary.protection.folder or _WHERE[summary.protection.level]
    show_facts(_facts(summary), mark=f"{summary.title} is protected: {where}", style="bold green")
    _show_list("protected", summary.plan.protected)
    _show_list("not protected", summary.plan.not_protected)
    return _show_list("next", _steps(summary))


def show_undone(title: str, protection: Protection, undone: Sequence[UndoneFile], *, as_json: bool) -> None:
    """Print what was removed."""
    if as_json:
        files = [one._asdict() for one in undone]
        return show_data({"ok": True, "protection": protection.id, "undone": True, "files": files})
    show_facts(
        {}, mark=f"{title} is no longer protected: {protection.folder or _WHERE[protection.level]}", style="bold"
    )
    return _show_list("files", [f"{one.path}: {one.what}" for one in undone])


def _facts(summary: ProtectionSummary) -> dict[str, str]:
    protection, mission = summary.protection, summary.protection.mission
    source = f"{protection.profile} (no profile here; write one: remit profile init)"
    asks = {"ask": "it asks you as usual before permitted calls", "allow": "it need not ask you before permitted calls"}
    hours = f"{mission['max_duration_s'] / 3600:g} hours"
    return {
        "profile": source if summary.from_template else protection.profile,
        "mission": mission["mission"],
        **_describe_scope(mission["resource_scope"]),
        "mode": f"{protection.mode}: {asks[protection.mode]}",
        "passport": f"each session gets its own: at most {mission['max_tool_calls']} calls in {hours}",
        "settings": ", ".join(one.path for one in protection.files) + f" ({_WHERE[protection.level]})",
        "tampering": _TAMPERING[protection.on_tamper],
        "hub": protection.hub_url + ("" if summary.hub_runs else " (not running: remit up --background)"),
    }


def _describe_scope(scope: Sequence[str]) -> dict[str, str]:
    """Return the whole scope: a profile that came with the folder must not hide an entry among others."""
    if EVERYTHING in scope:
        return {"places": "every file", "hosts": "every host"}
    places = ["the folder that it is started in" if entry == "." else entry for entry in scope if "://" not in entry]
    hosts = [entry for entry in scope if "://" in entry]
    return {"places": ", ".join(places) or "none", "hosts": ", ".join(hosts) or "none"}


def _steps(summary: ProtectionSummary) -> list[str]:
    name = summary.protection.assistant
    again = "" if summary.protection.level == "local" else f" --settings {summary.protection.level}"
    start = [] if summary.hub_runs else ["remit up --background: without the Hub, the assistant can run nothing"]
    return [
        *summary.plan.steps,
        *start,
        f"remit doctor {name} tests that a forbidden call is denied",
        "remit open shows every call and its receipt",
        f"remit protect {name}{again} --undo removes the protection",
    ]


def _show_list(title: str, sentences: Iterable[str]) -> None:
    screen = TerminalConsole(highlight=False)
    mark, style = _MARKS[title]
    screen.print(Text(f"\n{title.capitalize()}", "bold"), soft_wrap=True)
    for sentence in sentences:
        screen.print(Text.assemble((f"  {mark} ", style), escape_text(sentence)), soft_wrap=True)


def _document(summary: ProtectionSummary) -> dict[str, object]:
    protection, plan = summary.protection, summary.plan
    return {
        "ok": True,
        "protection": protection.id,
        "assistant": protection.assistant,
        "version": protection.version,
        "level": protection.level,
        "folder": protection.folder,
        "form": protection.form,
        "mode": protection.mode,
        "profile": protection.profile,
        "mission": protection.mission,
        "on_tamper": protection.on_tamper,
        "ended_sessions": summary.ended,
        "settings": [one.path for one in protection.files],
        "guards": list(protection.guards),
        "hub": {"url": protection.hub_url, "running": summary.hub_runs},
        "protected": list(plan.protected),
        "not_protected": list(plan.not_protected),
        "steps": _steps(summary),
        "warnings": list(plan.warnings),
    }


_ON_TAMPER: Final[tuple[OnTamper, ...]] = ("end", "stop")
_LEVELS: Final[tuple[Level, ...]] = ("local", "project", "user", "managed")


class _InstallRequest(NamedTuple):
    """The assistant, and where its hooks are installed."""

    planner: Planner
    place: InstallTarget
    on_tamper: OnTamper = "end"


class _Installed(NamedTuple):
    """A stored protection, its plan, and whether active sessions may still have an older mission."""

    kept: Protection
    plan: Plan
    is_other_mission: bool


class _HubAddress(NamedTuple):
    """The address of the Hub, its token, and whether it is running."""

    url: str
    token: str
    runs: bool = True


@click.command()
@click.argument("assistant", type=click.Choice(sorted(PLANNERS)))
@click.option(
    "--profile", metavar="FILE", help=f"What it may do. Default: {PROFILE_FILE} of the folder, else a template."
)
@click.option("--scope", metavar="DIR", help="The folder that it works in. Default: the current one.")
@click.option("--settings", "level", type=click.Choice(_LEVELS), help="Which settings get the hooks; see above.")
@click.option(
    "--on-tamper",
    type=click.Choice(_ON_TAMPER),
    default="end",
    show_default=True,
    help="If the settings cannot be kept in place: end its sessions, or stop its processes too.",
)
@click.option("--yes", is_flag=True, help="Confirm settings that apply beyond one folder.")
@click.option("--undo", is_flag=True, help="Remove what was written, and restore what was there before.")
@click.option("--program", "--claude", "program", metavar="PATH", help="The assistant's program, if not in PATH.")
@click.option("--no-start", is_flag=True, help="Do not start the Hub. Until it runs, the assistant can run nothing.")
@click.option("--managed-dir", "managed", hidden=True, default="")
@common_options
def protect(
    *,
    assistant: str,
    profile: str | None,
    scope: str | None,
    level: Level | None,
    on_tamper: OnTamper,
    yes: bool,
    undo: bool,
    program: str | None,
    no_start: bool,
    managed: str,
    home: str | None,
    as_json: bool,
) -> None:
    """Protect a coding assistant: from its next start on, Remit decides on every call it makes.

    What it may do is stored in the home, out of its reach; run the command again after changing the profile. Settings:
    local are your own in a folder; project are shared in a folder; user apply in all your folders; managed apply to
    everyone on this machine, and only root can remove them. The last two ask for confirmation, or need --yes.

    While the Hub runs, it restores settings that are changed. If it cannot, or has to repeatedly, the sessions of
    the assistant end until this command is run again.

    \b
    Example:
      remit profile init
      remit protect claude-code
    """  # noqa: D301 - click: \\b keeps line breaks
    with report_errors(as_json=as_json):
        request = _parse_options(PLANNERS[assistant], level, scope, managed)._replace(on_tamper=on_tamper)
    if undo:
        return _undo(request, home, as_json=as_json)
    with report_errors(as_json=as_json):
        confirm_wide_settings(request.planner, request.place, yes=yes, as_json=as_json)
        request = _check_request(request, scope, program)
        chosen = choose_profile(profile, request.place.folder)
        mission = _mission(request, chosen)
    for remark in remarks_on(chosen.profile):
        note(f"{chosen.source}, {remark}")
    prepare_home(home, as_json=as_json)
    with open_command_home(home, as_json=as_json) as opened:
        hub = _ensure_hub(opened, home, start=not no_start)
        done = _install(opened, request, chosen, mission, hub)
    ended = end_sessions(home, done.kept, as_json=as_json) if done.is_other_mission else 0
    summary = ProtectionSummary(request.planner.title, done.kept, done.plan, chosen.path is None, hub.runs, ended)
    return show_protected(summary, as_json=as_json)


def _parse_options(planner: Planner, level: Level | None, scope: str | None, managed: str) -> _InstallRequest:
    """Return the assistant and the place of its hooks, from the options."""
    meant = level or planner.levels[0]
    if meant not in planner.levels:
        raise FieldInvalid(f"{planner.title} has only these settings: {', '.join(planner.levels)}", place="--settings")
    if meant == "managed" and not managed and os.geteuid() != 0:
        refused = HomeUnsafe("only root can write managed settings")
        refused.add_note("Run the command as root: then the Hub and its home belong to root too.")
        raise refused
    known_home = user_home()
    if known_home is None:
        raise StateMissing("this user has no home directory: set HOME")
    place = InstallTarget(
        level=meant,
        folder=_folder(scope, meant),
        user_home=known_home,
        config=assistant_config_folder(planner.variable),
        managed=managed and resolve_path(managed, "--managed-dir"),
    )
    return _InstallRequest(planner, place)


def _folder(scope: str | None, level: Level) -> str | None:
    if scope is None:
        return None if level in ("user", "managed") else resolve_path(".", "--scope")
    return resolve_path(scope, "--scope")


def _check_request(request: _InstallRequest, scope: str | None, program: str | None) -> _InstallRequest:
    """Check the folder, and add the version and the path of the assistant's program."""
    place = request.place
    if place.folder is not None:
        check_folder(place.folder, named=scope is not None)
    name = request.planner.program
    found = place._replace(version=get_program_version(name, program), program=find_program(name, program))
    return request._replace(place=found)


def _mission(request: _InstallRequest, chosen: ChosenProfile) -> Mission:
    """Return the mission of a profile. The folder that it names is inside the protected one."""
    start = request.place.folder
    folder = None if start is None else profile_folder(chosen.profile, start)
    return compile_profile(chosen.profile, folder, request.planner.name, resolve=lambda text: resolve_scope([text]))


def _ensure_hub(opened: Home, home: str | None, *, start: bool) -> _HubAddress:
    token = ensure_token(opened, "hub")
    running = load_running(opened, "hub")
    if running is not None:
        return _HubAddress(running.listening, token)
    if not start:
        return _HubAddress(load_settings(opened).hub_url, token, runs=False)
    options = hub_options(home)
    given = {"home": home_path(home), "host": options.host, "port": options.port}
    return _HubAddress(start_service(opened, "hub", given, options.asked()).address, token)


def _install(
    opened: Home, request: _InstallRequest, chosen: ChosenProfile, mission: Mission, hub: _HubAddress
) -> _Installed:
    """Write the hooks and store the protection."""
    protections = Protections(opened)
    with protections.locked():
        protections.put_script(hook_script_text().encode("utf-8"))
        name = request.planner.name

        def make_own_wire(protection: str) -> HookConnection:
            return make_wire(opened.path, protection, name, hub_url=hub.url, hub_token=hub.token)

        own = make_own_wire(protection_id(name, request.place, opened.path))
        wire, plan = own, request.planner.plan(request.place, own)
        shared = shared_protection_id(plan) if request.place.level == "project" else None
        if shared is not None and _is_free(protections, shared, request):
            wire = make_own_wire(shared)
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
            guards=_guarded_paths(request, chosen, plan, wire),
            generation=_next_generation(known),
            on_tamper=request.on_tamper,
        )
        adopted = wire.protection != own.protection
        kept = install(protections, protection, plan, wire.content(), adopted=adopted)
    return _Installed(kept, plan, is_other_mission=known is not None and encode(known.mission) != encode(kept.mission))


def _next_generation(known: Protection | None) -> int:
    """Return a number larger than that of any earlier protection here, even one that was removed."""
    return max(int(time.time()), known.generation + 1 if known else 1)


def _is_free(protections: Protections, protection: str, request: _InstallRequest) -> bool:
    """Tell whether the id in shared settings is not used for another place in this home."""
    known = load_intact(protections, protection)
    return (
        not protections.holds(protection)
        if known is None
        else (known.assistant, known.folder) == (request.planner.name, request.place.folder)
    )


def _guarded_paths(
    request: _InstallRequest, chosen: ChosenProfile, plan: Plan, wire: HookConnection
) -> tuple[str, ...]:
    """Return the guarded paths, each as a link and resolved: calls may name either."""
    here = str(Path(request.place.folder, PROFILE_FILE)) if request.place.folder else f"**/{PROFILE_FILE}"
    named = (
        *plan.guards,
        here,
        *([chosen.path] if chosen.path else []),
        wire.python,
        *control_paths(request.place.folder),
    )
    return tuple(dict.fromkeys(real for path in named for real in _real_names(path)))


def _real_names(path: str) -> tuple[str, ...]:
    if not path.startswith("/"):
        return (path,)
    return f"{os.path.realpath(Path(path).parent)}/{Path(path).name}", os.path.realpath(path)


def _undo(request: _InstallRequest, home: str | None, *, as_json: bool) -> None:
    with open_command_home(home, as_json=as_json) as opened:
        protections = Protections(opened)
        with protections.locked():
            protection = _find_protection(
                protections, request, protection_id(request.planner.name, request.place, opened.path)
            )
            undone = uninstall(protections, protection)
    show_undone(request.planner.title, protection, undone, as_json=as_json)


def _find_protection(protections: Protections, request: _InstallRequest, own: str) -> Protection:
    """Return the protection to remove. Raises with a list of those that exist."""
    level, folder = request.place.level, request.place.folder
    known = protections.all(damaged=lambda error: note(f"careful: {error}"))
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
