"""The requests and answers of the governance proxy."""

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from remit.claims.attestation import Attestation, SessionState
from remit.claims.mission import Mission
from remit.claims.passport import Confirmation
from remit.claims.receipt import Digest, PublicDenialReason, Verdict
from remit.claims.shapes import Count, DateTime, IdString, SideEffectClass
from remit.errors import FieldInvalid
from remit.schemas.shared import Answer, Request

__all__ = [
    "MAX_ID",
    "MAX_TOKEN",
    "SCHEMA_VERSION",
    "AttestAnswer",
    "AttestRequest",
    "Budget",
    "Decision",
    "DelegateAnswer",
    "DelegateRequest",
    "EndRequest",
    "EvaluateAnswer",
    "EvaluateRequest",
    "KillSwitchAnswer",
    "KillSwitchRequest",
    "ResultAnswer",
    "ResultRequest",
    "RevokeAnswer",
    "RevokeRequest",
    "SessionAnswer",
    "StartAnswer",
    "StartRequest",
]

SCHEMA_VERSION: Final = "remit.proxy.v0.1"
MAX_ID: Final = 64
MAX_TOKEN: Final = 16 * 1024

# Ids that are looked up: whatever fits is asked for, and what is not there is not found.
_Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_ID)]
_OfSession: TypeAlias = Annotated[_Id, Meta(description="Of the session, as its start has told it.")]
_Key: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        description="Chosen by the client. The same request again under the same key gets the same receipt.",
    ),
]
_Tool: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256 * 1024, description="As the agent calls it.")]
_Cwd: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4096)]
# How many characters a digest has in base64url.
_DIGEST_LENGTHS: Final = {"sha-256": 43, "sha-384": 64, "sha-512": 86}
_OUTCOME: Final = Meta(
    description="The digest of what came out.",
    extra_json_schema={
        "oneOf": [
            {"properties": {"alg": {"const": alg}, "value": {"minLength": length, "maxLength": length}}}
            for alg, length in _DIGEST_LENGTHS.items()
        ]
    },
)
_DELEGATED: Final = Meta(
    description="Nowhere wider than the session's own, and for one call at least.",
    extra_json_schema={"properties": {"max_tool_calls": {"minimum": 1}}},
)
_BOUND_TO: Final = Meta(
    description="Whom the passport is bound to.",
    extra_json_schema={"oneOf": [{"required": ["jkt"]}, {"required": ["x5t#S256"]}]},
)
Decision: TypeAlias = Annotated[Literal["PERMIT", "DENY"], Meta(description="Whether it may go on.")]
_SessionId: TypeAlias = Annotated[str, Meta(description="Of the session: the id of its passport.")]
_Verdict: TypeAlias = Annotated[Verdict, Meta(description="What it amounts to.")]
_Reason: TypeAlias = Annotated[str, Meta(description="Why, for people.")]
_Receipt: TypeAlias = Annotated[str, Meta(description="The signed receipt, durable by now.")]
_ReceiptId: TypeAlias = Annotated[str, Meta(description="As it stands in the receipt.")]
_ReceiptHash: TypeAlias = Annotated[str, Meta(description="SHA-256 of the receipt's token: the next one names it.")]
_Repeated: TypeAlias = Annotated[bool, Meta(description="Whether the same was asked before, and this is its answer.")]
_Denial: TypeAlias = Annotated[PublicDenialReason, Meta(description="Why not, in one word; only with a DENY.")]
_State: TypeAlias = Annotated[SessionState, Meta(description="All but `active` are final.")]
_Started: TypeAlias = Annotated[DateTime, Meta(description="When it was started.")]
_Ended: TypeAlias = Annotated[DateTime | None, Meta(description="When it came to its end, if it has.")]
Budget: TypeAlias = Annotated[dict[str, Count], Meta(description="What is left: tool_calls and duration_s.")]


class StartRequest(Request, frozen=True, kw_only=True):
    """Start a session; the same passport again is the same session."""

    token: Annotated[str, Meta(min_length=1, max_length=MAX_TOKEN, description="The passport.")]


