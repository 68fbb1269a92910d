"""The requests and answers of the Personal Hub.

Adapters are of many makers and versions: a member of a report that is not known here is left out, and never kept. What
limits an agent, its mission, has no members but those that are known.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from remit.claims.attestation import SessionState
from remit.claims.mission import AgentId, Duration, MissionText, Scope, ScopeEntry, SideEffectClasses, ToolNames
from remit.claims.receipt import ActionClass, Verdict
from remit.claims.shapes import Count, DateTime, matching
from remit.errors import FieldInvalid
from remit.schemas.proxy import Decision
from remit.schemas.shared import Answer, Request

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
    "Message",
    "MissionAsked",
    "ObserveAnswer",
    "ObserveRequest",
    "PolicyAnswer",
    "PublicReceiptAnswer",
    "ReceiptAnswer",
    "ReviewAnswer",
    "SessionTold",
    "SignedReceiptAnswer",
    "SourceTold",
    "SourceType",
    "StartAnswer",
    "StartRequest",
    "StatusAnswer",
    "VerificationAnswer",
]

SCHEMA_VERSION: Final = "remit.hub.v0.1"
MAX_BODY_BYTES: Final = 1024 * 1024
# How much of a text that somebody has agreed to show is kept.
MAX_EXCERPT: Final = 1800

SourceType: TypeAlias = Literal["browser", "desktop", "cli"]
_SHA256: Final = r"sha-256:[A-Fa-f0-9]{64}"
_Digest: TypeAlias = Annotated[str, matching(_SHA256)]
_Short: TypeAlias = Annotated[str, Meta(max_length=256)]
_Long: TypeAlias = Annotated[str, Meta(max_length=8192)]
# Longer than any that is meant: a fraction of a second may have any number of digits.
_Moment: TypeAlias = Annotated[DateTime, Meta(max_length=64)]
_Text: TypeAlias = Annotated[str, Meta(description="Text that was seen; needs `consent.visible_text`.")]
_Raw: TypeAlias = Annotated[
    bool | None,
    Meta(
        description="Raw content is never taken: digests and consented excerpts only.",
        extra_json_schema={"enum": [False, None]},
    ),
]


class _Report(Request, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A JSON object of an adapter. Members that are not known are left out; null is as good as absent."""


class SourceTold(_Report, frozen=True, kw_only=True):
    """Who reports."""

    type: Annotated[SourceType, Meta(description="What kind of adapter it is.")]
    app: Annotated[_Short | None, Meta(description="The program that is watched.")] = None
    origin: Annotated[_Long | None, Meta(description="The origin of the page that is watched.")] = None
    process: Annotated[_Short | None, Meta(description="The process that is watched.")] = None
    version: Annotated[_Short | None, Meta(description="Of the adapter; it does not tell sessions apart.")] = None


class SessionTold(_Report, frozen=True, kw_only=True):
    """Which session of the source; `id` tells sessions apart, else `title` does."""

    title: Annotated[_Long | None, Meta(description="For people.")] = None
    id: Annotated[_Short | None, Meta(description="The adapter's own.")] = None


class MissionAsked(Request, frozen=True, kw_only=True):
    """The mission of a session that is started; what is left out is that of a mere observer."""

    agent_id: Annotated[AgentId | None, Meta(description="Who acts.")] = None
    mission: Annotated[MissionText | None, Meta(description="What is asked of the agent.")] = None
    allowed_tools: Annotated[ToolNames | None, Meta(description="Names or patterns; all others are denied.")] = None
    forbidden_tools: Annotated[ToolNames | None, Meta(description="Denied, even if they are allowed too.")] = None
    resource_scope: Annotated[Scope | None, Meta(description="What may be touched; else everything.")] = None
    max_tool_calls: Annotated[Count | None, Meta(description="How many events; else 5,000.")] = None
    max_duration_s: Annotated[Duration | None, Meta(description="How long it may last; else a day.")] = None
    allowed_side_effect_classes: Annotated[
        SideEffectClasses | None, Meta(description="What may be brought about; else anything.")
    ] = None
    cwd: Annotated[ScopeEntry | None, Meta(description="Where relative paths start.")] = None


_Source: TypeAlias = Annotated[SourceTold, Meta(description="Who reports.")]
_Session: TypeAlias = Annotated[SessionTold | None, Meta(description="Which of the source's sessions.")]
_Mission: TypeAlias = Annotated[MissionAsked | None, Meta(description="Of a session that is started.")]


