"""Converts the events that adapters send into what the governor judges and what a review shows. Pure functions.

Invariant: what is judged and receipted has no observed text, only digests of it. The SHA-256 of each text is in the
`measurements` of the receipt. A clipped excerpt goes into the review, and nowhere else.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final, Literal

from msgspec import json, to_builtins

from remit.claims.canonical import canonicalize, encode_base64url, sha256_hex
from remit.claims.mission import EVERYTHING, Mission, parse_mission
from remit.claims.passport import OBSERVE_AUDIENCE
from remit.claims.receipt import Digest, Measurement
from remit.claims.strictjson import JSON
from remit.claims.types import check_leap_second
from remit.errors import FieldInvalid
from remit.governor.clock import parse_timestamp
from remit.governor.evaluate import EventSummary
from remit.governor.observe import ObserveEvent, ReportEvent
from remit.governor.receipts import clip
from remit.governor.sources import Reporter
from remit.policy.evidence import redact
from remit.schemas.hub import (
    MAX_EXCERPT,
    Event,
    HubStartRequest,
    Message,
    ObserveRequest,
    RequestedMission,
    SessionInfo,
    SourceInfo,
)

OBSERVATION_TOOLS: Final = ("browser_observe", "desktop_observe", "cli_command", "cli_observe")
# Actions of one event in the review. Of a longer conversation, the last messages are shown.
MAX_ACTIONS: Final = 50
# Size of the cache of reporters.
_OBSERVERS: Final = 256
_MAX_CALLS: Final = 5000
_MAX_DURATION_S: Final = 24 * 3600
_DIGESTS: Final = ("content_digest", "stdout_digest", "stderr_digest")
# Members of an event that are judged as they were sent.
_FACTS: Final = ("kind", "action_class", "target", "capture_mode", "exit_code", "observed_at", *_DIGESTS)
_OUTWARD: Final = ("send", "write")
# A receipt has the digests of up to this many messages; of more, it has one digest over the list of digests.
MAX_MEASURED_MESSAGES: Final = 16
# How far the time of an event may be ahead of the Hub's clock, and the earliest time that is accepted.
MAX_AHEAD_S: Final = 300
_EARLIEST_MS: Final = parse_timestamp("2020-01-01T00:00:00Z")
_TEXT_MEMBERS: Final = ("text_snapshot", "text_excerpt", "stdout", "stderr")
_DIGEST_MEMBERS: Final = ("stdout_digest", "stderr_digest")
_OBSERVED_AT: Final = "$.event.observed_at"
_MEASUREMENT: Final = "remit.event."


def build_report(request: ObserveRequest, now_ms: int) -> ReportEvent:
    """Return the report for an event. Raise `FieldInvalid` if its `observed_at` is too early or ahead of the clock."""
    event = request.event
    observe = ObserveEvent(
        "",
        request.source.type,
        _arguments(event),
        request.idempotency_key or "",
        EventSummary(tuple(_labels(event)), tuple(_actions(event))),
        dict(_measurements(event)),
        _parse_observed_at(event.observed_at, now_ms),
    )
    return ReportEvent(build_reporter(request), observe)


def _parse_observed_at(given: str | None, now_ms: int) -> int | None:
    """Return the time of an event in milliseconds since 1970, or raise `FieldInvalid`."""
    if given is None:
        return None
    check_leap_second(given, _OBSERVED_AT)
    try:
        observed_ms = parse_timestamp(given)
    except (ValueError, OverflowError):
        observed_ms = _EARLIEST_MS - 1
    if observed_ms < _EARLIEST_MS:
        raise FieldInvalid("is before 2020", place=_OBSERVED_AT)
    if observed_ms > now_ms + MAX_AHEAD_S * 1000:
        raise FieldInvalid(f"is more than {MAX_AHEAD_S // 60} minutes ahead of the Hub's clock", place=_OBSERVED_AT)
    return observed_ms


def _measurements(event: Event) -> Iterator[tuple[str, Measurement]]:
    """Yield the measurements of the receipt: digests of texts, digests that the caller has sent, and the given time."""
    for name in _TEXT_MEMBERS:
        if text := getattr(event, name):
            yield _MEASUREMENT + name, _computed_measurement(_format_digest(text))
    for name in _DIGEST_MEMBERS:
        if digest := getattr(event, name):
            yield _MEASUREMENT + name, _unverified_measurement(digest)
    if event.observed_at is not None:
        yield (
            f"{_MEASUREMENT}observed_at",
            Measurement(
                kind="telemetry", status="success", collected_at=event.observed_at, description="as given by the caller"
            ),
        )
    yield from _message_measurements(event.messages or ())


def _message_measurements(messages: Sequence[Message]) -> Iterator[tuple[str, Measurement]]:
    digests = [_message_digests(message) for message in messages]
    if not any(digests):
        return
    if len(messages) > MAX_MEASURED_MESSAGES:
        form = canonicalize([{**message} for message in digests])
        digest = _digest("sha-256:" + sha256_hex(form), canonicalization="jcs-rfc8785")
        description = f"over the list of the digests of {len(messages)} messages"
        yield (
            f"{_MEASUREMENT}messages",
            Measurement(kind="telemetry", status="success", digest=digest, description=description),
        )
        return
    for number, message in enumerate(digests):
        for name, value in message.items():
            measurement = _computed_measurement(value) if name == "text_excerpt" else _unverified_measurement(value)
            yield f"{_MEASUREMENT}messages.{number}.{name}", measurement


def _message_digests(message: Message) -> dict[str, str]:
    digests = {"text_excerpt": _format_digest(message.text_excerpt)} if message.text_excerpt else {}
    return digests | ({"text_digest": message.text_digest} if message.text_digest else {})


def _computed_measurement(digest: str) -> Measurement:
    return Measurement(kind="telemetry", status="success", digest=_digest(digest))


def _unverified_measurement(digest: str) -> Measurement:
    """Return the measurement of a digest that the caller has sent without the text, so it is not verified."""
    return Measurement(kind="telemetry", status="not-run", digest=_digest(digest), description="as given by the caller")


def _digest(text: str, canonicalization: Literal["jcs-rfc8785", "none"] = "none") -> Digest:
    """Convert a digest from the form of events (`sha-256:` and hex) to that of receipts."""
    value = encode_base64url(bytes.fromhex(text.partition(":")[2]))
    return Digest(alg="sha-256", value=value, canonicalization=canonicalization, scope="measurement")


def build_reporter(request: HubStartRequest | ObserveRequest) -> Reporter:
    """Return the reporter of a request: the key of its session, its source, and the mission for a new session."""
    if request.mission is None:
        return _observer(request.source, request.session)
    return _reporter(request.source, request.session, request.mission)


# Most events come from few sources and have no mission. Missions can be large, so these are not cached.
@lru_cache(maxsize=_OBSERVERS)
def _observer(source: SourceInfo, session: SessionInfo | None) -> Reporter:
    return _reporter(source, session, None)


def _reporter(source: SourceInfo, given: SessionInfo | None, mission: RequestedMission | None) -> Reporter:
    session = given or SessionInfo()
    title = session.title or session.id or f"{source.type} session"
    name = ["id", session.id] if session.id else ["title", title]
    # The version is not part of the key: a new version of the adapter continues the session.
    key = [source.type, source.app or None, source.origin or None, source.process or None, *name]
    details = {"title": title, **{name: value for name, value in _members(source).items() if value}}
    session_key = f"hub:{sha256_hex(canonicalize(key))[:32]}"
    return Reporter(session_key, _to_json(details), _mission(source, mission), OBSERVE_AUDIENCE)


def _mission(source: SourceInfo, requested: RequestedMission | None) -> Mission:
    """Return the requested mission; without one, the mission of an observer."""
    given = {name: value for name, value in _members(requested).items() if value is not None} if requested else {}
    defaults: dict[str, JSON] = {
        "agent_id": f"{source.type}-observer",
        "mission": "ReportEvent what is done on this machine, so that it can be judged and receipted",
        "resource_scope": [EVERYTHING],
        "max_tool_calls": _MAX_CALLS,
        "max_duration_s": _MAX_DURATION_S,
    }
    if requested is None:
        defaults["allowed_tools"] = list(OBSERVATION_TOOLS)
    return parse_mission(given, defaults)


def _members(value: object) -> dict[str, JSON]:
    members: dict[str, JSON] = to_builtins(value)
    return members


def _to_json(value: Mapping[str, JSON]) -> str:
    return json.encode(value).decode()


def _arguments(event: Event) -> dict[str, JSON]:
    """Return the arguments that are judged: the members of an event, with digests in place of texts."""
    facts: dict[str, JSON] = {name: value for name in _FACTS if (value := getattr(event, name)) is not None}
    if event.command is not None:
        facts["command"] = list(event.command) if isinstance(event.command, tuple) else event.command
    if event.hidden_provider_activity:
        facts["hidden_provider_activity"] = event.hidden_provider_activity
    texts = [text for text in (event.text_snapshot, event.text_excerpt) if text]
    if texts:
        facts["text_digest"] = _format_digest("\n".join(texts))
    for name in ("stdout", "stderr"):
        if text := getattr(event, name):
            facts[f"{name}_text_digest"] = _format_digest(text)
    if event.messages:
        facts["messages"] = [_message_facts(message) for message in event.messages]
    if event.consent and event.consent.visible_text:
        facts["text_consent"] = True
    return facts


def _message_facts(message: Message) -> dict[str, JSON]:
    facts: dict[str, JSON] = {"role": message.role, "text_digest": _message_digest(message)}
    return {name: value for name, value in facts.items() if value is not None}


def _message_digest(message: Message) -> str | None:
    """Return the digest that came with a message, or else that of its excerpt."""
    return message.text_digest or (_format_digest(message.text_excerpt) if message.text_excerpt else None)


def _format_digest(text: str) -> str:
    """Return the digest of a text in the form of events."""
    return f"sha-256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _labels(event: Event) -> Iterator[str]:
    """Yield the labels that an event adds to the review."""
    if event.command:
        yield "command"
    if event.messages:
        yield "conversation"
    if event.consent and event.consent.visible_text:
        yield "visible_text"
    if event.action_class in _OUTWARD:
        yield event.action_class


def _actions(event: Event) -> Iterator[dict[str, JSON]]:
    """Yield the actions that the review shows: one for each message, or one for an event without messages."""
    digests = {name: value for name in _DIGESTS if (value := getattr(event, name))}
    kind = event.kind or ("command" if event.command else "observation")
    moment: dict[str, JSON] = {"observed_at": event.observed_at} if event.observed_at else {}
    for message in (event.messages or ())[-MAX_ACTIONS:]:
        digest = _message_digest(message)
        action: dict[str, JSON] = {
            "kind": kind,
            "role": message.role,
            "summary": clip(message.text_excerpt or "", MAX_EXCERPT),
        }
        yield {**moment, **action, **({"text_digest": digest} if digest else {}), **digests}
    if not event.messages:
        text = event.text_excerpt or event.text_snapshot or event.stdout or event.stderr
        text_digest = {"text_digest": _format_digest(text)} if text else {}
        yield {
            **moment,
            "kind": kind,
            "role": None,
            "summary": clip(text or _describe(event), MAX_EXCERPT),
            **text_digest,
            **digests,
        }


def _describe(event: Event) -> str:
    """Return a short description of an event without text, with secrets redacted."""
    if event.command:
        return redact(event.command if isinstance(event.command, str) else " ".join(event.command))
    return redact(" ".join([part for part in (event.action_class, event.target) if part]))
