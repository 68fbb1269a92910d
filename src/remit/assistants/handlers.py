"""The desk that hooks of assistants come to: each call is decided on before it is made, each outcome bound to it.

Keeps these invariants: an answer is always one that the assistant understands, and always 200, because anything else
lets some of them run the call; whatever goes wrong denies; and what an assistant may do is what its protection says,
never what lies in the folder that it works in.
"""

import asyncio
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote

from msgspec import UNSET, DecodeError, json

from remit.assistants.events import HookAdapter, HookEvent
from remit.assistants.folders import find_folder, home_directories
from remit.assistants.records import Protection
from remit.assistants.registry import HOOK_ADAPTERS
from remit.claims.canonical import ExactForm, canonicalize, canonicalize_arguments, sha256_base64url, sha256_hex
from remit.claims.mission import Mission, literal_path, parse_mission
from remit.claims.passport import AUDIENCE
from remit.claims.receipt import Digest
from remit.claims.strictjson import JSON
from remit.errors import (
    FieldInvalid,
    HookSecretWrong,
    HubTokenRequired,
    KillSwitchOn,
    ProtectionNotFound,
    RateLimited,
    RemitError,
    RequestConflict,
    TokenError,
)
from remit.governor.assistants import Actor, Begin, Finish, Govern
from remit.governor.conclude import Conclude
from remit.governor.evaluate import Answer, outcome_of
from remit.governor.leads import GENERATION, SECRET
from remit.governor.means import UseCaseRunner
from remit.governor.placing import Placement, Placing
from remit.governor.sources import Reporter
from remit.governor.statements import Declare
from remit.governor.tampering import EndReporter
from remit.policy.call import ToolCall
from remit.profiles.suggesting import suggest
from remit.server.headers import Sent
from remit.server.routes import Decision, Plain, Request

__all__ = ["MARK", "HookHandlers", "Prove", "Shelf"]

# The header that tells a hook that it is the Hub that has answered, and not whatever else listens there.
MARK: Final = b"x-remit-hook"
_NONCE_HEADER: Final = b"x-remit-nonce"
_SECRET_HEADER: Final = b"x-remit-session"
_SECRET: Final = re.compile(rb"[0-9a-f]{64}")
_HOMES_S: Final = 60.0
_MAX_REPORTED: Final = 1000
# The name of the check in receipts.
_CHECK: Final = "remit.hooks"
_JSON: Final = "application/json"
_SOURCE: Final = "cli"
# What starts further agents, by the names of all assistants: no subagent gets it.
_STARTERS: Final = ("Agent", "Task", "task", "Workflow", "spawn_agent", "delegate_to_agent", "invoke_agent")
_MAX_ID: Final = 200
_PROFILE: Final = "REMIT.md"
_UNPLACED: Final = (
    "Remit refused this call: this assistant may work in the folder that it is started in, and this session has none: "
    "{}. Start a new session, in a folder of its own, while the Hub runs. Receipt {}."
)
_START_UNSEEN: Final = "its start was not seen"
_WHY_UNPLACED: Final = "unplaced"
# What a person has to do for fresh limits, whatever the hooks report.
_USED_UP: Final = frozenset((
    "tool_calls_exhausted", "lineage_budget_exhausted", "duration_exceeded", "session_ended", "session_revoked",
    "passport_revoked", "kill_switch", "chain_broken",
))  # fmt: skip
# What `remit protect` does not lift. A session that was ended and is not continued was revoked after its end.
_REVOKED: Final = frozenset(("session_ended", "session_revoked", "passport_revoked", "kill_switch", "chain_broken"))
_CALL_ID: Final = re.compile(r"[!-~]{0,256}")
_PLAIN: Final = "/:@#+,"


class Shelf(Protocol):
    """Where protections are kept."""

    def get(self, protection: str) -> Protection | None:
        """Return the protection of this id."""


# Given a protection, the nonce and the body of a request, and the body of the answer, returns the proof of the answer.
Prove: TypeAlias = Callable[[str, bytes, bytes, bytes], str]