class StartRequest(_Report, frozen=True, kw_only=True):
    """Start a session, or find the one that there is."""

    source: _Source
    session: _Session = None
    mission: _Mission = None


class Consent(_Report, frozen=True, kw_only=True):
    """What a person has agreed to."""

    visible_text: Annotated[bool, Meta(description="That excerpts of visible text are sent.")] = False


class Message(_Report, frozen=True, kw_only=True):
    """One message of a conversation that was seen."""

    role: Annotated[_Short | None, Meta(description="Who speaks.")] = None
    text_excerpt: _Text | None = None
    text_digest: Annotated[_Digest | None, Meta(description="Of the whole text, which need not be sent.")] = None


class Event(_Report, frozen=True, kw_only=True):
    """What was seen: facts and digests, and text only where a person has agreed."""

    kind: Annotated[_Short | None, Meta(description="In the words of the adapter.")] = None
    action_class: Annotated[ActionClass | None, Meta(description="What was done.")] = None
    target: Annotated[_Long | None, Meta(description="To what: a URL, a path, or words for it.")] = None
    content_digest: Annotated[_Digest | None, Meta(description="Of what was seen.")] = None
    capture_mode: Annotated[_Short | None, Meta(description="How it was seen.")] = None
    text_snapshot: _Text | None = None
    text_excerpt: _Text | None = None
    text_snapshot_included: Annotated[bool | None, Meta(description="That text is in it.")] = None
    messages: Annotated[
        Annotated[tuple[Message, ...], Meta(max_length=1000)] | None, Meta(description="A conversation that was seen.")
    ] = None
    consent: Annotated[Consent | None, Meta(description="What a person has agreed to.")] = None
    command: Annotated[str | tuple[str, ...] | None, Meta(description="A command that was run.")] = None
    exit_code: Annotated[
        Annotated[int, Meta(ge=-(2**31), le=2**32)] | None, Meta(description="How the command ended.")
    ] = None
    stdout_digest: Annotated[_Digest | None, Meta(description="Of what the command printed.")] = None
    stderr_digest: Annotated[_Digest | None, Meta(description="Of what it printed beside.")] = None
    stdout: _Text | None = None
    stderr: _Text | None = None
    hidden_provider_activity: Annotated[
        Any, Meta(description="What the provider did unseen. There was none by null, false, 0 and what is empty.")
    ] = None
    observed_at: Annotated[
        _Moment | None,
        Meta(description="When it was seen: not before 2020, and at most 5 minutes ahead of the Hub's clock."),
    ] = None
    raw_content_included: _Raw = None

    def __post_init__(self) -> None:
        """Hold no raw content, and no text that nobody has agreed to."""
        _refuse_raw(self.raw_content_included)
        if self._shows_text and not (self.consent and self.consent.visible_text):
            raise FieldInvalid("text is only taken with consent.visible_text", place=f"$.{self._first_text}")

    @property
    def _first_text(self) -> str:
        """Return the member that holds text, or says so."""
        return next((name for name in _TEXT_MEMBERS if getattr(self, name)), "messages")

    @property
    def _shows_text(self) -> bool:
        given = any(getattr(self, name) for name in _TEXT_MEMBERS)
        return given or bool(self.messages and any(message.text_excerpt for message in self.messages))


# Members that hold text, or say that there is some; messages hold it one level deeper.
_TEXT_MEMBERS: Final = ("text_snapshot", "text_excerpt", "stdout", "stderr", "text_snapshot_included")
# What `Event` asks for beyond each of its members, for those who read the API page: consent, or no text.
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
    """An event, of which source and session; the session is started where there is none."""

    source: _Source
    event: Annotated[Event, Meta(description="What was seen.", extra_json_schema=_CONSENTED)]
    session: _Session = None
    mission: _Mission = None
    raw_content_included: _Raw = None
    idempotency_key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=256)] | None,
        Meta(description="Chosen by the adapter. The same event again under the same key gets the same receipt."),
    ] = None

    def __post_init__(self) -> None:
        """Hold no raw content."""
        _refuse_raw(self.raw_content_included)


def _refuse_raw(included: bool | None) -> None:  # noqa: FBT001 - a member of a request
    if included:
        raise FieldInvalid("raw content is not taken: send its digest", place="$.raw_content_included")


