"""The checks of `remit doctor ASSISTANT`: is its protection there, does it work, and was it gone past.

Keeps this invariant: nothing is believed because it is written somewhere. A call that nobody makes goes through every
hook that stands in the settings, and must come back refused with a receipt that verifies.
"""

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from hmac import compare_digest
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

from remit.assistants.claude_code.settings import BLOCKS_ON_FAILURE, version_of
from remit.assistants.doctor.canary import CALLING_EVENTS, CANARY_TOOL, Sent, new_canary, send
from remit.assistants.doctor.evidence import ended_for_tampering, governed_sessions, recent, refusal_in
from remit.assistants.doctor.other_hooks import hooks_of_others
from remit.assistants.doctor.processes import Effect, Suspect, running_processes, suspects
from remit.assistants.doctor.registration import Registered, excepts_hub, registered
from remit.assistants.doctor.settings import Hook
from remit.assistants.install.plan import Place, Plan, Planner, Wire
from remit.assistants.records import FOLDER, Protection, Protections, wire_name
from remit.assistants.registry import HOOK_ADAPTERS, PLANNERS
from remit.claims.mission import parse_mission
from remit.cli.assistants import find_program, get_program_version, make_wire
from remit.cli.connect import connect_hub
from remit.cli.doctor_checks import Check, CheckResult
from remit.cli.errors import advice_for
from remit.config import assistant_config, hook_variable, load_settings, user_home
from remit.errors import HubTokenRequired, InputError, RemitError, ServiceRefused
from remit.governor.sessions import End
from remit.hub.auth import hook_token, shared_hook_token
from remit.ledger.home import Home, open_home
from remit.server.record import Running, load_running
from remit.wiring import Service

__all__ = ["check_assistant"]

_MAX_WIRE: Final = 64 * 1024
_MAX_PROFILE: Final = 1024 * 1024
_AGAIN: Final = "Protect it again: remit protect {}"
_PATIENCE_S: Final = 5.0
_UNASKED: Final = "Hooks hold there, and nothing else asks: see that the profile says what you want."
# What is said of assistants that run, the worst first.
_EFFECTS: Final[Mapping[Effect, CheckResult]] = {
    "bypassing": CheckResult(
        "problem", "running without hooks", "End them; start them without that option or variable."
    ),
    "misleading": CheckResult(
        "problem",
        "running with a proxy, which is asked in the place of the Hub",
        "End them; start them with NO_PROXY=127.0.0.1, or without that variable.",
    ),
    "steering": CheckResult(
        "warning", "running with settings of their own", "Look whether these turn hooks off: the doctor does not."
    ),
    "unasking": CheckResult("warning", "running with nobody to ask", _UNASKED),
}
_HUB_AWAY: Final = "Start it: remit up --background; until then the assistant runs nothing."


class _Patient(NamedTuple):
    """A protection that is looked at, with what is known of its assistant and its place."""

    home: Home
    path: Path
    planner: Planner
    protection: Protection
    place: Place
    wire: Wire

    @property
    def again(self) -> str:
        """Return how to put it right."""
        where = f" --scope {self.protection.folder}" if self.protection.folder else ""
        usual = self.planner.levels[0] == self.protection.level
        level = "" if usual else f" --settings {self.protection.level}"
        return _AGAIN.format(self.planner.name) + level + where


def check_assistant(service: Service, path: Path, assistant: str) -> Iterator[Check]:
    """Go through the checks of an assistant: those of each protection, then what holds for all."""
    planner = PLANNERS[assistant]
    with ExitStack() as held:
        try:
            home = held.enter_context(open_home(path, create=False))
            damaged = list[RemitError]()
            protections = [one for one in Protections(home).all(damaged=damaged.append) if one.assistant == assistant]
        except RemitError as error:
            yield Check("protection", "problem", str(error), advice_for(error))
            return
        yield from (Check("protection", "problem", str(error), advice_for(error)) for error in damaged)
        if not protections:
            said = f"{planner.title} is not protected by this home"
            yield Check("protection", "problem", said, f"Protect it: remit protect {assistant}")
            return
        installed = get_program_version(planner.program, None)
        patients = [_patient(home, path, planner, protection, installed) for protection in protections]
        ours = list[Hook]()
        for patient in patients:
            found = yield from _of_protection(service, patient)
            ours += found.hooks
        yield _checked("others", _others(planner, patients, ours))
        yield _checked("processes", _processes(planner, protections))
        yield _evidence(service, planner, protections)


