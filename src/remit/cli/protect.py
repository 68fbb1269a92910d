"""`remit protect`: installs hooks so that a coding assistant is governed by a profile; `--undo` removes them."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.text import Text

from remit.assistants.install.install import UndoneFile, uninstall
from remit.assistants.install.plan import InstallTarget, Plan, Planner
from remit.assistants.install.program import find_program, get_program_version
from remit.assistants.install.protect import (
    HubAddress,
    InstallRequest,
    end_sessions,
    find_protection,
    install_protection,
)
from remit.assistants.records import Level, OnTamper, Protection, Protections
from remit.assistants.registry import PLANNERS
from remit.claims.mission import EVERYTHING, Mission
from remit.cli.background import start_service
from remit.cli.errors import NO, report_errors
from remit.cli.homes import open_command_home, open_service
from remit.cli.hub import hub_options
from remit.cli.options import common_options
from remit.cli.profile import choose_profile, profile_folder
from remit.cli.render import escape_text, note, show_data, show_facts
from remit.cli.resources import resolve_path, resolve_scope
from remit.cli.setup import prepare_home
from remit.cli.terminal import TerminalConsole
from remit.config import assistant_config_folder, ensure_token, home_path, load_settings, user_home
from remit.errors import FieldInvalid, HomeUnsafe, StateMissing
from remit.ledger.home import Home
from remit.profiles.compiling import compile_profile, remarks_on
from remit.profiles.profile import PROFILE_FILE, ChosenProfile
from remit.server.run_files import load_running

# Settings that apply beyond the current folder.
_WIDE_LEVELS: Final[dict[Level, str]] = {
    "user": "these settings apply in every folder that you work in, not only in this one",
    "managed": "these settings apply to everyone on this machine, in every folder",
}


def _confirm_wide_settings(planner: Planner, place: InstallTarget, *, yes: bool, as_json: bool) -> None:
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


class _ProtectionSummary(NamedTuple):
    """The content of the output of `remit protect`."""

    title: str
    protection: Protection
    plan: Plan
    from_template: bool
    hub_runs: bool
    # How many sessions were ended because they had another mission.
    ended: int = 0


def _show_protected(summary: _ProtectionSummary, *, as_json: bool) -> None:
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


def _show_undone(title: str, protection: Protection, undone: Sequence[UndoneFile], *, as_json: bool) -> None:
    """Print what was removed."""
    if as_json:
        files = [one._asdict() for one in undone]
        return show_data({"ok": True, "protection": protection.id, "undone": True, "files": files})
    show_facts(
        {}, mark=f"{title} is no longer protected: {protection.folder or _WHERE[protection.level]}", style="bold"
    )
    return _show_list("files", [f"{one.path}: {one.what}" for one in undone])


def _facts(summary: _ProtectionSummary) -> dict[str, str]:
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


def _steps(summary: _ProtectionSummary) -> list[str]:
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


def _document(summary: _ProtectionSummary) -> dict[str, object]:
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
        _confirm_wide_settings(request.planner, request.place, yes=yes, as_json=as_json)
        request = _check_request(request, scope, program)
        chosen = choose_profile(profile, request.place.folder)
        mission = _compile_mission(request, chosen)
    for remark in remarks_on(chosen.profile):
        note(f"{chosen.source}, {remark}")
    prepare_home(home, as_json=as_json)
    with open_command_home(home, as_json=as_json) as opened:
        hub = _ensure_hub(opened, home, start=not no_start)
        done = install_protection(opened, request, chosen, mission, hub)
    ended = 0
    if done.replaced_mission:
        with open_service(home, as_json=as_json) as service:
            ended = end_sessions(service.governor, done.protection)
    title = request.planner.title
    summary = _ProtectionSummary(title, done.protection, done.plan, chosen.path is None, hub.is_running, ended)
    return _show_protected(summary, as_json=as_json)


def _parse_options(planner: Planner, level: Level | None, scope: str | None, managed: str) -> InstallRequest:
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
    return InstallRequest(planner, place)


def _folder(scope: str | None, level: Level) -> str | None:
    if scope is None:
        return None if level in ("user", "managed") else resolve_path(".", "--scope")
    return resolve_path(scope, "--scope")


def _check_request(request: InstallRequest, scope: str | None, program: str | None) -> InstallRequest:
    """Check the folder, and add the version and the path of the assistant's program."""
    place = request.place
    if place.folder is not None:
        _check_folder(place.folder, named=scope is not None)
    name = request.planner.program
    found = place._replace(version=get_program_version(name, program), program=find_program(name, program))
    return request._replace(place=found)


def _check_folder(folder: str, *, named: bool) -> None:
    """Raise unless an absolute, real path is a folder that can be protected.

    The root and the user's home contain everything, so they must be named explicitly.
    """
    if not Path(folder).is_dir():
        raise FieldInvalid(f"{folder} is not a folder", place="--scope")
    if not named and folder in ("/", str(Path(user_home() or "/").resolve())):
        raise FieldInvalid(f"{folder} contains all your files; if you mean it: --scope {folder}", place="--scope")


def _compile_mission(request: InstallRequest, chosen: ChosenProfile) -> Mission:
    """Return the mission of a profile. The folder that it names is inside the protected one."""
    start = request.place.folder
    folder = None if start is None else profile_folder(chosen.profile, start)
    return compile_profile(chosen.profile, folder, request.planner.name, resolve=lambda text: resolve_scope([text]))


def _ensure_hub(opened: Home, home: str | None, *, start: bool) -> HubAddress:
    token = ensure_token(opened, "hub")
    running = load_running(opened, "hub")
    if running is not None:
        return HubAddress(running.listening, token)
    if not start:
        return HubAddress(load_settings(opened).hub_url, token, is_running=False)
    options = hub_options(home)
    given = {"home": home_path(home), "host": options.host, "port": options.port}
    return HubAddress(start_service(opened, "hub", given, options.asked()).address, token)


def _undo(request: InstallRequest, home: str | None, *, as_json: bool) -> None:
    with open_command_home(home, as_json=as_json) as opened:
        protections = Protections(opened)
        with protections.locked():
            known = protections.all(damaged=lambda error: note(f"careful: {error}"))
            protection = find_protection(known, request, opened.path)
            undone = uninstall(protections, protection)
    _show_undone(request.planner.title, protection, undone, as_json=as_json)
