"""The requests and answers of the governance proxy."""

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from remit.claims.attestation import Attestation, SessionState
from remit.claims.mission import Mission
from remit.claims.passport import Confirmation
from remit.claims.receipt import Digest, PublicDenialReason, Verdict
from remit.claims.types import Count, DateTime, IdString, SideEffectClass
from remit.errors import FieldInvalid
from remit.schemas.shared import Answer, RequestBody

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

# Ids that are only looked up, so they need not have the exact form.
_Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_ID)]
_OfSession: TypeAlias = Annotated[_Id, Meta(description="The id of the session, from the answer to its start.")]
_Key: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        description="Chosen by the client. The same request again under the same key gets the same receipt.",
    ),
]
_Tool: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=256 * 1024, description="The name by which the agent calls it.")
]
_Cwd: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4096)]
# The length of a digest in base64url.
_DIGEST_LENGTHS: Final = {"sha-256": 43, "sha-384": 64, "sha-512": 86}
_OUTCOME: Final = Meta(
    description="The digest of the outcome.",
    extra_json_schema={
        "oneOf": [
            {"properties": {"alg": {"const": alg}, "value": {"minLength": length, "maxLength": length}}}
            for alg, length in _DIGEST_LENGTHS.items()
        ]
    },
)
_DELEGATED: Final = Meta(
    description="Must not allow more than the session's own mission, and at least one call.",
    extra_json_schema={"properties": {"max_tool_calls": {"minimum": 1}}},
)
_BOUND_TO: Final = Meta(
    description="The key or certificate that the passport is bound to.",
    extra_json_schema={"oneOf": [{"required": ["jkt"]}, {"required": ["x5t#S256"]}]},
)
Decision: TypeAlias = Annotated[Literal["PERMIT", "DENY"], Meta(description="Whether the call may run.")]
_SessionId: TypeAlias = Annotated[str, Meta(description="The id of the session, which is the id of its passport.")]
_Verdict: TypeAlias = Annotated[Verdict, Meta(description="The verdict on the call or event.")]
_Reason: TypeAlias = Annotated[str, Meta(description="The reason, for people.")]
_Receipt: TypeAlias = Annotated[str, Meta(description="The signed receipt. It is already durable.")]
_ReceiptId: TypeAlias = Annotated[str, Meta(description="The id in the receipt.")]
_ReceiptHash: TypeAlias = Annotated[
    str, Meta(description="SHA-256 of the receipt's token; the next receipt refers to it.")
]
_Repeated: TypeAlias = Annotated[
    bool, Meta(description="Whether this is the stored answer to an earlier identical request.")
]
_Denial: TypeAlias = Annotated[PublicDenialReason, Meta(description="The public denial code; only with a DENY.")]
_State: TypeAlias = Annotated[SessionState, Meta(description="All but `active` are final.")]
_Started: TypeAlias = Annotated[DateTime, Meta(description="The start of the session.")]
_Ended: TypeAlias = Annotated[DateTime | None, Meta(description="When it ended; null while it is active.")]
Budget: TypeAlias = Annotated[dict[str, Count], Meta(description="The remaining budget: tool_calls and duration_s.")]


class StartRequest(RequestBody, frozen=True, kw_only=True):
    """Start a session. The same passport always gets the same session."""

    token: Annotated[str, Meta(min_length=1, max_length=MAX_TOKEN, description="The passport.")]


class StartAnswer(Answer, frozen=True, kw_only=True):
    """The session and the mission of its passport."""

    ok: Literal[True] = True
    session_id: _SessionId
    agent_id: Annotated[str, Meta(description="The id of the agent.")]
    mission: Annotated[str, Meta(description="The task of the agent.")]
    allowed_tools: Annotated[tuple[str, ...], Meta(description="Names or globs; all other tools are denied.")]
    forbidden_tools: Annotated[tuple[str, ...], Meta(description="Denied even if also allowed.")]
    resource_scope: Annotated[tuple[str, ...], Meta(description="Paths, globs and URLs that calls may use.")]
    max_tool_calls: Annotated[Count, Meta(description="The number of calls that may be permitted.")]
    max_duration_s: Annotated[Count, Meta(description="The maximum duration in seconds.")]
    allowed_side_effect_classes: Annotated[
        tuple[SideEffectClass, ...], Meta(description="The side effects that calls may have.")
    ]
    started_at: _Started
    expires_at: Annotated[DateTime, Meta(description="The latest end of the session.")]
    existing: Annotated[bool, Meta(description="Whether the session existed before.")]
    state: _State
    budget_remaining: Budget


class EvaluateRequest(RequestBody, frozen=True, kw_only=True):
    """A tool call that an agent is about to make."""

    session_id: _OfSession
    tool_name: _Tool
    arguments: Annotated[dict[str, Any], Meta(description="As the agent gives them. They are judged with the tool.")]
    cwd: (
        Annotated[_Cwd, Meta(description="The directory for relative paths, instead of the passport's.")] | UnsetType
    ) = UNSET
    idempotency_key: _Key | UnsetType = UNSET


class EvaluateAnswer(Answer, frozen=True, kw_only=True):
    """The decision and its signed receipt, which is already durable. A DENY is an answer, not an error."""

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
    remedy: Annotated[str, Meta(description="The smallest change that would permit the call.")] | UnsetType = UNSET