class StartAnswer(Answer, frozen=True, kw_only=True):
    """The session, and what its passport allows."""

    ok: Literal[True] = True
    session_id: _SessionId
    agent_id: Annotated[str, Meta(description="Who acts.")]
    mission: Annotated[str, Meta(description="What is asked of the agent.")]
    allowed_tools: Annotated[tuple[str, ...], Meta(description="Names or patterns; all others are denied.")]
    forbidden_tools: Annotated[tuple[str, ...], Meta(description="Denied, even if they are allowed too.")]
    resource_scope: Annotated[tuple[str, ...], Meta(description="Paths, patterns and URLs that calls may touch.")]
    max_tool_calls: Annotated[Count, Meta(description="How many calls may be permitted.")]
    max_duration_s: Annotated[Count, Meta(description="How long it may last.")]
    allowed_side_effect_classes: Annotated[tuple[SideEffectClass, ...], Meta(description="What calls may bring about.")]
    started_at: _Started
    expires_at: Annotated[DateTime, Meta(description="When it ends at the latest.")]
    existing: Annotated[bool, Meta(description="Whether it had been started before.")]
    state: _State
    budget_remaining: Budget


class EvaluateRequest(Request, frozen=True, kw_only=True):
    """A tool call that an agent is about to make."""

    session_id: _OfSession
    tool_name: _Tool
    arguments: Annotated[dict[str, Any], Meta(description="As the agent gives them; what they name is looked at.")]
    cwd: Annotated[_Cwd, Meta(description="Where relative paths start, instead of the passport's.")] | UnsetType = UNSET
    idempotency_key: _Key | UnsetType = UNSET


class EvaluateAnswer(Answer, frozen=True, kw_only=True):
    """The decision, and the signed receipt that is durable by now. A DENY is an answer, not an error."""

    ok: Literal[True] = True
    session_id: _SessionId
    decision: Decision
    verdict: _Verdict
    reason: _Reason
    receipt: _Receipt
    receipt_id: _ReceiptId
    receipt_hash: _ReceiptHash
    budget_remaining: Budget
    public_denial_reason: _Denial | UnsetType = UNSET
    remedy: Annotated[str, Meta(description="What would have permitted the call.")] | UnsetType = UNSET


class ResultRequest(Request, frozen=True, kw_only=True):
    """What became of a call: the digest of its outcome, never the outcome."""

    session_id: _OfSession
    receipt_id: Annotated[_Id, Meta(description="Of the decision on the call.")]
    result_hash: Annotated[Digest, _OUTCOME]

    def __post_init__(self) -> None:
        """Hold a digest, and not something longer in its place: it goes into a receipt."""
        if len(self.result_hash.value) != _DIGEST_LENGTHS[self.result_hash.alg]:
            raise FieldInvalid(f"is not as long as {self.result_hash.alg} is", place="$.result_hash.value")


class ResultAnswer(Answer, frozen=True, kw_only=True):
    """The receipt that binds the outcome to its decision."""

    ok: Literal[True] = True
    session_id: _SessionId
    verdict: _Verdict
    reason: _Reason
    receipt: _Receipt
    receipt_id: _ReceiptId
    receipt_hash: _ReceiptHash
    repeated: _Repeated


class EndRequest(Request, frozen=True, kw_only=True):
    """End a session, and with it its delegates."""

    session_id: _OfSession


class SessionAnswer(Answer, frozen=True, kw_only=True):
    """A session as it stands."""

    ok: Literal[True] = True
    session_id: _SessionId
    state: _State
    started_at: _Started
    ended_at: _Ended
    receipts: Annotated[Count, Meta(description="How many there are.")]
    verdicts: Annotated[dict[Verdict, Count], Meta(description="How many receipts say what.")]
    budget_remaining: Budget


class AttestRequest(Request, frozen=True, kw_only=True):
    """Attest a session, and end it first where that is asked for."""

    end: Annotated[bool, Meta(description="End it first.")] = False


