"""The checks of `remit doctor ASSISTANT`: whether its protection is installed and works, and whether it was bypassed.

Invariant: the settings alone prove nothing. A test call is sent through every hook in the settings, and must
be denied with a receipt that verifies.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from hmac import compare_digest
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

from remit.assistants.claude_code.settings import BLOCKS_ON_FAILURE, parse_version
from remit.assistants.doctor.canary import BEFORE_CALL_EVENTS, CANARY_TOOL, CanaryResult, new_canary, send_canary
from remit.assistants.doctor.checks import Check, CheckResult
from remit.assistants.doctor.other_hooks import find_other_hooks
from remit.assistants.doctor.processes import OptionEffect, SuspectProcess, find_suspects, running_processes
from remit.assistants.doctor.registration import RegistrationState, check_registration, sets_no_proxy
from remit.assistants.doctor.settings import Hook
from remit.assistants.install.plan import HookConnection, InstallTarget, Plan, Planner
from remit.assistants.install.program import find_program, get_program_version
from remit.assistants.install.protect import build_connection
from remit.assistants.reconcile.evidence import (
    find_denial,
    find_ended_for_tampering,
    load_governed_sessions,
    load_recent_findings,
)
from remit.assistants.records import PROTECTIONS_FOLDER, Protection, wire_name
from remit.assistants.registry import HOOK_ADAPTERS
from remit.claims.mission import parse_mission
from remit.client.hub import Hub
from remit.errors import HubTokenRequired, InputError, RemitError, ServiceRefused
from remit.governor.context import UseCaseRunner
from remit.governor.sessions import EndSession
from remit.ledger.home import Home
from remit.server.hook_tokens import hook_token, shared_hook_token
from remit.server.run_files import RunFile, load_running

_MAX_WIRE: Final = 64 * 1024
_MAX_PROFILE: Final = 1024 * 1024
_PROTECT_AGAIN: Final = "Protect it again: remit protect {}"
_TIMEOUT_S: Final = 5.0
_NOT_ASKING: Final = "Hooks still apply, but the assistant does not ask you: check that the profile is what you want."
# Results for running assistants, the worst first.
_EFFECTS: Final[Mapping[OptionEffect, CheckResult]] = {
    "bypassing": CheckResult(
        "problem", "running without hooks", "Stop them; start them without that option or variable."
    ),
    "misleading": CheckResult(
        "problem",
        "running with an HTTP proxy, which gets the requests for the Hub",
        "Stop them; start them with NO_PROXY=127.0.0.1, or without that variable.",
    ),
    "steering": CheckResult(
        "warning", "running with other settings", "Check whether those turn hooks off: the doctor does not."
    ),
    "unasking": CheckResult("warning", "running without asking", _NOT_ASKING),
}
_START_HUB: Final = "Start it: remit up --background; until then the assistant can run nothing."


class DoctorContext(NamedTuple):
    """The home whose protections are checked, and what the checks need of its settings and of the environment."""

    home: Home
    governor: UseCaseRunner
    hub_token: str | None
    user_home: str
    # The settings folder of the assistant, if an environment variable names one.
    config_folder: str
    # Returns the value of an environment variable that hooks may use.
    hook_variable: Callable[[str], str]


class _CheckTarget(NamedTuple):
    """The protection that is checked, with its assistant and its place."""

    context: DoctorContext
    planner: Planner
    protection: Protection
    place: InstallTarget
    wire: HookConnection

    @property
    def advice(self) -> str:
        """Return the advice to protect it again, with the same options."""
        where = f" --scope {self.protection.folder}" if self.protection.folder else ""
        usual = self.planner.levels[0] == self.protection.level
        level = "" if usual else f" --settings {self.protection.level}"
        return _PROTECT_AGAIN.format(self.planner.name) + level + where


def check_assistant(context: DoctorContext, planner: Planner, protections: Sequence[Protection]) -> Iterator[Check]:
    """Run the checks of each protection of an assistant, then those of all together. There is at least one."""
    installed = get_program_version(planner.program, None)
    targets = [_build_target(context, planner, protection, installed) for protection in protections]
    ours = list[Hook]()
    for target in targets:
        found = yield from _check_protection(target)
        ours += found.hooks
    yield _named_check("others", _check_other_hooks(planner, targets, ours))
    yield _named_check("processes", _check_processes(planner, protections))
    yield _named_check("evidence", _check_evidence(context.governor, planner, protections))


def _build_target(context: DoctorContext, planner: Planner, protection: Protection, installed: str) -> _CheckTarget:
    program = find_program(planner.program, None)
    place = InstallTarget(
        protection.level,
        protection.folder,
        context.user_home,
        config=context.config_folder,
        # If the program does not print its version, the stored one may be out of date.
        version=installed if program else protection.version,
        program=program,
    )
    home = context.home
    wire = build_connection(home.path, protection.id, protection.assistant, protection.hub_url, context.hub_token or "")
    return _CheckTarget(context, planner, protection, place, replace(wire, token=_read_wire_token(home, protection)))


def _read_wire_token(home: Home, protection: Protection) -> str:
    """Return the token in the wire file of a protection; empty if it cannot be read."""
    try:
        with home.folder(PROTECTIONS_FOLDER, create=False) as folder:
            data = folder.read(wire_name(protection.id), max_bytes=_MAX_WIRE)
        token = json.loads(data or b"{}").get("token")
    except (RemitError, ValueError, AttributeError):
        return ""
    return token if isinstance(token, str) else ""


def _check_protection(target: _CheckTarget) -> Generator[Check, None, RegistrationState]:
    """Run the checks of one protection; return the hooks that were found in its files."""
    yield _named_check("protection", _check_mission(target))
    plan, settings = _check_settings(target)
    yield _named_check("version", _check_version(target))
    yield _named_check("settings", settings)
    found = check_registration(target.protection, plan.changes if plan else ())
    yield _named_check("registration", _check_registration(target, found))
    hub = _check_hub(target)
    yield _named_check("hub", hub)
    yield _named_check("token", _check_token(target))
    yield _named_check("canary", _check_canary(target, found, hub_answers=hub.state == "ok"))
    return found


def _named_check(name: str, result: CheckResult) -> Check:
    return Check(name, *result)


def _check_mission(target: _CheckTarget) -> CheckResult:
    protection = target.protection
    where = protection.folder or "wherever it is started"
    said = f"{protection.id}, {protection.level} settings, {where}"
    try:
        mission = parse_mission(protection.mission)
    except InputError as error:
        return CheckResult("problem", f"{said}: its mission cannot be used: {error}", target.advice)
    said += f"; {len(mission.allowed_tools)} tools, {mission.max_tool_calls:,} calls a session"
    if _profile_has_changed(protection):
        return CheckResult("warning", f"{said}; its profile has changed since", target.advice)
    return CheckResult("ok", said)


def _profile_has_changed(protection: Protection) -> bool:
    """Return whether the profile has changed. A template never has, nor has a file that is gone."""
    try:
        with Path(protection.profile).open("rb") as file:
            data = file.read(_MAX_PROFILE)
    except OSError:
        return False
    return Path(protection.profile).is_absolute() and hashlib.sha256(data).hexdigest() != protection.profile_digest


def _check_settings(target: _CheckTarget) -> tuple[Plan | None, CheckResult]:
    """Plan the installation again, and report what in the settings prevents hooks from running."""
    try:
        plan = target.planner.plan(target.place, target.wire)
        # The assistant itself reports which hooks it does not trust.
        untrusted = plan.settle() if plan.settle else ()
    except RemitError as error:
        return None, CheckResult("problem", str(error), f"Remove what is named; then: {target.advice}")
    if untrusted:
        return plan, CheckResult(
            "problem", "the assistant does not trust the hooks, and skips them silently", target.advice
        )
    if plan.warnings:
        return plan, CheckResult("warning", "; ".join(plan.warnings), target.advice)
    return plan, CheckResult("ok", "no settings prevent hooks from running")


def _check_version(target: _CheckTarget) -> CheckResult:
    title, version, form = target.planner.title, target.place.version, target.protection.form
    if not version and form == "http" and target.place.program:
        said = f"{title} does not print its version, and some versions let calls run when an HTTP hook fails"
        return CheckResult("problem", said, target.advice)
    if not version:
        said = f"{title} was not found in PATH, or does not print its version"
        return CheckResult("warning", said, "Check whether it is installed, and which version.")
    if form == "http" and parse_version(version) < BLOCKS_ON_FAILURE:
        return CheckResult("problem", f"{title} {version} lets calls run when an HTTP hook fails", target.advice)
    return CheckResult("ok", f"{title} {version}, hooks by {form}")


def _check_registration(target: _CheckTarget, found: RegistrationState) -> CheckResult:
    if found.faults:
        return CheckResult("problem", "; ".join(found.faults), target.advice)
    count = f"{len(found.hooks)} hooks in " if found.hooks else ""
    if found.changed:
        said = f"{count}{', '.join(found.changed)}: Remit's part is as written, but the file was changed since"
        advice = f"Check it: the assistant ignores a file with one mistake. If it is right: {target.advice}"
        return CheckResult("warning", said, advice)
    names = ", ".join(Path(written.path).name for written in target.protection.files)
    return CheckResult("ok", f"{count}{names}: as written")


def _check_hub(target: _CheckTarget) -> CheckResult:
    running = load_running(target.context.home, "hub")
    if running is None:
        return CheckResult("problem", "no Hub of this home is running", _START_HUB)
    if running.listening != target.protection.hub_url:
        said = f"it listens at {running.listening}, but hooks connect to {target.protection.hub_url}"
        return CheckResult("problem", said, target.advice)
    return CheckResult("ok", f"it listens where hooks connect, at {running.listening}")


def _check_token(target: _CheckTarget) -> CheckResult:
    expected = target.context.hub_token
    found = target.wire.token
    running = load_running(target.context.home, "hub")
    if running is not None and not _accepts_token(running, expected):
        advice = f"Restart it: remit hub --stop, then remit hub --background; then: {target.advice}"
        return CheckResult("problem", "the running Hub has another token than this home", advice)
    is_old = target.protection.generation == 0
    right = (shared_hook_token(expected) if is_old else hook_token(expected, target.protection.id)) if expected else ""
    if not right or not found or not compare_digest(right.encode(), found.encode()):
        return CheckResult("problem", "hooks use a token that is not that of this protection", target.advice)
    if target.protection.form == "http":
        return CheckResult("problem", "its token is in a file that the assistant can read", target.advice)
    if is_old:
        return CheckResult("warning", "hooks use a token that is valid for other protections too", target.advice)
    return CheckResult("ok", "hooks use the token of this protection")


def _accepts_token(running: RunFile, token: str | None) -> bool:
    """Return whether a Hub accepts the token of its home; True if it does not answer or the home has no token."""
    if token is None:
        return True
    try:
        with Hub(running.listening, token, timeout_s=_TIMEOUT_S, retries=0) as hub:
            hub.status()
    except ServiceRefused as error:
        return error.error_code != HubTokenRequired.code
    except RemitError:
        return True
    return True


def _check_canary(target: _CheckTarget, found: RegistrationState, *, hub_answers: bool) -> CheckResult:
    """Send a test call through each hook that runs before a call."""
    hooks = _calling_hooks(target, found)
    if not hooks:
        return CheckResult("problem", "no hook of Remit runs before a call", target.advice)
    results = [_send_canary(target, hook, hub_answers=hub_answers) for hook in hooks]
    return max(results, key=lambda one: ("ok", "warning", "problem").index(one.state))


def _calling_hooks(target: _CheckTarget, found: RegistrationState) -> list[Hook]:
    """Return the hooks that run before a call. A plugin has one, with the URL of its wire file."""
    event = BEFORE_CALL_EVENTS[target.planner.name].lower()
    if target.protection.form == "plugin" and not found.faults:
        headers = {"Authorization": f"Bearer {target.wire.token}", "X-Remit-Session": token_hex(32)}
        return [Hook(event, target.wire.path, {"url": target.wire.url, "headers": headers})]
    return [hook for hook in found.hooks if hook.event.lower() == event]


def _send_canary(target: _CheckTarget, hook: Hook, *, hub_answers: bool) -> CheckResult:
    if not hub_answers and "url" in hook.says:
        return CheckResult("warning", "not tested: the Hub does not answer where the hook connects", _START_HUB)
    inside = Path(target.context.home.path, PROTECTIONS_FOLDER)
    folder = target.protection.folder or str(inside)
    canary = new_canary(target.planner.name, folder, str(inside))
    sent = send_canary(hook, canary, HOOK_ADAPTERS[target.planner.name], target.context.hook_variable, folder)
    if not hub_answers and sent.answer == "blocked":
        return CheckResult("warning", "the Hub does not answer, and the hook blocks calls, as it must", _START_HUB)
    return _check_denial(target, sent)


def _check_denial(target: _CheckTarget, sent: CanaryResult) -> CheckResult:
    if sent.answer != "refused":
        said = {"let through": "a call that must be denied is let through", "blocked": "blocked without a receipt"}
        return CheckResult("problem", f"{said.get(sent.answer, 'no answer')}: {sent.why}", target.advice)
    governor = target.context.governor
    keyring = governor.context.keys.refresh()
    session_id = find_denial(governor.context.reader, sent.receipt_id, keyring, CANARY_TOOL)
    if session_id is None:
        advice = "Check which Hub answers there: remit doctor; then: remit ledger check"
        return CheckResult("problem", f"denied, but its receipt {sent.receipt_id} is not in this ledger", advice)
    governor.run(EndSession(session_id))
    return CheckResult("ok", f"denied through the hook itself, with receipt {sent.receipt_id}")


def _check_other_hooks(planner: Planner, targets: Sequence[_CheckTarget], ours: Sequence[Hook]) -> CheckResult:
    """Look for other hooks that run before a call."""
    found = find_other_hooks(planner.name, [target.place for target in targets], ours)
    if not found:
        return CheckResult("ok", "no other hook can change a call after the decision")
    where = ", ".join(dict.fromkeys("/".join(Path(hook.path).parts[-2:]) for hook in found))
    said = f"{len(found)} other hooks can change a call after the decision: {where}"
    return CheckResult("warning", said, "Check what they do, and remove those you do not need.")


def _check_processes(planner: Planner, protections: Sequence[Protection]) -> CheckResult:
    """Look for running assistants that bypass their hooks. They cannot bypass managed settings."""
    over_http = any(one.form == "http" and not sets_no_proxy(one) for one in protections)
    folders = [one.folder for one in protections]
    found = find_suspects(planner.name, planner.program, running_processes(), folders, over_http=over_http)
    if any(one.level == "managed" for one in protections):
        found = [one for one in found if one.effect != "bypassing"]
    for effect, result in _EFFECTS.items():
        such = [one for one in found if one.effect == effect]
        if such:
            return result._replace(said=f"{result.said}: {_process_list(such)}")
    return CheckResult("ok", f"no running {planner.title} bypasses its hooks")


def _process_list(found: Sequence[SuspectProcess]) -> str:
    return ", ".join(f"{one.pid} ({one.option})" for one in found)


def _check_evidence(governor: UseCaseRunner, planner: Planner, protections: Sequence[Protection]) -> CheckResult:
    """Look for calls that bypassed the hooks since the protections were installed."""
    context = governor.context
    since = min(one.made_at for one in protections)
    governed = load_governed_sessions(context.reader, planner.name)
    findings = load_recent_findings(context.reader, governed, planner.name, context.keys.refresh(), since)
    if findings.bypassed:
        said = f"{len(findings.bypassed)} calls bypassed their hooks: {', '.join(findings.bypassed[:3])}"
        return CheckResult("problem", said, f"See them in the dashboard, then: remit reconcile {planner.name}")
    tampered = [session.id for one in protections for session in find_ended_for_tampering(governed, one)]
    if tampered:
        said = f"{len(tampered)} sessions were ended because settings were tampered with: {', '.join(tampered[:3])}"
        advice = f"See in the dashboard what was changed, then: remit protect {planner.name}"
        return CheckResult("problem", said, advice)
    if "bypassPermissions" in findings.modes:
        return CheckResult("warning", "calls were made with permissions bypassed", _NOT_ASKING)
    return CheckResult("ok", f"{len(governed):,} sessions, and no call bypassed its hooks")