_Schema: TypeAlias = Annotated[str, Meta(description="Of this API.")]
_Key: TypeAlias = Annotated[str, Meta(description="The key of the source and session.")]
_SessionId: TypeAlias = Annotated[str, Meta(description="Of the session: the id of its passport.")]
_SourceSaid: TypeAlias = Annotated[dict[str, Any], Meta(description="Who reports, as it was told.")]
_Title: TypeAlias = Annotated[str, Meta(description="For people.")]
_Started: TypeAlias = Annotated[DateTime, Meta(description="When it was started.")]
_Verdict: TypeAlias = Annotated[Verdict, Meta(description="What it amounts to.")]
_Reason: TypeAlias = Annotated[str, Meta(description="Why, for people.")]
_ReceiptId: TypeAlias = Annotated[str, Meta(description="As it stands in the receipt.")]


class StartAnswer(Answer, frozen=True, kw_only=True):
    """A session of the Hub."""

    ok: Literal[True] = True
    schema_version: _Schema = SCHEMA_VERSION
    session_id: _Key
    ardur_session_id: _SessionId
    agent_id: Annotated[str, Meta(description="Who acts.")]
    mission: Annotated[str, Meta(description="What is asked of the agent.")]
    source: _SourceSaid
    title: _Title
    started_at: _Started
    token: Annotated[str, Meta(description="The passport.")]
    existing: Annotated[bool, Meta(description="Whether it had been started before.")]


class PolicyAnswer(Answer, frozen=True, kw_only=True):
    """What policy says to an event."""

    decision: _Verdict
    reason: _Reason
    tool_name: Annotated[str, Meta(description="The tool that stands for the source.")]
    arguments: Annotated[dict[str, Any], Meta(description="As they were judged: text is there as its digest.")]


class CheckAnswer(Answer, frozen=True, kw_only=True):
    """What would be decided. Nothing is kept of it."""

    ok: Literal[True] = True
    schema_version: _Schema = SCHEMA_VERSION
    policy: PolicyAnswer


class ReceiptAnswer(Answer, frozen=True, kw_only=True):
    """A receipt, and the members of it that people look for first."""

    receipt_id: _ReceiptId
    receipt_hash: Annotated[str, Meta(description="SHA-256 of the token: the next receipt names it.")]
    jwt: Annotated[str, Meta(description="The signed receipt, durable by now.")]
    verdict: _Verdict
    timestamp: Annotated[DateTime, Meta(description="When it was decided.")]
    tool: Annotated[str, Meta(description="The tool, or what stands for the source.")]
    target: Annotated[str, Meta(description="What it was about.")]


class SignedReceiptAnswer(Answer, frozen=True, kw_only=True):
    """A receipt in full: the signed token, and the claims that it carries."""

    ok: Literal[True] = True
    schema_version: _Schema = SCHEMA_VERSION
    view: Literal["full"] = "full"
    ardur_session_id: _SessionId
    receipt: ReceiptAnswer
    claims: Annotated[dict[str, Any], Meta(description="What the token says.")]


class PublicReceiptAnswer(Answer, frozen=True, kw_only=True):
    """What anyone may see of a receipt: without the internal code and audit-only members, and unsigned."""

    ok: Literal[True] = True
    schema_version: _Schema = SCHEMA_VERSION
    view: Literal["remit-receipt-public"] = "remit-receipt-public"
    signed: Literal[False] = False
    receipt_id: _ReceiptId
    receipt_hash: Annotated[str, Meta(description="SHA-256 of the signed receipt.")]
    omitted: Annotated[tuple[str, ...], Meta(description="Members of the receipt that are left out.")]
    claims: Annotated[dict[str, Any], Meta(description="The members that are left.")]


class ReviewAnswer(Answer, frozen=True, kw_only=True):
    """The running summary of a session."""

    session_id: _Key
    ardur_session_id: _SessionId
    source: _SourceSaid
    provider: Annotated[str, Meta(description="Whose service is watched.")]
    title: _Title
    status: Annotated[SessionState, Meta(description="All but `active` are final.")]
    started_at: _Started
    updated_at: Annotated[DateTime, Meta(description="When it was last reported to.")]
    observations: Annotated[Count, Meta(description="How many events there were.")]
    verdicts: Annotated[dict[Verdict, Count], Meta(description="How many receipts say what.")]
    labels: Annotated[tuple[str, ...], Meta(description="Words for what was in events, and codes of denials.")]
    latest_receipt_id: Annotated[str | None, Meta(description="Of the last receipt.")]
    latest_receipt_hash: Annotated[str | None, Meta(description="Of the last receipt.")]
    summary: Annotated[str, Meta(description="One sentence, for people.")]
    actions: Annotated[
        msgspec.Raw,
        Meta(
            description="What was done last, 50 at most, oldest first.",
            extra_json_schema={"type": "array", "items": {}},
        ),
    ]