def _patient(home: Home, path: Path, planner: Planner, protection: Protection, installed: str) -> _Patient:
    program = find_program(planner.program, None)
    place = Place(
        protection.level,
        protection.folder,
        user_home() or "/",
        config=assistant_config(planner.variable),
        # What was there once says nothing of a program that does not tell.
        version=installed if program else protection.version,
        program=program,
    )
    wire = make_wire(
        home.path,
        protection.id,
        protection.assistant,
        hub_url=protection.hub_url,
        hub_token=load_settings(home).hub_token or "",
    )
    return _Patient(home, path, planner, protection, place, replace(wire, token=_wired_token(home, protection)))


def _wired_token(home: Home, protection: Protection) -> str:
    """Return the token that the hooks of a protection show; nothing where it cannot be read."""
    try:
        with home.folder(FOLDER, create=False) as folder:
            data = folder.read(wire_name(protection.id), max_bytes=_MAX_WIRE)
        token = json.loads(data or b"{}").get("token")
    except (RemitError, ValueError, AttributeError):
        return ""
    return token if isinstance(token, str) else ""


def _of_protection(service: Service, patient: _Patient) -> Generator[Check, None, Registered]:
    """Go through the checks of one protection; return what was found in its files."""
    yield _checked("protection", _mission(patient))
    plan, settings = _planned(patient)
    yield _checked("version", _version(patient))
    yield _checked("settings", settings)
    found = registered(patient.protection, plan.changes if plan else ())
    yield _checked("registration", _registration(patient, found))
    hub = _hub(patient)
    yield _checked("hub", hub)
    yield _checked("token", _token(patient))
    yield _checked("canary", _canary(service, patient, found, hub_answers=hub.state == "ok"))
    return found


def _checked(name: str, looked: CheckResult) -> Check:
    return Check(name, *looked)


def _mission(patient: _Patient) -> CheckResult:
    protection = patient.protection
    where = protection.folder or "wherever it is started"
    said = f"{protection.id}, {protection.level} settings, {where}"
    try:
        mission = parse_mission(protection.mission)
    except InputError as error:
        return CheckResult("problem", f"{said}: its mission cannot be used: {error}", patient.again)
    said += f"; {len(mission.allowed_tools)} tools, {mission.max_tool_calls:,} calls a session"
    if _has_changed(protection):
        return CheckResult("warning", f"{said}; its profile was changed since", patient.again)
    return CheckResult("ok", said)


def _has_changed(protection: Protection) -> bool:
    """Tell whether the profile says something else by now; a template does not, nor one that is gone."""
    try:
        with Path(protection.profile).open("rb") as file:
            data = file.read(_MAX_PROFILE)
    except OSError:
        return False
    return Path(protection.profile).is_absolute() and hashlib.sha256(data).hexdigest() != protection.profile_digest


def _planned(patient: _Patient) -> tuple[Plan | None, CheckResult]:
    """Return what would be written today, and whether anything in the settings stands against it."""
    try:
        plan = patient.planner.plan(patient.place, patient.wire)
        # Asked of the assistant itself: what is left to write is what it does not trust.
        untrusted = plan.settle() if plan.settle else ()
    except RemitError as error:
        return None, CheckResult("problem", str(error), f"Take out what is named; then: {patient.again}")
    if untrusted:
        return plan, CheckResult("problem", "hooks are not trusted, so they are skipped without a word", patient.again)
    if plan.warnings:
        return plan, CheckResult("warning", "; ".join(plan.warnings), patient.again)
    return plan, CheckResult("ok", "nothing in any layer keeps hooks from running")