class ResultRequest(RequestBody, frozen=True, kw_only=True):
    """The outcome of a call, as a digest and never the outcome itself."""

    session_id: _OfSession
    receipt_id: Annotated[_Id, Meta(description="The receipt id of the decision on the call.")]
    result_hash: Annotated[Digest, _OUTCOME]

    def __post_init__(self) -> None:
        """Raise unless the digest has the length of its algorithm: it becomes part of a receipt."""
        if len(self.result_hash.value) != _DIGEST_LENGTHS[self.result_hash.alg]:
            raise FieldInvalid(
                f"does not have the length of a {self.result_hash.alg} digest", place="$.result_hash.value"
            )


class ResultAnswer(Answer, frozen=True, kw_only=True):
    """The receipt that links the outcome to its decision."""

    ok: Literal[True] = True
    session_id: _SessionId
    verdict: _Verdict
    reason: _Reason
    receipt: _Receipt
    receipt_id: _ReceiptId
    receipt_hash: _ReceiptHash
    repeated: _Repeated


class EndRequest(RequestBody, frozen=True, kw_only=True):
    """End a session and its delegates."""

    session_id: _OfSession


class SessionAnswer(Answer, frozen=True, kw_only=True):
    """The state of a session."""

    ok: Literal[True] = True
    session_id: _SessionId
    state: _State
    started_at: _Started
    ended_at: _Ended
    receipts: Annotated[Count, Meta(description="The number of receipts.")]
    verdicts: Annotated[dict[Verdict, Count], Meta(description="The number of receipts by verdict.")]
    budget_remaining: Budget


class AttestRequest(RequestBody, frozen=True, kw_only=True):
    """Attest a session, and optionally end it first."""

    end: Annotated[bool, Meta(description="End it first.")] = False


class AttestAnswer(Answer, frozen=True, kw_only=True):
    """A signed attestation of the session, and its claims."""

    ok: Literal[True] = True
    token: Annotated[str, Meta(description="The signed attestation.")]
    claims: Annotated[Attestation, Meta(description="The claims of the attestation.")]
    broken_at: (
        Annotated[
            Count, Meta(description="The receipt at which the chain breaks, counted from 1. Absent if it does not.")
        ]
        | UnsetType
    ) = UNSET
    fault: Annotated[str, Meta(description="How the chain breaks. Absent if it does not.")] | UnsetType = UNSET


class DelegateRequest(RequestBody, frozen=True, kw_only=True):
    """Issue a narrower passport for a delegate; its calls are reserved from the session's budget."""

    session_id: _OfSession
    request_id: _Key
    mission: Annotated[Mission, _DELEGATED]
    cnf: Annotated[Confirmation, _BOUND_TO] | UnsetType = UNSET


class DelegateAnswer(Answer, frozen=True, kw_only=True):
    """The delegate's passport or the reason for its denial, and the receipt of the decision."""

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
    delegate_id: (
        Annotated[str, Meta(description="The id of the delegate's passport and of its session.")] | UnsetType
    ) = UNSET
    public_denial_reason: _Denial | UnsetType = UNSET


class RevokeRequest(RequestBody, frozen=True, kw_only=True):
    """Revoke a passport, used or not; or a session; with `lineage`, its whole lineage."""

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

    passport_id: Annotated[IdString, Meta(description="Either this or `session_id`.")] | UnsetType = UNSET
    session_id: Annotated[_Id, Meta(description="Either this or `passport_id`.")] | UnsetType = UNSET
    lineage: Annotated[
        bool, Meta(description="With `session_id`: revoke the whole lineage, from its first passport on.")
    ] = False
    reason: Annotated[str, Meta(max_length=1024, description="With `passport_id`: stored with the revocation.")] = ""

    def __post_init__(self) -> None:
        """Raise unless exactly one of the ids is given, with only the members that belong to it."""
        if (self.passport_id is UNSET) == (self.session_id is UNSET):
            raise FieldInvalid("must have exactly one of passport_id and session_id")
        if self.passport_id is not UNSET and self.lineage:
            raise FieldInvalid("is only allowed with session_id", place="$.lineage")
        if self.session_id is not UNSET and self.reason:
            raise FieldInvalid("is only allowed with passport_id", place="$.reason")


class RevokeAnswer(Answer, frozen=True, kw_only=True):
    """What was revoked. Without a session if the passport was never used."""

    ok: Literal[True] = True
    revoked: Annotated[str, Meta(description="The id in the request.")]
    session: Annotated[SessionAnswer | None, Meta(description="The state of the session; null if there is none.")]


class KillSwitchRequest(RequestBody, frozen=True, kw_only=True):
    """Revoke every session and refuse new ones, or allow new ones again."""

    on: Annotated[bool, Meta(description="Whether the kill switch is on.")]


class KillSwitchAnswer(Answer, frozen=True, kw_only=True):
    """The state of the kill switch, and the number of sessions that this request revoked."""

    ok: Literal[True] = True
    on: Annotated[bool, Meta(description="Whether the kill switch is on.")]
    revoked: Annotated[Count, Meta(description="The number of sessions that this request revoked.")]