class _Event(NamedTuple):
    """An event of an assistant, with who acts, and why its folder is not one to work in, if it is not."""

    dialect: HookAdapter
    protection: Protection
    notice: HookEvent
    actor: Actor
    refusal: str


class HookHandlers:
    """What the route of hooks leads to."""

    def __init__(
        self,
        governor: UseCaseRunner,
        protections: Shelf,
        user_home: str | None,
        prove: Prove,
        *,
        is_tampered: Callable[[Protection], bool] = lambda _: False,
        zsh_users: Collection[str] = (),
    ) -> None:
        """Decide with `governor`; no folder that holds `user_home` is one that an assistant is let into as a whole.

        While a protection `is_tampered`, its sessions are ended, and every call is denied with a receipt. Commands of
        `zsh_users` are held to what zsh would read in them, too.
        """
        self._zsh_users = zsh_users
        self._is_tampered = is_tampered
        self._governor = governor
        self._user_home = user_home
        self._protections = protections
        self._prove = prove
        self._homes: frozenset[str] = frozenset()
        self._homes_until = 0.0
        self._reported: set[str] = set()

    async def hook(self, ask: Request) -> Plain:
        """Answer a hook."""
        dialect, protection = self._found(ask.parameters)
        notice = dialect.read(ask.body)
        event = await self._event(dialect, protection, notice, _secret_of(ask.headers, protection))
        try:
            answer = await self._answer(ask, event)
        except HookSecretWrong:
            await self._report(event)
            raise
        return self._plain(ask, answer)

    async def _answer(self, ask: Request, event: _Event) -> Mapping[str, JSON]:
        dialect, notice, actor = event.dialect, event.notice, event.actor
        told = ""
        if notice.kind in ("call", "session_started") and self._is_tampered(event.protection):
            await self._governor.arun(EndReporter(actor.reporter))
        match notice.kind:
            case "call":
                return await self._decide(ask, event)
            case "outcome" | "failure":
                envelope = _envelope(dialect, notice)
                await self._governor.arun(Conclude(actor, self._call(event), notice.call_id, envelope, _digest(notice)))
            case "session_started":
                session_id = await self._governor.arun(Begin(actor.reporter))
                told = self._told(event, session_id)
            case "agent_started":
                told = self._told(event, self._governor.means.sources.get(actor.reporter.binding, ""))
            case "session_ended" | "agent_ended":
                await self._governor.arun(Finish(actor))
        return dialect.permitted(notice, allow=False, told=told)

    def _told(self, event: _Event, session_id: str) -> str:
        """Return what the model is told of the mission of a session."""
        means = self._governor.means
        session = means.reader.session(session_id) if session_id else None
        mission = means.passport_of(session).mission if session else event.actor.reporter.mission
        return _told(event.dialect, mission, "" if mission.resource_scope else event.refusal)

    async def _decide(self, ask: Request, event: _Event) -> Mapping[str, JSON]:
        dialect, protection, notice = event.dialect, event.protection, event.notice
        session_id, answer = await self._governor.arun(
            Govern(event.actor, self._call(event), notice.call_id, _envelope(dialect, notice))
        )
        ask.decision = Decision(session_id, answer)
        if answer.permits:
            return dialect.permitted(notice, allow=protection.mode == "allow", told="")
        means = self._governor.means
        if protection.folder or means.passport_of(answer.session).mission.cwd:
            return dialect.denied(notice.event, _refusal(dialect, answer))
        source = means.reader.source_of(session_id)
        why, receipt = _why_unplaced(source.told if source else ""), answer.receipt.claims.receipt_id
        return dialect.denied(notice.event, _UNPLACED.format(why, receipt))

    def _call(self, event: _Event) -> ToolCall:
        notice = event.notice
        if notice.cwd is not None and not notice.cwd.startswith("/"):
            raise FieldInvalid("must be an absolute path: nobody knows where a relative one starts", place="$.cwd")
        # All of these assistants start a new shell for each command, unless the call names one that runs.
        shell: Literal["bash", "zsh"] = "zsh" if event.dialect.name in self._zsh_users else "bash"
        return ToolCall(notice.tool, notice.arguments, notice.cwd, fresh_shell=True, shell=shell)

    async def _event(self, dialect: HookAdapter, protection: Protection, notice: HookEvent, secret: str) -> _Event:
        """Return an event with who acts. A subagent that has a session of its own acts in that of its parent."""
        lead, agent = (notice.parent, notice.session) if notice.parent else (notice.session, notice.agent)
        key = sha256_hex(canonicalize([dialect.name, protection.id, lead]))[:32]
        mission, refusal = parse_mission(protection.mission), ""
        placing: Placing | None = None
        if protection.folder is None:
            is_start = notice.kind == "session_started"
            homes = await self._home_directories(is_start=is_start)
            placing = Placing(mission, homes)
            found = Placement(None, _START_UNSEEN)
            if is_start:
                found = await asyncio.to_thread(find_folder, notice.cwd, homes)
            mission, refusal = placing.in_folder(found.folder), found.refusal
        told = {
            "type": _SOURCE,
            "app": dialect.name,
            "id": lead[:_MAX_ID],
            "protection": protection.id,
            "title": f"{dialect.title} in {PurePath(mission.cwd or '').name or 'a folder'}",
            GENERATION: str(protection.generation),
            **({SECRET: secret} if secret else {}),
            **({_WHY_UNPLACED: refusal} if refusal else {}),
        }
        reporter = Reporter(
            f"hook:{key}", json.encode(told).decode(), mission, AUDIENCE, protection.generation, secret, placing
        )
        actor = Actor(reporter, agent, notice.agent_type, _STARTERS)
        return _Event(dialect, protection, notice, actor, refusal)

    async def _home_directories(self, *, is_start: bool) -> frozenset[str]:
        """Return the home directories of all users, as they were at most a minute ago; at a start, as they are."""
        now = time.monotonic()
        if is_start or now >= self._homes_until:
            self._homes = await asyncio.to_thread(home_directories, self._user_home)
            self._homes_until = now + _HOMES_S
        return self._homes

    async def _report(self, event: _Event) -> None:
        """Sign once for each session that an event of it did not show its secret."""
        key, protection, title = event.actor.reporter.key, event.protection.id, event.dialect.title
        if key in self._reported or len(self._reported) >= _MAX_REPORTED:
            return
        self._reported.add(key)
        statement = Declare(
            tool=_CHECK,
            target=protection,
            report={"protection": protection, "assistant": event.dialect.name, "session": event.notice.session},
            code="enforcement_gap",
            reason=f"an event of a session of {title} did not show the secret of that session: it was ignored",
        )
        with suppress(RemitError):
            await self._governor.arun(statement)

    def _found(self, parameters: Mapping[str, str]) -> tuple[HookAdapter, Protection]:
        """Return the dialect and the protection that a path names."""
        dialect = HOOK_ADAPTERS.get(parameters["assistant"])
        protection = self._protections.get(parameters["protection"])
        if dialect is None or protection is None or protection.assistant != dialect.name:
            raise ProtectionNotFound("this Hub knows no protection of this name")
        return dialect, protection

    def failing(self, ask: Request, error: Exception) -> Plain:
        """Return the denial of a hook that could not be answered otherwise."""
        dialect = HOOK_ADAPTERS.get(ask.parameters.get("assistant", ""), HOOK_ADAPTERS["claude-code"])
        event = dialect.event_of(ask.body) if isinstance(ask.body, dict) else ""
        return self._plain(ask, dialect.denied(event, _failure(dialect, error)))

    def _plain(self, ask: Request, answer: Mapping[str, JSON]) -> Plain:
        """Return an answer, with the proof that a hook has asked for."""
        content, nonce, proof = json.encode(answer), ask.headers.get(_NONCE_HEADER, b""), b"1"
        if nonce:
            proof = self._prove(ask.parameters.get("protection", ""), nonce, ask.data, content).encode("ascii")
        return Plain(content, _JSON, ((MARK, proof),))


