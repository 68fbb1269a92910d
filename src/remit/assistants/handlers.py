"""HTTP handlers for the hooks of coding assistants: decide on each tool call before it runs, and record its outcome.

Invariants:

- Every response has status 200 and a body in the assistant's own format, because some assistants run the call on any
  other status.
- Every error denies the call.
- The policy comes from the stored protection, never from files in the folder that the assistant works in.
"""

import asyncio
import os
import posixpath
import pwd
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote

from msgspec import UNSET, DecodeError, json

from remit.assistants.events import HookAdapter, HookEvent
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
from remit.governor.assistant_sessions import GENERATION, SECRET
from remit.governor.assistants import Actor, BeginAssistantSession, EndAssistantSession, EvaluateAssistantCall
from remit.governor.conclude import RecordAssistantResult
from remit.governor.context import UseCaseRunner
from remit.governor.evaluate import Evaluation, describe_outcome
from remit.governor.folders import FolderCheck, MissionTemplate, check_folder
from remit.governor.sources import Reporter
from remit.governor.statements import RecordStatement
from remit.governor.tampering import EndReporterSession
from remit.policy.call import ToolCall
from remit.profiles.suggesting import suggest
from remit.server.headers import Headers
from remit.server.routes import BytesResponse, Request, SessionDecision

# Hooks check this response header, so that they do not mistake another program on the same port for the Hub.
_PROOF_HEADER: Final = b"x-remit-hook"
_NONCE_HEADER: Final = b"x-remit-nonce"
_SECRET_HEADER: Final = b"x-remit-session"
_SECRET: Final = re.compile(rb"[0-9a-f]{64}")
_HOMES_MAX_AGE_S: Final = 60.0
_MAX_REPORTED: Final = 1000
# The tool name in the receipts that these handlers sign.
_CHECK: Final = "remit.hooks"
_JSON: Final = "application/json"
_SOURCE: Final = "cli"
# The tools that start subagents, of all assistants. Subagents may not call them.
_AGENT_TOOLS: Final = ("Agent", "Task", "task", "Workflow", "spawn_agent", "delegate_to_agent", "invoke_agent")
_MAX_ID: Final = 200
_PROFILE: Final = "REMIT.md"
_NO_FOLDER: Final = (
    "Remit refused this call: this assistant may work in the folder that it is started in, and this session has none: "
    "{}. Start a new session, in a folder of its own, while the Hub runs. Receipt {}."
)
_START_UNSEEN: Final = "its start was not seen"
# The member of the source description with the reason why the session has no folder.
_NO_FOLDER_REASON: Final = "unplaced"
# Denial codes after which the user has to start a new session.
_SESSION_USED_UP: Final = frozenset((
    "tool_calls_exhausted", "lineage_budget_exhausted", "duration_exceeded", "session_ended", "session_revoked",
    "passport_revoked", "kill_switch", "chain_broken",
))  # fmt: skip
# Those of them that running `remit protect` again does not lift. `session_ended` is among them: a session that has
# ended is continued by the next event, unless it was revoked after its end.
_REVOKED: Final = frozenset(("session_ended", "session_revoked", "passport_revoked", "kill_switch", "chain_broken"))
_CALL_ID: Final = re.compile(r"[!-~]{0,256}")
_UNQUOTED: Final = "/:@#+,"
# These run commands in the user's login shell; the other assistants always use bash.
_USE_LOGIN_SHELL: Final = frozenset(("claude-code", "codex", "opencode"))


class ProtectionStore(Protocol):
    """Looks up protections."""

    def get(self, protection: str) -> Protection | None:
        """Return the protection with this id, or None."""


# Takes a protection id, the nonce and body of the request, and the body of the response. Returns a MAC over them.
Prove: TypeAlias = Callable[[str, bytes, bytes, bytes], str]


class _HookCall(NamedTuple):
    """A hook event with everything that was looked up for it."""

    adapter: HookAdapter
    protection: Protection
    event: HookEvent
    actor: Actor
    # Why the session may not use the folder that it was started in; empty if it may.
    folder_refusal: str


