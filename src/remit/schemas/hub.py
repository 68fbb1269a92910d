"""The requests and answers of the Personal Hub.

Adapters have many vendors and versions, so unknown members of a report are ignored and never stored. A mission, which
limits an agent, must not have unknown members.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from remit.claims.attestation import SessionState
from remit.claims.mission import AgentId, Duration, MissionText, Scope, ScopeEntry, SideEffectClasses, ToolNames
from remit.claims.receipt import ActionClass, Verdict
from remit.claims.types import Count, DateTime, matches
from remit.errors import FieldInvalid
from remit.schemas.proxy import Decision
from remit.schemas.shared import Answer, RequestBody

__all__ = [
    "MAX_BODY_BYTES",
    "MAX_EXCERPT",
    "SCHEMA_VERSION",
    "AdapterDetail",
    "AdapterDetails",
    "Adapters",
    "BrokenSession",
    "CheckAnswer",
    "Consent",
    "Event",
    "HubStartAnswer",
    "HubStartRequest",
    "Message",
    "ObserveAnswer",
    "ObserveRequest",
    "PolicyAnswer",
    "PublicReceiptAnswer",
    "ReceiptAnswer",
    "RequestedMission",
    "ReviewAnswer",
    "SessionInfo",
    "SignedReceiptAnswer",
    "SourceInfo",
    "SourceType",
    "StatusAnswer",
    "VerificationAnswer",
]

SCHEMA_VERSION: Final = "remit.hub.v0.1"
MAX_BODY_BYTES: Final = 1024 * 1024
# How many characters of a text are stored, if the user has consented to it.
MAX_EXCERPT: Final = 1800

SourceType: TypeAlias = Literal["browser", "desktop", "cli"]
_SHA256: Final = r"sha-256:[A-Fa-f0-9]{64}"
_Digest: TypeAlias = Annotated[str, matches(_SHA256)]
_Short: TypeAlias = Annotated[str, Meta(max_length=256)]
_Long: TypeAlias = Annotated[str, Meta(max_length=8192)]
# A fraction of a second may have any number of digits, so the length is limited.
_Moment: TypeAlias = Annotated[DateTime, Meta(max_length=64)]
_Text: TypeAlias = Annotated[str, Meta(description="Observed text; requires `consent.visible_text`.")]
_Raw: TypeAlias = Annotated[
    bool | None,
    Meta(
        description="Must not be true: only digests and consented excerpts are accepted.",
        extra_json_schema={"enum": [False, None]},
    ),
]


class _Report(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A JSON object from an adapter. Unknown members are ignored; null means absent."""


class SourceInfo(_Report, frozen=True, kw_only=True):
    """The adapter that reports."""

    type: Annotated[SourceType, Meta(description="The kind of adapter.")]
    app: Annotated[_Short | None, Meta(description="The observed program.")] = None
    origin: Annotated[_Long | None, Meta(description="The origin of the observed page.")] = None
    process: Annotated[_Short | None, Meta(description="The observed process.")] = None
    version: Annotated[
        _Short | None, Meta(description="The version of the adapter. It does not identify a session.")
    ] = None


class SessionInfo(_Report, frozen=True, kw_only=True):
    """The session of the source, identified by `id`, else by `title`."""

    title: Annotated[_Long | None, Meta(description="The title, for people.")] = None
    id: Annotated[_Short | None, Meta(description="The id that the adapter uses.")] = None


class RequestedMission(RequestBody, frozen=True, kw_only=True):
    """The mission of a new session. Members that are left out have the defaults of an observer."""

    agent_id: Annotated[AgentId | None, Meta(description="The id of the agent.")] = None
    mission: Annotated[MissionText | None, Meta(description="The task of the agent.")] = None
    allowed_tools: Annotated[ToolNames | None, Meta(description="Names or globs; all other tools are denied.")] = None
    forbidden_tools: Annotated[ToolNames | None, Meta(description="Denied even if also allowed.")] = None
    resource_scope: Annotated[Scope | None, Meta(description="What calls may use. Default: everything.")] = None
    max_tool_calls: Annotated[Count | None, Meta(description="The number of events. Default: 5,000.")] = None
    max_duration_s: Annotated[Duration | None, Meta(description="The duration in seconds. Default: one day.")] = None
    allowed_side_effect_classes: Annotated[
        SideEffectClasses | None, Meta(description="The allowed side effects. Default: all.")
    ] = None
    cwd: Annotated[ScopeEntry | None, Meta(description="The directory for relative paths.")] = None


_Source: TypeAlias = Annotated[SourceInfo, Meta(description="The adapter that reports.")]
_Session: TypeAlias = Annotated[SessionInfo | None, Meta(description="The session of the source.")]
_Mission: TypeAlias = Annotated[RequestedMission | None, Meta(description="The mission, if a session is started.")]