def _secret_of(headers: Sent, protection: Protection) -> str:
    """Return the digest of the secret that an event shows. The first release wrote hooks that show none."""
    shown = headers.get(_SECRET_HEADER, b"")
    if shown and _SECRET.fullmatch(shown):
        return sha256_hex(shown)
    if protection.generation == 0 and not shown:
        return ""
    raise HookSecretWrong("this event shows no secret of its session")


def _why_unplaced(told: str) -> str:
    try:
        members = json.decode(told)
    except DecodeError:
        members = None
    why = members.get(_WHY_UNPLACED) if isinstance(members, dict) else None
    return why if isinstance(why, str) else _START_UNSEEN


def _digest(notice: HookEvent) -> Digest:
    form = canonicalize_arguments({"result": notice.result})
    return Digest(
        alg="sha-256",
        value=sha256_base64url(form),
        canonicalization=UNSET if isinstance(form, ExactForm) else "jcs-rfc8785",
        scope="result",
    )


def _envelope(dialect: HookAdapter, notice: HookEvent) -> str:
    """Return where a call comes from, as its receipt says it."""
    if not _CALL_ID.fullmatch(notice.call_id):
        raise FieldInvalid("the name of a call has at most 256 visible characters, and no spaces", place="$.call_id")
    # Whoever reads it takes it apart at spaces.
    parts = [dialect.name, notice.call_id or "-"]
    parts += [f"agent={quote(notice.agent, safe=_PLAIN)[:_MAX_ID]}"] if notice.agent else []
    parts += [f"mode={quote(notice.permission_mode, safe=_PLAIN)[:_MAX_ID]}"] if notice.permission_mode else []
    return " ".join(parts)