class HookHandlers:
    """Handles the requests of hooks."""

    def __init__(
        self,
        governor: UseCaseRunner,
        protections: ProtectionStore,
        user_home: str | None,
        prove: Prove,
        *,
        is_tampered: Callable[[Protection], bool] = lambda _: False,
        zsh_users: Collection[str] = (),
    ) -> None:
        """Create the handlers.

        No session gets `user_home`, or a folder above it, as its working folder. While `is_tampered(protection)` is
        true, the sessions of that protection are ended and each of its calls is denied with a receipt. Commands of the
        assistants in `zsh_users` are judged by how zsh parses them as well as bash.
        """
        self._zsh_users = zsh_users
        self._is_tampered = is_tampered
        self._governor = governor
        self._user_home = user_home
        self._protections = protections
        self._prove = prove
        self._homes: frozenset[str] = frozenset()
        self._homes_expire_at = 0.0
        self._reported_sessions: set[str] = set()

    async def handle(self, request: Request) -> BytesResponse:
        """Handle one hook event."""
        adapter, protection = self._resolve(request.parameters)
        event = adapter.parse_event(request.body)
        hook = await self._build_hook_call(adapter, protection, event, _secret_digest(request.headers, protection))
        try:
            response = await self._respond(request, hook)
        except HookSecretWrong:
            await self._report_wrong_secret(hook)
            raise
        return self._encode(request, response)

    async def _respond(self, request: Request, hook: _HookCall) -> Mapping[str, JSON]:
        adapter, event, actor = hook.adapter, hook.event, hook.actor
        text = ""
        if event.kind in ("call", "session_started") and self._is_tampered(hook.protection):
            await self._governor.arun(EndReporterSession(actor.reporter))
        match event.kind:
            case "call":
                return await self._decide(request, hook)
            case "outcome" | "failure":
                envelope = _envelope(adapter, event)
                call = self._tool_call(hook)
                await self._governor.arun(
                    RecordAssistantResult(actor, call, event.call_id, envelope, _result_digest(event))
                )
            case "session_started":
                session_id = await self._governor.arun(BeginAssistantSession(actor.reporter))
                text = self._describe_mission(hook, session_id)
            case "agent_started":
                session_id = self._governor.context.sources.get(actor.reporter.binding, "")
                text = self._describe_mission(hook, session_id)
            case "session_ended" | "agent_ended":
                await self._governor.arun(EndAssistantSession(actor))
        return adapter.permit_response(event, allow=False, context=text)

    def _describe_mission(self, hook: _HookCall, session_id: str) -> str:
        """Describe the mission of a session to the model."""
        governor = self._governor.context
        session = governor.reader.session(session_id) if session_id else None
        mission = governor.passport_of(session).mission if session else hook.actor.reporter.mission
        return _mission_text(hook.adapter, mission, "" if mission.resource_scope else hook.folder_refusal)

    async def _decide(self, request: Request, hook: _HookCall) -> Mapping[str, JSON]:
        adapter, protection, event = hook.adapter, hook.protection, hook.event
        session_id, answer = await self._governor.arun(
            EvaluateAssistantCall(hook.actor, self._tool_call(hook), event.call_id, _envelope(adapter, event))
        )
        request.decision = SessionDecision(session_id, answer)
        if answer.permits:
            return adapter.permit_response(event, allow=protection.mode == "allow", context="")
        governor = self._governor.context
        if protection.folder or governor.passport_of(answer.session).mission.cwd:
            return adapter.deny_response(event.event, _denial_text(adapter, answer))
        source = governor.reader.source_of(session_id)
        why, receipt = _no_folder_reason(source.told if source else ""), answer.receipt.claims.receipt_id
        return adapter.deny_response(event.event, _NO_FOLDER.format(why, receipt))

    def _tool_call(self, hook: _HookCall) -> ToolCall:
        event = hook.event
        if event.cwd is not None and not event.cwd.startswith("/"):
            raise FieldInvalid("must be an absolute path", place="$.cwd")
        # All of these assistants start a new shell for each command, unless the call names one that runs.
        shell: Literal["bash", "zsh"] = "zsh" if hook.adapter.name in self._zsh_users else "bash"
        return ToolCall(event.tool, event.arguments, event.cwd, fresh_shell=True, shell=shell)

    async def _build_hook_call(
        self, adapter: HookAdapter, protection: Protection, event: HookEvent, secret: str
    ) -> _HookCall:
        """Find out which session and agent an event belongs to, and in which folder a new session would work."""
        key = sha256_hex(canonicalize([adapter.name, protection.id, event.session]))[:32]
        mission, refusal = parse_mission(protection.mission), ""
        placing: MissionTemplate | None = None
        if protection.folder is None:
            is_start = event.kind == "session_started"
            homes = await self._home_directories(is_start=is_start)
            placing = MissionTemplate(mission, homes)
            placement = FolderCheck(None, _START_UNSEEN)
            if is_start:
                placement = await asyncio.to_thread(resolve_folder, event.cwd, homes)
            mission, refusal = placing.in_folder(placement.folder), placement.refusal
        source = {
            "type": _SOURCE,
            "app": adapter.name,
            "id": event.session[:_MAX_ID],
            "protection": protection.id,
            "title": f"{adapter.title} in {PurePath(mission.cwd or '').name or 'a folder'}",
            GENERATION: str(protection.generation),
            **({SECRET: secret} if secret else {}),
            **({_NO_FOLDER_REASON: refusal} if refusal else {}),
        }
        reporter = Reporter(
            f"hook:{key}", json.encode(source).decode(), mission, AUDIENCE, protection.generation, secret, placing
        )
        actor = Actor(reporter, event.agent, event.agent_type, _AGENT_TOOLS)
        return _HookCall(adapter, protection, event, actor, refusal)

    async def _home_directories(self, *, is_start: bool) -> frozenset[str]:
        """Return the home directories of all users. The list is cached for a minute, and read anew at a start."""
        now = time.monotonic()
        if is_start or now >= self._homes_expire_at:
            self._homes = await asyncio.to_thread(home_directories, self._user_home)
            self._homes_expire_at = now + _HOMES_MAX_AGE_S
        return self._homes

    async def _report_wrong_secret(self, hook: _HookCall) -> None:
        """Sign a receipt about an event without the secret of its session, once for each session."""
        key, protection, title = hook.actor.reporter.key, hook.protection.id, hook.adapter.title
        if key in self._reported_sessions or len(self._reported_sessions) >= _MAX_REPORTED:
            return
        self._reported_sessions.add(key)
        statement = RecordStatement(
            tool=_CHECK,
            target=protection,
            report={"protection": protection, "assistant": hook.adapter.name, "session": hook.event.session},
            code="enforcement_gap",
            reason=f"an event of a session of {title} did not show the secret of that session: it was ignored",
        )
        with suppress(RemitError):
            await self._governor.arun(statement)

    def _resolve(self, parameters: Mapping[str, str]) -> tuple[HookAdapter, Protection]:
        """Return the adapter and the protection that the path of a request names."""
        adapter = HOOK_ADAPTERS.get(parameters["assistant"])
        protection = self._protections.get(parameters["protection"])
        if adapter is None or protection is None or protection.assistant != adapter.name:
            raise ProtectionNotFound("this Hub knows no protection of this name")
        return adapter, protection

    def deny_failed(self, request: Request, error: Exception) -> BytesResponse:
        """Build the denial for a request whose handling failed with `error`."""
        adapter = HOOK_ADAPTERS.get(request.parameters.get("assistant", ""), HOOK_ADAPTERS["claude-code"])
        event_name = adapter.event_name(request.body) if isinstance(request.body, dict) else ""
        return self._encode(request, adapter.deny_response(event_name, _failure_text(adapter, error)))

    def _encode(self, request: Request, response: Mapping[str, JSON]) -> BytesResponse:
        """Encode a response. If the hook sent a nonce, the header proves that the Hub wrote the response."""
        content, nonce, proof = json.encode(response), request.headers.get(_NONCE_HEADER, b""), b"1"
        if nonce:
            protection = request.parameters.get("protection", "")
            proof = self._prove(protection, nonce, request.data, content).encode("ascii")
        return BytesResponse(content, _JSON, ((_PROOF_HEADER, proof),))


