"""From what an adapter has sent to what is judged and what is shown: pure functions.

Invariant: what is judged, and what a receipt is about, holds no text that was seen, only its digest. Each text has its
SHA-256 in the `measurements` of the receipt. An excerpt goes into the review, clipped, and nowhere else.
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
from remit.claims.shapes import check_leap_second
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid
from remit.governor.clock import parse_timestamp
from remit.governor.evaluate import Seen
from remit.governor.observe import Observe, Report
from remit.governor.receipts import clip
from remit.governor.sources import Reporter
from remit.policy.evidence import redacted
from remit.schemas.hub import (
    MAX_EXCERPT,
    Event,
    Message,
    MissionAsked,
    ObserveRequest,
    SessionTold,
    SourceTold,
    StartRequest,
)

__all__ = [
    "MAX_ACTIONS",
    "MAX_AHEAD_S",
    "MAX_MEASURED_MESSAGES",
    "OBSERVATION_TOOLS",
    "report_of",
    "reporter_of",
]

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
# Of how many messages a receipt holds the digests one by one; beyond that, one digest over the list of them.
MAX_MEASURED_MESSAGES: Final = 16
# How far ahead of our clock the time of an event may lie, and the first moment that is not absurd.
MAX_AHEAD_S: Final = 300
_EARLIEST_MS: Final = parse_timestamp("2020-01-01T00:00:00Z")
_TEXTS: Final = ("text_snapshot", "text_excerpt", "stdout", "stderr")
_GIVEN: Final = ("stdout_digest", "stderr_digest")
_PLACE: Final = "$.event.observed_at"
_PREFIX: Final = "remit.event."


def report_of(request: ObserveRequest, now_ms: int) -> Report:
    """Return what was reported, and by whom; raise `FieldInvalid` if it is said to be of another time."""
    event = request.event
    observe = Observe(
        "",
        request.source.type,
        _arguments(event),
        request.idempotency_key or "",
        Seen(tuple(_marks(event)), tuple(_actions(event))),
        dict(_measured(event)),
        _observed_ms(event.observed_at, now_ms),
    )
    return Report(reporter_of(request), observe)


def _observed_ms(given: str | None, now_ms: int) -> int | None:
    """Return when an event was observed, in milliseconds since 1970."""
    if given is None:
        return None
    check_leap_second(given, _PLACE)
    try:
        observed_ms = parse_timestamp(given)
    except (ValueError, OverflowError):
        observed_ms = _EARLIEST_MS - 1
    if observed_ms < _EARLIEST_MS:
        raise FieldInvalid("is before 2020: not when it was observed", place=_PLACE)
    if observed_ms > now_ms + MAX_AHEAD_S * 1000:
        raise FieldInvalid(f"is more than {MAX_AHEAD_S // 60} minutes ahead of the Hub's clock", place=_PLACE)
    return observed_ms


def _measured(event: Event) -> Iterator[tuple[str, Measurement]]:
    """Yield what the receipt says of the texts that were sent, of digests in their place, and of the time given."""
    for name in _TEXTS:
        if text := getattr(event, name):
            yield _PREFIX + name, _computed(_digest_of(text))
    for name in _GIVEN:
        if digest := getattr(event, name):
            yield _PREFIX + name, _given(digest)
    if event.observed_at is not None:
        yield (
            f"{_PREFIX}observed_at",
            Measurement(
                kind="telemetry", status="success", collected_at=event.observed_at, description="as given by the caller"
            ),
        )
    yield from _measured_messages(event.messages or ())


def _measured_messages(messages: Sequence[Message]) -> Iterator[tuple[str, Measurement]]:
    digests = [_message_digests(message) for message in messages]
    if not any(digests):
        return
    if len(messages) > MAX_MEASURED_MESSAGES:
        form = canonicalize([{**message} for message in digests])
        digest = _digest("sha-256:" + sha256_hex(form), canonicalization="jcs-rfc8785")
        words = f"over the list of the digests of {len(messages)} messages"
        yield f"{_PREFIX}messages", Measurement(kind="telemetry", status="success", digest=digest, description=words)
        return
    for number, message in enumerate(digests):
        for name, value in message.items():
            made = _computed(value) if name == "text_excerpt" else _given(value)
            yield f"{_PREFIX}messages.{number}.{name}", made


def _message_digests(message: Message) -> dict[str, str]:
    digests = {"text_excerpt": _digest_of(message.text_excerpt)} if message.text_excerpt else {}
    return digests | ({"text_digest": message.text_digest} if message.text_digest else {})


def _computed(digest: str) -> Measurement:
    return Measurement(kind="telemetry", status="success", digest=_digest(digest))


def _given(digest: str) -> Measurement:
    """Return a digest that the caller has made of what it has not sent: nothing here has verified it."""
    return Measurement(kind="telemetry", status="not-run", digest=_digest(digest), description="as given by the caller")


def _digest(text: str, canonicalization: Literal["jcs-rfc8785", "none"] = "none") -> Digest:
    """Return a digest as receipts write it, from one as events write it."""
    value = encode_base64url(bytes.fromhex(text.partition(":")[2]))
    return Digest(alg="sha-256", value=value, canonicalization=canonicalization, scope="measurement")


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
    # A new version of the adapter goes on in the same session.
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
    if event.command is not None:
        facts["command"] = list(event.command) if isinstance(event.command, tuple) else event.command
    if event.hidden_provider_activity:
        facts["hidden_provider_activity"] = event.hidden_provider_activity
    texts = [text for text in (event.text_snapshot, event.text_excerpt) if text]
    if texts:
        facts["text_digest"] = _digest_of("\n".join(texts))
    for name in ("stdout", "stderr"):
        if text := getattr(event, name):
            facts[f"{name}_text_digest"] = _digest_of(text)
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
    if event.action_class in _OUTWARD:
        yield event.action_class


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
        text = event.text_excerpt or event.text_snapshot or event.stdout or event.stderr
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