def _told(dialect: HookAdapter, mission: Mission, refusal: str) -> str:
    """Return what the model is told at the start, so that it need not find its limits by trying."""
    scope = ", ".join(literal_path(entry) or entry for entry in mission.resource_scope) or "nothing"
    scope += f", because {refusal}" if refusal else ""
    return (
        f"This session of {dialect.title} is governed by Remit. Mission: {mission.mission}. "
        f"Every tool call is decided on before it is made. In scope: {scope}. "
        "A refused call says why, and what its user could change to permit it. Do not look for a way around a refusal: "
        "tell the user."
    )


def _refusal(dialect: HookAdapter, answer: Answer) -> str:
    """Return why a call was refused, the smallest change that would permit it, and where that is kept."""
    outcome = outcome_of(answer.receipt.claims, answer.refusal)
    said = [f"Remit refused this call: {outcome.reason}."]
    if answer.remedy is not None:
        line = suggest(answer.remedy.changes) if answer.remedy.changes else None
        said.append(answer.remedy.sentence)
        if line:
            said.append(f"In {_PROFILE}: {line}; then run `remit protect {dialect.name}` again.")
    code = answer.refusal or answer.receipt.claims.internal_denial_code
    if code in _USED_UP:
        again = "" if code in _REVOKED else f", or run `remit protect {dialect.name}` again"
        said.append(f"For fresh limits the user has to start a new session of {dialect.title}{again}.")
    said.append(f"Only the user can change this. Receipt {answer.receipt.claims.receipt_id}.")
    return " ".join(said)


_ADVICE: Final[Mapping[type[RemitError], str]] = {
    HubTokenRequired: "the token of the hook is not that of this protection: run `remit protect {name}` again",
    HookSecretWrong: "start a new session of the assistant, or run `remit protect {name}` again",
    ProtectionNotFound: "run `remit protect {name}` here, or take the hook out of the settings",
    KillSwitchOn: "the kill switch is on: `remit kill-switch off` releases it",
    RateLimited: "this session is over, and asks too often: stop it, and start a new one",
    RequestConflict: "the same call id came twice, with different calls",
    TokenError: "what the ledger keeps of the session does not verify: `remit ledger check` says more",
}


def _failure(dialect: HookAdapter, error: Exception) -> str:
    """Return why no decision was made. An error that was not foreseen tells nothing."""
    known = next((words for kind, words in _ADVICE.items() if isinstance(error, kind)), "")
    advice = known.format(name=dialect.name) or "`remit doctor` looks for the cause"
    what = str(error) if isinstance(error, RemitError) else "something went wrong in the Hub"
    return f"Remit could not decide on this call, so it must not be made: {what}. What to do: {advice}."