def zsh_users(shell: str) -> frozenset[str]:
    """Return the assistants that may run commands in zsh: none if the login shell is bash or zsh is not installed.

    `shell` is the value of `$SHELL`; if it is empty, the shell is read from the user database.
    """
    login_shell = shell or pwd.getpwuid(os.getuid()).pw_shell
    is_bash = os.path.basename(login_shell) == "bash"  # noqa: PTH119 - text in, text out
    return frozenset() if is_bash or shutil.which("zsh") is None else _USE_LOGIN_SHELL


def home_directories(user_home: str | None) -> frozenset[str]:
    """Return the home directories of all users, both as listed and with symbolic links resolved."""
    listed = {entry.pw_dir for entry in pwd.getpwall()} | ({user_home} if user_home else set())
    absolute = {posixpath.normpath(path) for path in listed if path.startswith("/") and "\0" not in path}
    return frozenset(absolute | {os.path.realpath(path) for path in absolute})


def resolve_folder(cwd: str | None, homes: Collection[str]) -> FolderCheck:
    """Return the folder that a session started in, if it may work there.

    Anyone who has the hook token can send a start event with any folder. So the folder must exist, its symbolic links
    are resolved, and the root, home directories, their parents and system folders are refused. A session without a
    folder may access no files.
    """
    if cwd is None or not cwd.startswith("/"):
        return FolderCheck(None, "its start did not name an absolute folder")
    try:
        folder = os.path.realpath(cwd, strict=True)
    except (OSError, ValueError):
        folder = ""
    if not folder or not Path(folder).is_dir():
        return FolderCheck(None, "the folder that it was started in does not exist, or is not a directory")
    return check_folder(folder, homes)