class HubStartRequest(_Report, frozen=True, kw_only=True):
    """Start a session, or return the existing one."""

    source: _Source
    session: _Session = None
    mission: _Mission = None


class Consent(_Report, frozen=True, kw_only=True):
    """What the user has consented to."""

    visible_text: Annotated[bool, Meta(description="Excerpts of visible text may be sent.")] = False


class Message(_Report, frozen=True, kw_only=True):
    """One message of an observed conversation."""

    role: Annotated[_Short | None, Meta(description="The role of the speaker.")] = None
    text_excerpt: _Text | None = None
    text_digest: Annotated[_Digest | None, Meta(description="The digest of the whole text.")] = None


class Event(_Report, frozen=True, kw_only=True):
    """An observed event: facts and digests, and text only with consent."""

    kind: Annotated[_Short | None, Meta(description="The adapter's name for it.")] = None
    action_class: Annotated[ActionClass | None, Meta(description="The class of the action.")] = None
    target: Annotated[_Long | None, Meta(description="The target: a URL, a path or a description.")] = None
    content_digest: Annotated[_Digest | None, Meta(description="The digest of the observed content.")] = None
    capture_mode: Annotated[_Short | None, Meta(description="How it was observed.")] = None
    text_snapshot: _Text | None = None
    text_excerpt: _Text | None = None
    text_snapshot_included: Annotated[bool | None, Meta(description="Whether text is included.")] = None
    messages: Annotated[
        Annotated[tuple[Message, ...], Meta(max_length=1000)] | None, Meta(description="An observed conversation.")
    ] = None
    consent: Annotated[Consent | None, Meta(description="What the user has consented to.")] = None
    command: Annotated[str | tuple[str, ...] | None, Meta(description="The command, if one was run.")] = None
    exit_code: Annotated[
        Annotated[int, Meta(ge=-(2**31), le=2**32)] | None, Meta(description="The exit code of the command.")
    ] = None
    stdout_digest: Annotated[_Digest | None, Meta(description="The digest of stdout.")] = None
    stderr_digest: Annotated[_Digest | None, Meta(description="The digest of stderr.")] = None
    stdout: _Text | None = None
    stderr: _Text | None = None
    hidden_provider_activity: Annotated[
        Any,
        Meta(description="Activity of the provider that was not visible. null, false, 0 and empty values mean none."),
    ] = None
    observed_at: Annotated[
        _Moment | None,
        Meta(description="When it was observed: not before 2020, and at most 5 minutes ahead of the Hub's clock."),
    ] = None
    raw_content_included: _Raw = None

    def __post_init__(self) -> None:
        """Raise for raw content, and for text without consent."""
        _refuse_raw(self.raw_content_included)
        if self._shows_text and not (self.consent and self.consent.visible_text):
            raise FieldInvalid("text requires consent.visible_text", place=f"$.{self._first_text}")

    @property
    def _first_text(self) -> str:
        """Return the first member with text."""
        return next((name for name in _TEXT_MEMBERS if getattr(self, name)), "messages")

    @property
    def _shows_text(self) -> bool:
        given = any(getattr(self, name) for name in _TEXT_MEMBERS)
        return given or bool(self.messages and any(message.text_excerpt for message in self.messages))


# Members that hold text or announce it. Messages hold text one level deeper.
_TEXT_MEMBERS: Final = ("text_snapshot", "text_excerpt", "stdout", "stderr", "text_snapshot_included")
# JSON Schema for the rule that text requires consent.
_CONSENTED: Final = {
    "anyOf": [
        {
            "required": ["consent"],
            "properties": {
                "consent": {
                    "type": "object",
                    "required": ["visible_text"],
                    "properties": {"visible_text": {"const": True}},
                }
            },
        },
        {
            "properties": {
                "text_snapshot": {"enum": ["", None]},
                "text_excerpt": {"enum": ["", None]},
                "stdout": {"enum": ["", None]},
                "stderr": {"enum": ["", None]},
                "text_snapshot_included": {"enum": [False, None]},
                "messages": {"items": {"properties": {"text_excerpt": {"enum": ["", None]}}}},
            }
        },
    ]
}


class ObserveRequest(_Report, frozen=True, kw_only=True):
    """An event with its source and session. The session is started if it does not exist."""

    source: _Source
    event: Annotated[Event, Meta(description="The event.", extra_json_schema=_CONSENTED)]
    session: _Session = None
    mission: _Mission = None
    raw_content_included: _Raw = None
    idempotency_key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=256)] | None,
        Meta(description="Chosen by the adapter. The same event again under the same key gets the same receipt."),
    ] = None

    def __post_init__(self) -> None:
        """Raise for raw content."""
        _refuse_raw(self.raw_content_included)


