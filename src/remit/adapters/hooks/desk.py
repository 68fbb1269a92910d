"""The desk that hooks of assistants come to: each call is decided on before it is made, each outcome bound to it.

Keeps these invariants: an answer is always one that the assistant understands, and always 200, because anything else
lets some of them run the call; whatever goes wrong denies; and what an assistant may do is what its protection says,
never what lies in the folder that it works in.
"""

import os
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final, Protocol
from urllib.parse import quote

from msgspec import json, structs

from remit.adapters.hooks.dialects import DIALECTS
from remit.adapters.hooks.notice import Dialect, Notice
from remit.adapters.protection.records import Protection
from remit.claims.canonical import canonicalize, sha256_base64url, sha256_hex
from remit.claims.mission import EVERYTHING, Mission, parse_mission
from remit.claims.receipt import Digest
from remit.claims.strictjson import JSON
from remit.errors import (
    FieldInvalid,
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
from remit.governor.evaluate import Answer
from remit.governor.governor import Governor
from remit.governor.outcomes import outcome_of
from remit.governor.sources import Reporter
from remit.http.routes import Ask, Plain
from remit.policy.call import ToolCall
from remit.profiles.suggesting import suggest

__all__ = ["MARK", "HookDesk", "Shelf", "Watcher", "failing"]

# Tells a hook that it is the Hub that has answered, and not whatever else listens there.
MARK: Final = (b"x-remit-hook", b"1")
_JSON: Final = "application/json"
_SOURCE: Final = "cli"
# What starts further agents, by the names of all assistants: no subagent gets it.
_STARTERS: Final = ("Agent", "Task", "task", "Workflow", "spawn_agent", "delegate_to_agent", "invoke_agent")
_MAX_ID: Final = 200
_PROFILE: Final = "REMIT.md"
_UNPLACED: Final = (
    "Remit refused this call: this assistant may work in the folder that it is started in, and its start was not seen, "
    "or was in a folder that holds everything. Start it anew, in a folder of its own, while the Hub runs."
)
_CALL_ID: Final = re.compile(r"[!-~]{0,256}")
_PLAIN: Final = "/:@#+,"


class Watcher(Protocol):
    """Who is told of decisions. Nothing waits for it."""

    def decided(self, session_id: str, answer: Answer) -> None:
        """A call was decided on."""


class Shelf(Protocol):
    """Where protections are kept."""

    def get(self, protection: str) -> Protection | None:
        """Return the protection of this id."""


class HookDesk:
    """What the route of hooks leads to."""

    def __init__(self, governor: Governor, watcher: Watcher, protections: Shelf, user_home: str | None) -> None:
        """Decide with `governor`; no folder that holds `user_home` is one that an assistant is let into as a whole."""
        self._governor = governor
        self._user_home = user_home
        self._watcher = watcher
        self._protections = protections

    async def hook(self, ask: Ask) -> Plain:
        """Answer a hook."""
        dialect, protection = self._found(ask.parameters)
        notice = dialect.read(ask.body)
        actor = _actor(dialect, protection, notice, self._user_home)
        match notice.kind:
            case "call":
                return await self._decide(ask, dialect, protection, notice, actor)
            case "outcome" | "failure":
                envelope = _envelope(dialect, notice)
                await self._governor.arun(Conclude(actor, _call(notice), notice.call_id, envelope, _digest(notice)))
            case "session_started":
                await self._governor.arun(Begin(actor.reporter))
            case "session_ended" | "agent_ended":
                await self._governor.arun(Finish(actor))
        told = _told(dialect, actor.reporter.mission) if notice.kind in ("session_started", "agent_started") else ""
        return _plain(dialect.permitted(notice, allow=False, told=told))

    async def _decide(self, ask: Ask, dialect: Dialect, protection: Protection, notice: Notice, actor: Actor) -> Plain:
        session_id, answer = await self._governor.arun(
            Govern(actor, _call(notice), notice.call_id, _envelope(dialect, notice))
        )
        self._watcher.decided(session_id, answer)
        ask.span.decided(session_id, answer.receipt.claims.verdict)
        if answer.permits:
            return _plain(dialect.permitted(notice, allow=protection.mode == "allow", told=""))
        passport = self._governor.means.passports.get(session_id)
        placed = protection.folder or (passport and passport.mission.cwd)
        return _plain(dialect.denied(notice.event, _refusal(dialect, answer) if placed else _UNPLACED))

    def _found(self, parameters: Mapping[str, str]) -> tuple[Dialect, Protection]:
        """Return the dialect and the protection that a path names."""
        dialect = DIALECTS.get(parameters["assistant"])
        protection = self._protections.get(parameters["protection"])
        if dialect is None or protection is None or protection.assistant != dialect.name:
            raise ProtectionNotFound("this Hub knows no protection of this name")
        return dialect, protection


def failing(parameters: Mapping[str, str], body: Any, error: Exception) -> Plain:  # noqa: ANN401 - whatever was read
    """Return the denial of a hook that could not be answered otherwise."""
    dialect = DIALECTS.get(parameters.get("assistant", ""), DIALECTS["claude-code"])
    event = dialect.event_of(body) if isinstance(body, dict) else ""
    return _plain(dialect.denied(event, _failure(dialect, error)))


def _actor(dialect: Dialect, protection: Protection, notice: Notice, user_home: str | None) -> Actor:
    """Return who acts. A subagent that has a session of its own acts in that of its parent."""
    lead, agent = (notice.parent, notice.session) if notice.parent else (notice.session, notice.agent)
    key = sha256_hex(canonicalize([dialect.name, protection.id, lead]))[:32]
    mission = parse_mission(protection.mission)
    if protection.folder is None:
        mission = _placed(mission, notice, user_home)
    told = {
        "type": _SOURCE,
        "app": dialect.name,
        "id": lead[:_MAX_ID],
        "protection": protection.id,
        "title": f"{dialect.title} in {PurePath(mission.cwd or '').name or 'a folder'}",
    }
    return Actor(Reporter(f"hook:{key}", json.encode(told).decode(), mission), agent, notice.agent_type, _STARTERS)


def _placed(mission: Mission, notice: Notice, user_home: str | None) -> Mission:
    """Return a mission that holds wherever an assistant is started, for the folder where that was.

    Only its start tells: later, an assistant says where it works itself, and may say anything. A session whose start
    was not seen may touch nothing.
    """
    if notice.kind != "session_started":
        return structs.replace(mission, resource_scope=())
    folder = os.path.realpath(notice.cwd or "")
    if not (notice.cwd or "").startswith("/") or PurePath(user_home or "/").is_relative_to(folder):
        return structs.replace(mission, resource_scope=())
    scope = tuple(_absolute(entry, folder) for entry in mission.resource_scope)
    return structs.replace(mission, cwd=folder, resource_scope=scope)


def _absolute(entry: str, folder: str) -> str:
    """Return an entry of a scope as it is meant in a folder: a delegate's is held against it by its text."""
    if entry.startswith("/") or ":" in entry or entry == EVERYTHING:
        return entry
    return os.path.normpath(f"{folder}/{entry}")


def _call(notice: Notice) -> ToolCall:
    return ToolCall(notice.tool, notice.arguments, notice.cwd)


def _digest(notice: Notice) -> Digest:
    value = sha256_base64url(canonicalize({"result": notice.result}))
    return Digest(alg="sha-256", value=value, canonicalization="jcs-rfc8785", scope="result")


def _envelope(dialect: Dialect, notice: Notice) -> str:
    """Return where a call comes from, as its receipt says it."""
    if not _CALL_ID.fullmatch(notice.call_id):
        raise FieldInvalid("the name of a call has at most 256 visible characters, and no spaces", place="$.call_id")
    # Whoever reads it takes it apart at spaces.
    parts = [dialect.name, notice.call_id or "-"]
    parts += [f"agent={quote(notice.agent, safe=_PLAIN)[:_MAX_ID]}"] if notice.agent else []
    parts += [f"mode={quote(notice.permission_mode, safe=_PLAIN)[:_MAX_ID]}"] if notice.permission_mode else []
    return " ".join(parts)


def _told(dialect: Dialect, mission: Mission) -> str:
    """Return what the model is told at the start, so that it need not find its limits by trying."""
    return (
        f"This session of {dialect.title} is governed by Remit. Mission: {mission.mission}. "
        f"Every tool call is decided on before it is made. In scope: {', '.join(mission.resource_scope) or 'nothing'}. "
        "A refused call says why, and what its user could change to permit it. Do not look for a way around a refusal: "
        "tell the user."
    )


def _refusal(dialect: Dialect, answer: Answer) -> str:
    """Return why a call was refused, the smallest change that would permit it, and where that is kept."""
    outcome = outcome_of(answer.receipt.claims, answer.refusal)
    said = [f"Remit refused this call: {outcome.reason}."]
    if answer.remedy is not None:
        line = suggest(answer.remedy.changes) if answer.remedy.changes else None
        said.append(answer.remedy.sentence)
        if line:
            said.append(f"In {_PROFILE}: {line}; then run `remit protect {dialect.name}` again.")
    said.append(f"Only the user can change this. Receipt {answer.receipt.claims.receipt_id}.")
    return " ".join(said)


_ADVICE: Final[Mapping[type[RemitError], str]] = {
    HubTokenRequired: "the token in the hook is not that of this Hub: run `remit protect {name}` again",
    ProtectionNotFound: "run `remit protect {name}` here, or take the hook out of the settings",
    KillSwitchOn: "the kill switch is on: `remit kill-switch off` releases it",
    RateLimited: "this session is over, and asks too often: stop it, and start a new one",
    RequestConflict: "the same call id came twice, with different calls",
    TokenError: "what the ledger keeps of the session does not verify: `remit ledger check` says more",
}


def _failure(dialect: Dialect, error: Exception) -> str:
    """Return why no decision was made. An error that was not foreseen tells nothing."""
    known = next((words for kind, words in _ADVICE.items() if isinstance(error, kind)), "")
    advice = known.format(name=dialect.name) or "`remit doctor` looks for the cause"
    what = str(error) if isinstance(error, RemitError) else "something went wrong in the Hub"
    return f"Remit could not decide on this call, so it must not be made: {what}. What to do: {advice}."


def _plain(answer: Mapping[str, JSON]) -> Plain:
    return Plain(json.encode(answer), _JSON, (MARK,))
