"""The handlers of the governance proxy: each passes a request to the governor, and returns the response.

Invariants: a session that is bound to a certificate can only be used by a client with that certificate. All decisions
are made by the governor.
"""

from typing import TypeVar

from msgspec import UNSET

from remit.claims.keys import VerifyingKey
from remit.errors import StateCorrupt, TokenError
from remit.governor.attest import Attest
from remit.governor.clock import format_timestamp
from remit.governor.context import Context, UseCase, UseCaseRunner
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Evaluate, describe_outcome
from remit.governor.receipts import budget_remaining
from remit.governor.results import RecordResult
from remit.governor.revoke import KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession, RequireHolder, StartSession
from remit.ledger.records import KeyRecord, Session
from remit.policy.call import ToolCall
from remit.schemas.proxy import (
    SCHEMA_VERSION,
    AttestAnswer,
    AttestRequest,
    DelegateAnswer,
    DelegateRequest,
    EndRequest,
    EvaluateAnswer,
    EvaluateRequest,
    KillSwitchAnswer,
    KillSwitchRequest,
    ResultAnswer,
    ResultRequest,
    RevokeAnswer,
    RevokeRequest,
    SessionAnswer,
    StartAnswer,
    StartRequest,
)
from remit.schemas.shared import HealthAnswer, KeysAnswer
from remit.server.routes import Request, SessionDecision
from remit.version import __version__

_T = TypeVar("_T")