def _refuse_raw(included: bool | None) -> None:  # noqa: FBT001 - a member of a request
    if included:
        raise FieldInvalid("raw content is not accepted: send its digest", place="$.raw_content_included")


_Schema: TypeAlias = Annotated[str, Meta(description="The version of this API.")]
_Key: TypeAlias = Annotated[str, Meta(description="The key of the source and session.")]
_SessionId: TypeAlias = Annotated[str, Meta(description="The id of the session, which is the id of its passport.")]
_SourceSaid: TypeAlias = Annotated[dict[str, Any], Meta(description="The adapter, as it was reported.")]
_Title: TypeAlias = Annotated[str, Meta(description="The title, for people.")]
_Started: TypeAlias = Annotated[DateTime, Meta(description="The start of the session.")]
_Verdict: TypeAlias = Annotated[Verdict, Meta(description="The verdict on the call or event.")]
_Reason: TypeAlias = Annotated[str, Meta(description="The reason, for people.")]
_ReceiptId: TypeAlias = Annotated[str, Meta(description="The id in the receipt.")]


class HubStartAnswer(Answer, frozen=True, kw_only=True):
    """A session of the Hub."""

    ok: Literal[True] = True
    schema_version: _Schema = SCHEMA_VERSION
    session_id: _Key
    ardur_session_id: _SessionId
    agent_id: Annotated[str, Meta(description="The id of the agent.")]
    mission: Annotated[str, Meta(description="The task of the agent.")]
    source: _SourceSaid
    title: _Title
    started_at: _Started
    token: Annotated[str, Meta(description="The passport.")]
    existing: Annotated[bool, Meta(description="Whether the session existed before.")]


class PolicyAnswer(Answer, frozen=True, kw_only=True):
    """The decision of the policy on an event."""

    decision: _Verdict
    reason: _Reason
    tool_name: Annotated[str, Meta(description="The tool name that is used for the source.")]
    arguments: Annotated[dict[str, Any], Meta(description="As they were judged: with digests instead of text.")]


class CheckAnswer(Answer, frozen=True, kw_only=True):
    """The decision that the event would get. Nothing is recorded."""

    ok: Literal[True] = True
    schema_version: _Schema = SCHEMA_VERSION
    policy: PolicyAnswer


class ReceiptAnswer(Answer, frozen=True, kw_only=True):
    """A receipt and its most important members."""

    receipt_id: _ReceiptId
    receipt_hash: Annotated[str, Meta(description="SHA-256 of the token; the next receipt refers to it.")]
    jwt: Annotated[str, Meta(description="The signed receipt. It is already durable.")]
    verdict: _Verdict
    timestamp: Annotated[DateTime, Meta(description="The time of the decision.")]
    tool: Annotated[str, Meta(description="The tool name.")]
    target: Annotated[str, Meta(description="The target.")]


class SignedReceiptAnswer(Answer, frozen=True, kw_only=True):
    """A full receipt: the signed token and its claims."""

    ok: Literal[True] = True
    schema_version: _Schema = SCHEMA_VERSION
    view: Literal["full"] = "full"
    ardur_session_id: _SessionId
    receipt: ReceiptAnswer
    claims: Annotated[dict[str, Any], Meta(description="The claims of the token.")]


class PublicReceiptAnswer(Answer, frozen=True, kw_only=True):
    """The public view of a receipt: without the internal code and audit-only members, and unsigned."""

    ok: Literal[True] = True
    schema_version: _Schema = SCHEMA_VERSION
    view: Literal["remit-receipt-public"] = "remit-receipt-public"
    signed: Literal[False] = False
    receipt_id: _ReceiptId
    receipt_hash: Annotated[str, Meta(description="SHA-256 of the signed receipt.")]
    omitted: Annotated[tuple[str, ...], Meta(description="The members of the receipt that are omitted.")]
    claims: Annotated[dict[str, Any], Meta(description="The remaining members.")]


class ReviewAnswer(Answer, frozen=True, kw_only=True):
    """The running summary of a session."""

    session_id: _Key
    ardur_session_id: _SessionId
    source: _SourceSaid
    provider: Annotated[str, Meta(description="The provider of the observed service.")]
    title: _Title
    status: Annotated[SessionState, Meta(description="All but `active` are final.")]
    started_at: _Started
    updated_at: Annotated[DateTime, Meta(description="The time of the last report.")]
    observations: Annotated[Count, Meta(description="The number of events.")]
    verdicts: Annotated[dict[Verdict, Count], Meta(description="The number of receipts by verdict.")]
    labels: Annotated[tuple[str, ...], Meta(description="Labels of what events contained, and denial codes.")]
    latest_receipt_id: Annotated[str | None, Meta(description="Of the last receipt.")]
    latest_receipt_hash: Annotated[str | None, Meta(description="Of the last receipt.")]
    summary: Annotated[str, Meta(description="One sentence, for people.")]
    actions: Annotated[
        msgspec.Raw,
        Meta(
            description="The last 50 actions, oldest first.",
            extra_json_schema={"type": "array", "items": {}},
        ),
    ]


