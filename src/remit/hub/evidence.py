"""From what an adapter has sent to what is judged and what is shown: pure functions.

Keeps this invariant: what is judged, and so what a receipt is about, holds no text that was seen, only its digest. An
excerpt that somebody has agreed to show goes into the review, clipped, and nowhere else.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final

from msgspec import json, to_builtins

from remit.claims.canonical import canonicalize, sha256_hex
from remit.claims.mission import EVERYTHING, Mission, parse_mission
from remit.claims.passport import OBSERVE_AUDIENCE
from remit.claims.strictjson import JSON
from remit.governor.evaluate import Seen
from remit.governor.observe import Observe, Report
from remit.governor.receipts import clip
from remit.governor.sources import Reporter
from remit.messages.hub import (
    MAX_EXCERPT,
    Event,
    Message,
    MissionAsked,
    ObserveRequest,
    SessionTold,
    SourceTold,
    StartRequest,
)
from remit.policy.redaction import redacted

__all__ = ["MAX_ACTIONS", "OBSERVATION_TOOLS", "report_of", "reporter_of"]

OBSERVATION_TOOLS: Final = ("browser_observe", "desktop_observe", "cli_command", "cli_observe")
# Of one event: a conversation that is longer shows its end.
MAX_ACTIONS: Final = 50
_OBSERVERS: Final = 256
_MAX_CALLS: Final = 5000
_MAX_DURATION_S: Final = 24 * 3600
_DIGESTS: Final = ("content_digest", "stdout_digest", "stderr_digest")
# What is judged as it was sent.
_FACTS: Final = ("kind", "action_class", "target", "capture_mode", "exit_code", "observed_at", *_DIGESTS)
_OUTWARD: Final = ("send", "write")


def report_of(request: ObserveRequest) -> Report:
    """Return what was reported, and by whom."""
    arguments = _arguments(request.event)
    seen = Seen(tuple(_marks(request.event)), tuple(_actions(request.event)))
    observe = Observe("", request.source.type, arguments, request.idempotency_key or "", seen)
    return Report(reporter_of(request), observe)


def reporter_of(request: StartRequest | ObserveRequest) -> Reporter:
    """Return who reports, to which session, and under which mission one is started."""
    if request.mission is None:
        return _observer(request.source, request.session)
    return _reporter(request.source, request.session, request.mission)


# Most events come from few sources, and without a mission: with one, this could hold much.
@lru_cache(maxsize=_OBSERVERS)
def _observer(source: SourceTold, session: SessionTold | None) -> Reporter:
    return _reporter(source, session, None)


def _reporter(source: SourceTold, told_session: SessionTold | None, mission: MissionAsked | None) -> Reporter:
    session = told_session or SessionTold()
    title = session.title or session.id or f"{source.type} session"
    named = ["id", session.id] if session.id else ["title", title]
    key = [source.type, source.app or None, source.origin or None, source.process or None, *named]
    told = {"title": title, **{name: value for name, value in _plain(source).items() if value}}
    name = f"hub:{sha256_hex(canonicalize(key))[:32]}"
    return Reporter(name, _text(told), _mission(source, mission), OBSERVE_AUDIENCE)


def _mission(source: SourceTold, asked: MissionAsked | None) -> Mission:
    """Return the mission that is asked for; without one, that of an observer."""
    given = {name: value for name, value in _plain(asked).items() if value is not None} if asked else {}
    defaults: dict[str, JSON] = {
        "agent_id": f"{source.type}-observer",
        "mission": "Report what is done on this machine, so that it can be judged and receipted",
        "resource_scope": [EVERYTHING],
        "max_tool_calls": _MAX_CALLS,
        "max_duration_s": _MAX_DURATION_S,
    }
    if asked is None:
        defaults["allowed_tools"] = list(OBSERVATION_TOOLS)
    return parse_mission(given, defaults)


def _plain(value: object) -> dict[str, JSON]:
    members: dict[str, JSON] = to_builtins(value)
    return members


def _text(value: Mapping[str, JSON]) -> str:
    return json.encode(value).decode()


def _arguments(event: Event) -> dict[str, JSON]:
    """Return the facts of an event, with digests in the place of text."""
    facts: dict[str, JSON] = {name: value for name in _FACTS if (value := getattr(event, name)) is not None}
    if event.action_class is not None:
        facts["action_class"] = _done(event)
    if event.command is not None:
        facts["command"] = list(event.command) if isinstance(event.command, tuple) else event.command
    if event.hidden_provider_activity:
        facts["hidden_provider_activity"] = event.hidden_provider_activity
    texts = [text for text in (event.text_snapshot, event.text_excerpt) if text]
    if texts:
        facts["text_digest"] = _digest_of("\n".join(texts))
    if event.messages:
        facts["messages"] = [_message_facts(message) for message in event.messages]
    if event.consent and event.consent.visible_text:
        facts["text_consent"] = True
    return facts


def _message_facts(message: Message) -> dict[str, JSON]:
    facts: dict[str, JSON] = {"role": message.role, "text_digest": _message_digest(message)}
    return {name: value for name, value in facts.items() if value is not None}


def _message_digest(message: Message) -> str | None:
    """Return the digest of a message: of what was sent, or what the adapter says of what it has not sent."""
    return message.text_digest or (_digest_of(message.text_excerpt) if message.text_excerpt else None)


def _digest_of(text: str) -> str:
    """Return the digest of text, as events write it."""
    return f"sha-256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _marks(event: Event) -> Iterator[str]:
    """Yield words for what was in an event."""
    if event.command:
        yield "command"
    if event.messages:
        yield "conversation"
    if event.consent and event.consent.visible_text:
        yield "visible_text"
    if _done(event) in _OUTWARD:
        yield _done(event)


def _done(event: Event) -> str:
    """Return what an adapter says that was done, as policy knows it."""
    return (event.action_class or "").strip().lower()


def _actions(event: Event) -> Iterator[dict[str, JSON]]:
    """Yield what people are shown of an event: each message of a conversation, or the event as a whole."""
    digests = {name: value for name in _DIGESTS if (value := getattr(event, name))}
    kind = event.kind or ("command" if event.command else "observation")
    moment: dict[str, JSON] = {"observed_at": event.observed_at} if event.observed_at else {}
    for message in (event.messages or ())[-MAX_ACTIONS:]:
        digest = _message_digest(message)
        said: dict[str, JSON] = {
            "kind": kind,
            "role": message.role,
            "summary": clip(message.text_excerpt or "", MAX_EXCERPT),
        }
        yield {**moment, **said, **({"text_digest": digest} if digest else {}), **digests}
    if not event.messages:
        text = event.text_excerpt or event.text_snapshot
        shown = {"text_digest": _digest_of(text)} if text else {}
        yield {
            **moment,
            "kind": kind,
            "role": None,
            "summary": clip(text or _said(event), MAX_EXCERPT),
            **shown,
            **digests,
        }


def _said(event: Event) -> str:
    """Return what was done in a few words, where no text is shown."""
    if event.command:
        return redacted(event.command if isinstance(event.command, str) else " ".join(event.command))
    return redacted(" ".join([part for part in (event.action_class, event.target) if part]))
