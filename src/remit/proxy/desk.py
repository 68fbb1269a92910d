"""The desk of the governance proxy: takes what was asked to the governor, and answers.

Keeps this invariant: whoever asks about a session that is bound to a certificate has shown that one. There is no other
way to a decision than the governor's.
"""

from typing import TypeVar

from msgspec import UNSET

from remit.claims.keys import VerifyingKey
from remit.errors import StateCorrupt, TokenError
from remit.governor.attest import Attest
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Evaluate
from remit.governor.means import Means, UseCase, UseCaseRunner
from remit.governor.results import RecordResult
from remit.governor.revoke import KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import End, Held, Start
from remit.http.routes import Decision, Request
from remit.ledger.records import KeyRecord, Session
from remit.messages.proxy import (
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
from remit.messages.shared import HealthAnswer, KeysAnswer
from remit.policy.call import ToolCall
from remit.proxy.answers import delegated, evaluated, recorded, session_of, started
from remit.version import __version__

__all__ = ["Desk"]

_T = TypeVar("_T")


class Desk:
    """What the routes of the proxy lead to."""

    def __init__(self, governor: UseCaseRunner) -> None:
        self._governor = governor

    async def health(self, ask: Request) -> HealthAnswer:  # noqa: ARG002 - nobody has to say anything to be told this
        """Tell that the proxy is there."""
        return HealthAnswer(schema_version=SCHEMA_VERSION, version=__version__)

    async def keys(self, ask: Request) -> KeysAnswer:  # noqa: ARG002
        """List the public keys."""
        records: list[KeyRecord] = await self._governor.arun(_Keys())
        return KeysAnswer(keys=[VerifyingKey.from_pem(one.public_pem.encode("ascii")).to_jwk() for one in records])

    async def start(self, ask: Request) -> StartAnswer:
        """Start a session."""
        request: StartRequest = ask.body
        return started(await self._governor.arun(Start(request.token, ask.holder)))

    async def evaluate(self, ask: Request) -> EvaluateAnswer:
        """Decide on a tool call."""
        request: EvaluateRequest = ask.body
        call = ToolCall(request.tool_name, request.arguments, cwd=request.cwd or None)
        key = request.idempotency_key or ""
        answer = await self._held(Evaluate(request.session_id, call, key), request.session_id, ask)
        ask.decision = Decision(request.session_id, answer)
        return evaluated(request.session_id, answer)

    async def result(self, ask: Request) -> ResultAnswer:
        """Bind the outcome of a call to its decision."""
        request: ResultRequest = ask.body
        case = RecordResult(request.session_id, request.receipt_id, request.result_hash)
        return recorded(request.session_id, await self._held(case, request.session_id, ask))

    async def end(self, ask: Request) -> SessionAnswer:
        """End a session."""
        request: EndRequest = ask.body
        return session_of(await self._held(End(request.session_id), request.session_id, ask))

    async def attest(self, ask: Request) -> AttestAnswer:
        """Attest a session."""
        request: AttestRequest = ask.body
        session_id = ask.parameters["session_id"]
        attested = await self._held(Attest(session_id, end=request.end), session_id, ask)
        ask.chain_is_broken = attested.fault is not None
        claims = attested.attestation.claims
        return AttestAnswer(
            token=attested.attestation.token,
            claims=claims,
            broken_at=claims.broken_at or UNSET,
            fault=attested.fault.fault if attested.fault else UNSET,
        )

    async def delegate(self, ask: Request) -> DelegateAnswer:
        """Make a narrower passport."""
        request: DelegateRequest = ask.body
        bound_to = None if request.cnf is UNSET else request.cnf
        case = Delegate(request.session_id, request.mission, request.request_id, bound_to)
        return delegated(request.session_id, await self._held(case, request.session_id, ask))

    async def revoke(self, ask: Request) -> RevokeAnswer:
        """Take a passport or a session back."""
        request: RevokeRequest = ask.body
        session: Session | None
        if request.passport_id is not UNSET:
            revoked = request.passport_id
            session = await self._governor.arun(RevokePassport(revoked, request.reason))
        else:
            revoked = request.session_id or ""
            session = await self._governor.arun(RevokeSession(revoked, lineage=request.lineage))
        return RevokeAnswer(revoked=revoked, session=None if session is None else session_of(session))

    async def kill_switch(self, ask: Request) -> KillSwitchAnswer:
        """Stop everything, or let things start again."""
        request: KillSwitchRequest = ask.body
        return KillSwitchAnswer(on=request.on, revoked=await self._governor.arun(KillSwitch(request.on)))

    async def _held(self, case: UseCase[_T], session_id: str, ask: Request) -> _T:
        try:
            return await self._governor.arun(Held(case, session_id, ask.holder))
        except TokenError as error:
            # Nobody has sent a token: one that is kept does not verify, and the client can do nothing about it.
            raise StateCorrupt("what is kept of the session does not verify: remit ledger check says more") from error


class _Keys:
    """Read which keys have signed here."""

    async def run(self, means: Means) -> list[KeyRecord]:
        """Read them where it may take its time."""
        records: list[KeyRecord] = await means.aside(means.reader.keys)
        return records