class ObserveAnswer(Answer, frozen=True, kw_only=True):
    """The decision on the event, its receipt, and the review of its session. A DENY is an answer, not an error."""

    ok: Literal[True] = True
    schema_version: _Schema = SCHEMA_VERSION
    session_id: _Key
    ardur_session_id: _SessionId
    decision: Decision
    policy: PolicyAnswer
    receipt_id: _ReceiptId
    receipt: ReceiptAnswer
    session_review: ReviewAnswer


class Adapters(Answer, frozen=True, kw_only=True):
    """The availability of the adapters."""

    browser: Annotated[str, Meta(description="The browser extension.")] = "available"
    desktop: Annotated[str, Meta(description="The desktop observer.")] = "available_with_macos_permissions"
    cli: Annotated[str, Meta(description="The command-line adapter.")] = "available"


class BrokenSession(Answer, frozen=True, kw_only=True):
    """A session whose chain is broken."""

    session_id: _SessionId
    receipt: Annotated[
        Count | None, Meta(description="The first wrong receipt, counted from 1; null if not known yet.")
    ] = None
    fault: Annotated[str | None, Meta(description="What is wrong with it; null if not known yet.")] = None


class VerificationAnswer(Answer, frozen=True, kw_only=True):
    """What the background verifier has verified so far."""

    state: Annotated[
        Literal["verified", "verifying", "broken", "unknown"],
        Meta(
            description="`verified`: everything up to `verified_at`. `verifying`: the first pass is not done. "
            "`broken`: the chain of a session is broken. `unknown`: the verifier does not report."
        ),
    ]
    problem: Annotated[str, Meta(description="Why the verifier does not work; empty if it does.")] = ""
    sessions: Annotated[Count, Meta(description="The number of sessions.")]
    sessions_verified: Annotated[
        Count, Meta(description="How many of them were verified, as far as they were read.")
    ] = 0
    sessions_broken: Annotated[Count, Meta(description="The number of sessions with a broken chain.")] = 0
    receipts_verified: Annotated[Count, Meta(description="The number of verified receipts.")] = 0
    verified_through: Annotated[
        str | None, Meta(description="The last receipt up to which everything was verified.")
    ] = None
    verified_at: Annotated[
        DateTime | None, Meta(description="Everything that was recorded before this time was verified.")
    ] = None
    pass_started_at: Annotated[DateTime | None, Meta(description="The start of the current pass.")] = None
    last_full_pass_at: Annotated[
        DateTime | None, Meta(description="The end of the last pass that verified every signature.")
    ] = None
    broken: Annotated[tuple[BrokenSession, ...], Meta(description="Sessions with a broken chain, 100 at most.")] = ()


class AdapterDetail(Answer, frozen=True, kw_only=True):
    """Observed activity of one kind of adapter."""

    available: Annotated[bool, Meta(description="Whether it is known to be installed, or has reported.")]
    by: Annotated[str, Meta(description="What reports as this kind of source.")]
    installed: Annotated[bool | None, Meta(description="Null where the Hub cannot detect it.")] = None
    last_event: Annotated[
        DateTime | None,
        Meta(description="When its last receipt was issued, among those since the Hub started and the last sessions."),
    ] = None
    version: Annotated[str | None, Meta(description="The reported `source.version`.")] = None


class AdapterDetails(Answer, frozen=True, kw_only=True):
    """Observed activity, by the type of source."""

    browser: AdapterDetail
    desktop: AdapterDetail
    cli: AdapterDetail


class StatusAnswer(Answer, frozen=True, kw_only=True):
    """The status of the Hub."""

    ok: Literal[True] = True
    schema_version: _Schema = SCHEMA_VERSION
    version: Annotated[str, Meta(description="The version of the program.")]
    home: Annotated[str, Meta(description="The path of the home.")]
    verifier_id: Annotated[str, Meta(description="The verifier id that signs receipts.")]
    hub_url: Annotated[str, Meta(description="The address of the Hub.")]
    sessions: Annotated[Count, Meta(description="The number of sessions, including those of the proxy.")]
    session_reviews: Annotated[Count, Meta(description="The number of sessions with reports from adapters.")]
    latest_receipt: Annotated[ReceiptAnswer | None, Meta(description="The newest receipt of the ledger.")]
    public_key_pem: Annotated[str, Meta(description="The public key that verifies receipts.")]
    adapters: Adapters
    adapter_details: Annotated[AdapterDetails, Meta(description="Observed activity of each kind of adapter.")]
    verification: Annotated[
        VerificationAnswer | None, Meta(description="What the background verifier has verified so far.")
    ] = None