def _version(patient: _Patient) -> CheckResult:
    title, version, form = patient.planner.title, patient.place.version, patient.protection.form
    if not version and form == "http" and patient.place.program:
        said = f"{title} does not tell its version, and some let calls run when a hook over HTTP fails"
        return CheckResult("problem", said, patient.again)
    if not version:
        said = f"{title} was not found in PATH, or does not tell its version"
        return CheckResult("warning", said, "Look whether it is installed, and which version.")
    if form == "http" and version_of(version) < BLOCKS_ON_FAILURE:
        return CheckResult("problem", f"{title} {version} lets calls run when a hook over HTTP fails", patient.again)
    return CheckResult("ok", f"{title} {version}, hooks by {form}")


def _registration(patient: _Patient, found: Registered) -> CheckResult:
    if found.faults:
        return CheckResult("problem", "; ".join(found.faults), patient.again)
    count = f"{len(found.hooks)} hooks in " if found.hooks else ""
    if found.changed:
        said = f"{count}{', '.join(found.changed)}: our part as written, but others have changed the file since"
        advice = f"Look at it: one mistake in it, and the assistant drops it all. If it is right: {patient.again}"
        return CheckResult("warning", said, advice)
    names = ", ".join(Path(written.path).name for written in patient.protection.files)
    return CheckResult("ok", f"{count}{names}: as written")


def _hub(patient: _Patient) -> CheckResult:
    running = load_running(patient.home, "hub")
    if running is None:
        return CheckResult("problem", "no Hub of this home is running", _HUB_AWAY)
    if running.listening != patient.protection.hub_url:
        said = f"it listens at {running.listening}, and hooks ask at {patient.protection.hub_url}"
        return CheckResult("problem", said, patient.again)
    return CheckResult("ok", f"it listens where hooks ask, at {running.listening}")


def _token(patient: _Patient) -> CheckResult:
    expected = load_settings(patient.home).hub_token
    shown = patient.wire.token
    running = load_running(patient.home, "hub")
    if running is not None and not _takes_token(patient.home, running):
        advice = f"Restart it: remit hub --stop, then remit hub --background; then: {patient.again}"
        return CheckResult("problem", "the Hub that runs has another token than this home by now", advice)
    is_old = patient.protection.generation == 0
    right = (shared_hook_token(expected) if is_old else hook_token(expected, patient.protection.id)) if expected else ""
    if not right or not shown or not compare_digest(right.encode(), shown.encode()):
        return CheckResult("problem", "hooks show a token that is not that of this protection", patient.again)
    if patient.protection.form == "http":
        return CheckResult("problem", "its token stands in a file that the assistant can read", patient.again)
    if is_old:
        return CheckResult("warning", "hooks show a token that opens other protections too", patient.again)
    return CheckResult("ok", "hooks show the token of this protection")


def _takes_token(home: Home, running: Running) -> bool:
    """Tell whether a Hub opens for the token of its home; one that does not answer says nothing of it."""
    try:
        with connect_hub(home, running, timeout_s=_PATIENCE_S, retries=0) as hub:
            hub.status()
    except ServiceRefused as error:
        return error.error_code != HubTokenRequired.code
    except RemitError:
        return True
    return True


def _canary(service: Service, patient: _Patient, found: Registered, *, hub_answers: bool) -> CheckResult:
    """Send a call that nobody makes through each hook that is asked before one."""
    hooks = _asking(patient, found)
    if not hooks:
        return CheckResult("problem", "no hook of ours is asked before a call", patient.again)
    looked = [_one_canary(service, patient, hook, hub_answers=hub_answers) for hook in hooks]
    return max(looked, key=lambda one: ("ok", "warning", "problem").index(one.state))


def _asking(patient: _Patient, found: Registered) -> list[Hook]:
    """Return the hooks that are asked before a call; a plugin asks as its wire file says."""
    event = CALLING_EVENTS[patient.planner.name].lower()
    if patient.protection.form == "plugin" and not found.faults:
        headers = {"Authorization": f"Bearer {patient.wire.token}", "X-Remit-Session": token_hex(32)}
        return [Hook(event, patient.wire.path, {"url": patient.wire.url, "headers": headers})]
    return [hook for hook in found.hooks if hook.event.lower() == event]