class AttestAnswer(Answer, frozen=True, kw_only=True):
    """A signed statement over the session, and what it says."""

    ok: Literal[True] = True
    token: Annotated[str, Meta(description="The signed attestation.")]
    claims: Annotated[Attestation, Meta(description="What it says.")]
    broken_at: (
        Annotated[Count, Meta(description="The receipt at which the chain breaks, counted from 1; only if it does.")]
        | UnsetType
    ) = UNSET
    fault: Annotated[str, Meta(description="How it breaks; only if it does.")] | UnsetType = UNSET


class DelegateRequest(Request, frozen=True, kw_only=True):
    """Make a narrower passport for a delegate; its calls are set aside from the session's."""

    session_id: _OfSession
    request_id: _Key
    mission: Annotated[Mission, _DELEGATED]
    cnf: Annotated[Confirmation, _BOUND_TO] | UnsetType = UNSET


class DelegateAnswer(Answer, frozen=True, kw_only=True):
    """The delegate's passport, or why there is none; and the receipt that says so."""

    ok: Literal[True] = True
    session_id: _SessionId
    decision: Decision
    verdict: _Verdict
    reason: _Reason
    receipt: _Receipt
    receipt_id: _ReceiptId
    receipt_hash: _ReceiptHash
    repeated: _Repeated
    token: Annotated[str, Meta(description="The delegate's passport.")] | UnsetType = UNSET
    delegate_id: Annotated[str, Meta(description="Of the delegate's passport, and of its session.")] | UnsetType = UNSET
    public_denial_reason: _Denial | UnsetType = UNSET


class RevokeRequest(Request, frozen=True, kw_only=True):
    """Revoke a passport, used or not; or a session, and with `lineage` everything from its first passport on."""

    rules: ClassVar[dict[str, Any]] = {
        "oneOf": [
            {
                "required": ["passport_id"],
                "not": {"required": ["session_id"]},
                "properties": {"lineage": {"const": False}},
            },
            {
                "required": ["session_id"],
                "not": {"required": ["passport_id"]},
                "properties": {"reason": {"const": ""}},
            },
        ]
    }

    passport_id: Annotated[IdString, Meta(description="This, or `session_id`.")] | UnsetType = UNSET
    session_id: Annotated[_Id, Meta(description="This, or `passport_id`.")] | UnsetType = UNSET
    lineage: Annotated[bool, Meta(description="With `session_id`: from its first passport on.")] = False
    reason: Annotated[str, Meta(max_length=1024, description="With `passport_id`: kept with it.")] = ""

    def __post_init__(self) -> None:
        """Hold exactly one of the two, and nothing that would not be kept."""
        if (self.passport_id is UNSET) == (self.session_id is UNSET):
            raise FieldInvalid("exactly one of passport_id and session_id")
        if self.passport_id is not UNSET and self.lineage:
            raise FieldInvalid("goes with session_id", place="$.lineage")
        if self.session_id is not UNSET and self.reason:
            raise FieldInvalid("goes with passport_id", place="$.reason")


class RevokeAnswer(Answer, frozen=True, kw_only=True):
    """What was revoked; without a session where the passport was never used."""

    ok: Literal[True] = True
    revoked: Annotated[str, Meta(description="The id that was asked for.")]
    session: Annotated[SessionAnswer | None, Meta(description="As it stands then, if there is one.")]


class KillSwitchRequest(Request, frozen=True, kw_only=True):
    """Revoke every session and let none start, or let sessions start again."""

    on: Annotated[bool, Meta(description="Whether nothing may go on.")]


class KillSwitchAnswer(Answer, frozen=True, kw_only=True):
    """How the switch stands, and how many sessions were revoked by this."""

    ok: Literal[True] = True
    on: Annotated[bool, Meta(description="Whether nothing may go on.")]
    revoked: Annotated[Count, Meta(description="How many sessions were revoked by this.")]