class ProxyHandlers:
    """The handlers of the proxy's routes."""

    def __init__(self, governor: UseCaseRunner) -> None:
        self._governor = governor

    async def health(self, request: Request) -> HealthAnswer:  # noqa: ARG002 - needs nothing of the request
        """Return the versions of the API and of the proxy."""
        return HealthAnswer(schema_version=SCHEMA_VERSION, version=__version__)

    async def keys(self, request: Request) -> KeysAnswer:  # noqa: ARG002
        """List the public keys."""
        records: list[KeyRecord] = await self._governor.arun(_Keys())
        return KeysAnswer(keys=[VerifyingKey.from_pem(one.public_pem.encode("ascii")).to_jwk() for one in records])

    async def start(self, request: Request) -> StartAnswer:
        """Start a session."""
        body: StartRequest = request.body
        started = await self._governor.arun(StartSession(body.token, request.holder))
        session, passport, mission = started.session, started.passport, started.passport.mission
        # The latest end of the session, unless a clock is set.
        lifetime_ms = min(session.lifetime_ms, mission.max_duration_s * 1000)
        expires_ms = min(session.started_ms + lifetime_ms, passport.expires_at * 1000)
        return StartAnswer(
            session_id=session.id,
            agent_id=mission.agent_id,
            mission=mission.mission,
            allowed_tools=mission.allowed_tools,
            forbidden_tools=mission.forbidden_tools,
            resource_scope=mission.resource_scope,
            max_tool_calls=mission.max_tool_calls,
            max_duration_s=mission.max_duration_s,
            allowed_side_effect_classes=mission.allowed_side_effect_classes,
            started_at=format_timestamp(session.started_ms),
            expires_at=format_timestamp(expires_ms),
            existing=started.existing,
            state=session.state,
            budget_remaining=budget_remaining(session),
        )

    async def evaluate(self, request: Request) -> EvaluateAnswer:
        """Decide on a tool call. A repeated call is a DENY if its PERMIT is not valid any more."""
        body: EvaluateRequest = request.body
        session_id = body.session_id
        call = ToolCall(body.tool_name, body.arguments, cwd=body.cwd or None)
        case = Evaluate(session_id, call, body.idempotency_key or "")
        try:  # not by `_run_held`, which costs one more coroutine: this is the request that must be fast
            answer = await self._governor.arun(RequireHolder(case, session_id, request.holder))
        except TokenError as error:
            raise _corrupt_session() from error
        request.decision = SessionDecision(session_id, answer)
        receipt = answer.receipt
        outcome = describe_outcome(receipt.claims, answer.refusal)
        return EvaluateAnswer(
            session_id=session_id,
            decision="PERMIT" if answer.permits else "DENY",
            verdict=outcome.verdict,
            reason=outcome.reason,
            receipt=receipt.token,
            receipt_id=receipt.claims.receipt_id,
            receipt_hash=receipt.hash,
            budget_remaining=receipt.claims.budget_remaining,
            public_denial_reason=outcome.public_reason,
            remedy=answer.remedy.sentence if answer.remedy else UNSET,
        )

    async def result(self, request: Request) -> ResultAnswer:
        """Bind the outcome of a call to its decision."""
        body: ResultRequest = request.body
        case = RecordResult(body.session_id, body.receipt_id, body.result_hash)
        recorded = await self._run_held(case, body.session_id, request)
        claims = recorded.receipt.claims
        return ResultAnswer(
            session_id=body.session_id,
            verdict=claims.verdict,
            reason=claims.reason,
            receipt=recorded.receipt.token,
            receipt_id=claims.receipt_id,
            receipt_hash=recorded.receipt.hash,
            repeated=recorded.repeated,
        )

    async def end(self, request: Request) -> SessionAnswer:
        """End a session."""
        body: EndRequest = request.body
        return _session_answer(await self._run_held(EndSession(body.session_id), body.session_id, request))

    async def attest(self, request: Request) -> AttestAnswer:
        """Attest a session."""
        body: AttestRequest = request.body
        session_id = request.parameters["session_id"]
        attested = await self._run_held(Attest(session_id, end=body.end), session_id, request)
        request.chain_is_broken = attested.fault is not None
        claims = attested.attestation.claims
        return AttestAnswer(
            token=attested.attestation.token,
            claims=claims,
            broken_at=claims.broken_at or UNSET,
            fault=attested.fault.fault if attested.fault else UNSET,
        )

    async def delegate(self, request: Request) -> DelegateAnswer:
        """Make a narrower passport. A repeated request is a DENY if the passport is not valid any more."""
        body: DelegateRequest = request.body
        bound_to = None if body.cnf is UNSET else body.cnf
        case = Delegate(body.session_id, body.mission, body.request_id, bound_to)
        delegated = await self._run_held(case, body.session_id, request)
        claims = delegated.receipt.claims
        outcome = describe_outcome(claims, delegated.refusal)
        return DelegateAnswer(
            session_id=body.session_id,
            decision="PERMIT" if delegated.permits else "DENY",
            verdict=outcome.verdict,
            reason=outcome.reason,
            receipt=delegated.receipt.token,
            receipt_id=claims.receipt_id,
            receipt_hash=delegated.receipt.hash,
            repeated=delegated.repeated,
            token=delegated.passport if delegated.passport and delegated.permits else UNSET,
            delegate_id=delegated.child_id if delegated.child_id and delegated.permits else UNSET,
            public_denial_reason=outcome.public_reason,
        )

    async def revoke(self, request: Request) -> RevokeAnswer:
        """Revoke a passport or a session."""
        body: RevokeRequest = request.body
        session: Session | None
        if body.passport_id is not UNSET:
            revoked = body.passport_id
            session = await self._governor.arun(RevokePassport(revoked, body.reason))
        else:
            revoked = body.session_id or ""
            session = await self._governor.arun(RevokeSession(revoked, lineage=body.lineage))
        return RevokeAnswer(revoked=revoked, session=None if session is None else _session_answer(session))

    async def kill_switch(self, request: Request) -> KillSwitchAnswer:
        """Revoke all sessions and refuse new ones, or allow new ones again."""
        body: KillSwitchRequest = request.body
        return KillSwitchAnswer(on=body.on, revoked=await self._governor.arun(KillSwitch(body.on)))

    async def _run_held(self, case: UseCase[_T], session_id: str, request: Request) -> _T:
        """Run a use case on a session, if the client has the certificate that the session is bound to."""
        try:
            return await self._governor.arun(RequireHolder(case, session_id, request.holder))
        except TokenError as error:
            raise _corrupt_session() from error


def _corrupt_session() -> StateCorrupt:
    """Return the error for a stored token that does not verify. The client has sent none, so it is not its error."""
    return StateCorrupt("a stored token of the session does not verify; run `remit ledger check`")


def _session_answer(session: Session) -> SessionAnswer:
    return SessionAnswer(
        session_id=session.id,
        state=session.state,
        started_at=format_timestamp(session.started_ms),
        ended_at=None if session.ended_ms is None else format_timestamp(session.ended_ms),
        receipts=session.length,
        verdicts={
            "compliant": session.compliant,
            "violation": session.violation,
            "insufficient_evidence": session.insufficient_evidence,
        },
        budget_remaining=budget_remaining(session),
    )


class _Keys:
    """Read the public keys of the ledger."""

    async def run(self, context: Context) -> list[KeyRecord]:
        """Read them in a thread."""
        records: list[KeyRecord] = await context.to_thread(context.reader.keys)
        return records