class ObserveAnswer(Answer, frozen=True, kw_only=True):
    """What policy says to the event, its receipt, and the review of its session. A DENY is an answer, not an error."""

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
    """Which adapters there are."""

    browser: Annotated[str, Meta(description="An extension.")] = "available"
    desktop: Annotated[str, Meta(description="An observer.")] = "available_with_macos_permissions"
    cli: Annotated[str, Meta(description="A command-line adapter.")] = "available"


class BrokenSession(Answer, frozen=True, kw_only=True):
    """A session whose chain is broken."""

    session_id: _SessionId
    receipt: Annotated[
        Count | None, Meta(description="The first receipt that is wrong, counted from 1; null while not known.")
    ] = None
    fault: Annotated[str | None, Meta(description="What is wrong with it; null while not known.")] = None


class VerificationAnswer(Answer, frozen=True, kw_only=True):
    """Up to where and when the evidence was verified, by the verifier that runs in the background."""

    state: Annotated[
        Literal["verified", "verifying", "broken", "unknown"],
        Meta(
            description="`verified`: everything up to `verified_at`. `verifying`: the first pass is not done. "
            "`broken`: the chain of a session is broken. `unknown`: the verifier does not report."
        ),
    ]
    problem: Annotated[str, Meta(description="Why the verifier does not work; empty if it does.")] = ""
    sessions: Annotated[Count, Meta(description="How many sessions there are.")]
    sessions_verified: Annotated[
        Count, Meta(description="How many of them were verified as far as they were read.")
    ] = 0
    sessions_broken: Annotated[Count, Meta(description="How many have a broken chain.")] = 0
    receipts_verified: Annotated[Count, Meta(description="How many receipts were verified.")] = 0
    verified_through: Annotated[
        str | None, Meta(description="The last receipt up to which everything was verified.")
    ] = None
    verified_at: Annotated[
        DateTime | None, Meta(description="Everything that was recorded before this time was verified.")
    ] = None
    pass_started_at: Annotated[DateTime | None, Meta(description="When the present pass was started.")] = None
    last_full_pass_at: Annotated[
        DateTime | None, Meta(description="When the last pass ended that verified every signature.")
    ] = None
    broken: Annotated[tuple[BrokenSession, ...], Meta(description="Sessions with a broken chain, 100 at most.")] = ()


class AdapterDetail(Answer, frozen=True, kw_only=True):
    """What was really seen of one kind of adapter."""

    available: Annotated[bool, Meta(description="Whether it is known to be installed, or has reported.")]
    by: Annotated[str, Meta(description="What reports as this kind of source.")]
    installed: Annotated[bool | None, Meta(description="Null where the Hub cannot detect it.")] = None
    last_event: Annotated[
        DateTime | None,
        Meta(description="When its last receipt was issued, among those since the Hub started and the last sessions."),
    ] = None
    version: Annotated[str | None, Meta(description="As `source.version` has told it.")] = None


class AdapterDetails(Answer, frozen=True, kw_only=True):
    """What was really seen, by the type of source."""

    browser: AdapterDetail
    desktop: AdapterDetail
    cli: AdapterDetail


class StatusAnswer(Answer, frozen=True, kw_only=True):
    """How the Hub stands."""

    ok: Literal[True] = True
    schema_version: _Schema = SCHEMA_VERSION
    version: Annotated[str, Meta(description="Of the program.")]
    home: Annotated[str, Meta(description="Where the service is at home.")]
    verifier_id: Annotated[str, Meta(description="Who signs receipts.")]
    hub_url: Annotated[str, Meta(description="Where the Hub is reached.")]
    sessions: Annotated[Count, Meta(description="How many were started, at the proxy too.")]
    session_reviews: Annotated[Count, Meta(description="How many sessions adapters report to.")]
    latest_receipt: Annotated[ReceiptAnswer | None, Meta(description="The last of all.")]
    public_key_pem: Annotated[str, Meta(description="The key that signs.")]
    adapters: Adapters
    adapter_details: Annotated[AdapterDetails, Meta(description="What was really seen of each kind of adapter.")]
    verification: Annotated[
        VerificationAnswer | None, Meta(description="Up to where and when the evidence was verified.")
    ] = None