def _one_canary(service: Service, patient: _Patient, hook: Hook, *, hub_answers: bool) -> CheckResult:
    if not hub_answers and "url" in hook.says:
        return CheckResult("warning", "not tried: the Hub does not answer where the hook asks", _HUB_AWAY)
    inside = patient.path.absolute() / FOLDER
    folder = patient.protection.folder or str(inside)
    canary = new_canary(patient.planner.name, folder, str(inside))
    sent = send(hook, canary, HOOK_ADAPTERS[patient.planner.name], hook_variable, folder)
    if not hub_answers and sent.answer == "blocked":
        return CheckResult("warning", "the Hub does not answer, and the hook blocks, as it must", _HUB_AWAY)
    return _taken(service, patient, sent)


def _taken(service: Service, patient: _Patient, sent: Sent) -> CheckResult:
    if sent.answer != "refused":
        said = {"let through": "a call that must be refused is let through", "blocked": "blocked without a receipt"}
        return CheckResult("problem", f"{said.get(sent.answer, 'no answer')}: {sent.why}", patient.again)
    means = service.governor.means
    session_id = refusal_in(means.reader, sent.receipt_id, means.keys.refresh(), CANARY_TOOL)
    if session_id is None:
        advice = "Look which Hub answers there: remit doctor; then: remit ledger check"
        return CheckResult("problem", f"refused, but its receipt {sent.receipt_id} is not in this ledger", advice)
    service.governor.run(End(session_id))
    return CheckResult("ok", f"refused through the hook itself, with receipt {sent.receipt_id}")


def _others(planner: Planner, patients: Sequence[_Patient], ours: Sequence[Hook]) -> CheckResult:
    """Look for hooks of others that are asked before a call too."""
    found = hooks_of_others(planner.name, [patient.place for patient in patients], ours)
    if not found:
        return CheckResult("ok", "no hook of others can change a call once it was decided on")
    where = ", ".join(dict.fromkeys("/".join(Path(hook.path).parts[-2:]) for hook in found))
    said = f"{len(found)} hooks of others can change a call once it was decided on: {where}"
    return CheckResult("warning", said, "Look at what they do, and take out what you do not need.")


def _processes(planner: Planner, protections: Sequence[Protection]) -> CheckResult:
    """Look for assistants that run past their hooks; those of the whole machine hold there too."""
    over_http = any(one.form == "http" and not excepts_hub(one) for one in protections)
    folders = [one.folder for one in protections]
    found = suspects(planner.name, planner.program, running_processes(), folders, over_http=over_http)
    if any(one.level == "managed" for one in protections):
        found = [one for one in found if one.effect != "bypassing"]
    for effect, looked in _EFFECTS.items():
        such = [one for one in found if one.effect == effect]
        if such:
            return looked._replace(said=f"{looked.said}: {_named(such)}")
    return CheckResult("ok", f"no {planner.title} runs past its hooks now")


def _named(found: Sequence[Suspect]) -> str:
    return ", ".join(f"{one.pid} ({one.option})" for one in found)


def _evidence(service: Service, planner: Planner, protections: Sequence[Protection]) -> Check:
    """Look for calls that got past their hooks since the protections were made."""
    means = service.governor.means
    since = min(one.made_at for one in protections)
    governed = governed_sessions(means.reader, planner.name)
    told = recent(means.reader, governed, planner.name, means.keys.refresh(), since)
    if told.bypassed:
        said = f"{len(told.bypassed)} calls were made past their hooks: {', '.join(told.bypassed[:3])}"
        return Check(
            "evidence", "problem", said, f"Look at them in the dashboard, then: remit reconcile {planner.name}"
        )
    tampered = [session.id for one in protections for session in ended_for_tampering(governed, one)]
    if tampered:
        said = f"{len(tampered)} sessions were ended because settings were tampered with: {', '.join(tampered[:3])}"
        advice = f"Look in the dashboard for what was changed, then: remit protect {planner.name}"
        return Check("evidence", "problem", said, advice)
    if "bypassPermissions" in told.modes:
        return Check("evidence", "warning", "calls were made with permissions bypassed", _UNASKED)
    return Check("evidence", "ok", f"{len(governed):,} sessions, and no call past its hooks", "")