def _secret_digest(headers: Headers, protection: Protection) -> str:
    """Return the digest of the session secret in a request; empty for hooks of the first release, which send none."""
    secret = headers.get(_SECRET_HEADER, b"")
    if secret and _SECRET.fullmatch(secret):
        return sha256_hex(secret)
    if protection.generation == 0 and not secret:
        return ""
    raise HookSecretWrong("this event shows no secret of its session")


def _no_folder_reason(source: str) -> str:
    """Return why a session has no folder, from the JSON description of its source."""
    try:
        members = json.decode(source)
    except DecodeError:
        members = None
    reason = members.get(_NO_FOLDER_REASON) if isinstance(members, dict) else None
    return reason if isinstance(reason, str) else _START_UNSEEN


def _result_digest(event: HookEvent) -> Digest:
    form = canonicalize_arguments({"result": event.result})
    return Digest(
        alg="sha-256",
        value=sha256_base64url(form),
        canonicalization=UNSET if isinstance(form, ExactForm) else "jcs-rfc8785",
        scope="result",
    )


def _envelope(adapter: HookAdapter, event: HookEvent) -> str:
    """Return the origin of a call, as its receipt records it."""
    if not _CALL_ID.fullmatch(event.call_id):
        raise FieldInvalid("must have at most 256 visible ASCII characters and no spaces", place="$.call_id")
    # Readers split the text at spaces.
    parts = [adapter.name, event.call_id or "-"]
    parts += [f"agent={quote(event.agent, safe=_UNQUOTED)[:_MAX_ID]}"] if event.agent else []
    parts += [f"mode={quote(event.permission_mode, safe=_UNQUOTED)[:_MAX_ID]}"] if event.permission_mode else []
    return " ".join(parts)


def _mission_text(adapter: HookAdapter, mission: Mission, refusal: str) -> str:
    """Describe the mission to the model, so that it need not find out its limits by trial and error."""
    scope = ", ".join(literal_path(entry) or entry for entry in mission.resource_scope) or "nothing"
    scope += f", because {refusal}" if refusal else ""
    return (
        f"This session of {adapter.title} is governed by Remit. Mission: {mission.mission}. "
        f"Every tool call is decided on before it is made. In scope: {scope}. "
        "A refused call says why, and what its user could change to permit it. Do not look for a way around a refusal: "
        "tell the user."
    )


def _denial_text(adapter: HookAdapter, answer: Evaluation) -> str:
    """Say why a call was denied, the smallest change that would permit it, and in which file to make the change."""
    outcome = describe_outcome(answer.receipt.claims, answer.refusal)
    sentences = [f"Remit refused this call: {outcome.reason}."]
    if answer.remedy is not None:
        line = suggest(answer.remedy.changes) if answer.remedy.changes else None
        sentences.append(answer.remedy.sentence)
        if line:
            sentences.append(f"In {_PROFILE}: {line}; then run `remit protect {adapter.name}` again.")
    code = answer.refusal or answer.receipt.claims.internal_denial_code
    if code in _SESSION_USED_UP:
        or_protect = "" if code in _REVOKED else f", or run `remit protect {adapter.name}` again"
        sentences.append(f"For fresh limits the user has to start a new session of {adapter.title}{or_protect}.")
    sentences.append(f"Only the user can change this. Receipt {answer.receipt.claims.receipt_id}.")
    return " ".join(sentences)


_ADVICE: Final[Mapping[type[RemitError], str]] = {
    HubTokenRequired: "the token of the hook does not belong to this protection: run `remit protect {name}` again",
    HookSecretWrong: "start a new session of the assistant, or run `remit protect {name}` again",
    ProtectionNotFound: "run `remit protect {name}` here, or take the hook out of the settings",
    KillSwitchOn: "the kill switch is on: `remit kill-switch off` releases it",
    RateLimited: "this session has ended and sends too many requests: stop it, and start a new one",
    RequestConflict: "the same call id was used for two different calls",
    TokenError: "the stored data of the session does not verify: for details: `remit ledger check`",
}


def _failure_text(adapter: HookAdapter, error: Exception) -> str:
    """Say why no decision was made. The text of an unexpected error is left out, because it may hold secrets."""
    advice = next((text for kind, text in _ADVICE.items() if isinstance(error, kind)), "")
    advice = advice.format(name=adapter.name) or "`remit doctor` looks for the cause"
    what = str(error) if isinstance(error, RemitError) else "something went wrong in the Hub"
    return f"Remit could not decide on this call, so it must not be made: {what}. What to do: {advice}."
