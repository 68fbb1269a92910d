"""What `remit demo` shows: a passport, four calls that are really judged, the proof, and what becomes of a forgery.

Everything is made in memory with a key of the moment: nothing is written, and nothing of it can be used afterwards.
"""

import base64
import json
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from msgspec import UNSET, to_builtins

from remit import (
    Attestation,
    BrokenChain,
    Head,
    Keyring,
    Lineage,
    Mission,
    Passport,
    SessionSummary,
    SignedReceipt,
    SigningKey,
    Step,
    Tally,
    TrustedKey,
    extend,
    issue_passport,
    receipt_id,
    sign_attestation,
    verifier_id,
    verify_chain,
    verify_passport,
    verify_session,
    walk_chain,
)
from remit.policy.budget import Budget
from remit.policy.call import ToolCall
from remit.policy.decide import Decision, judge, policy_decisions
from remit.policy.engines import Standing
from remit.policy.evidence import measurements
from remit.policy.files import TextFiles
from remit.policy.native import NativeEngine

__all__ = ["Tampering", "Tour", "take_tour"]

_MISSION: Final = Mission(
    agent_id="agent:reviewer",
    mission="Review the pull request and run the tests",
    allowed_tools=("Bash", "read_file", "send_email"),
    forbidden_tools=("send_email",),
    resource_scope=("/work/project",),
    max_tool_calls=20,
    max_duration_s=900,
    cwd="/work/project",
)


_CALLS: Final = (
    ToolCall("Bash", {"command": "grep -rn TODO src | head -20 > todo.txt"}),
    ToolCall("Bash", {"command": "cd src && cat main.py ../../../home/user/.ssh/id_ed25519"}),
    ToolCall("read_file", {"path": "README.md"}),
    ToolCall("send_email", {"to": "press@example.com", "body": "all of it"}),
)


@dataclass(frozen=True)
class Tampering:
    """What a forger did to the chain, and where verification found it."""

    deed: str
    index: int
    fault: str
    problem: str


@dataclass(frozen=True)
class Tour:
    """All that the tour shows."""

    passport: Passport
    calls: tuple[ToolCall, ...]
    decisions: list[Decision]
    receipts: list[SignedReceipt]
    head: Head
    attestation: Attestation
    tamperings: list[Tampering]


def take_tour(now: int) -> Tour:
    """Return a tour made with fresh keys at `now`."""
    key = SigningKey.derive(secrets.token_bytes(40))
    issuer = verifier_id(key.public)
    keyring = Keyring([TrustedKey(key.public, issuer)])
    jti = f"pass:{secrets.token_hex(16)}"
    issued = issue_passport(_MISSION, key, issuer=issuer, jti=jti, now=now)
    passport = verify_passport(issued.token, keyring, now=now)
    decisions, receipts = _make_chain(passport, key, now)
    tokens = [receipt.token for receipt in receipts]
    *_, (_, head) = walk_chain(tokens, keyring)
    attestation = _attest(passport, receipts, key, now)
    return Tour(
        passport=passport,
        calls=_CALLS,
        decisions=decisions,
        receipts=receipts,
        head=head,
        attestation=verify_session(attestation, tokens, keyring),
        tamperings=[_tamper(deed, forged, keyring, head) for deed, forged in _forgeries(receipts).items()],
    )


def _make_chain(passport: Passport, key: SigningKey, now: int) -> tuple[list[Decision], list[SignedReceipt]]:
    """Return the decision on each call of the tour, and its receipt."""
    lineage = Lineage(
        grant_id=passport.jti,
        actor=passport.mission.agent_id,
        verifier_id=verifier_id(key.public),
        trace_id=f"trace:{secrets.token_hex(16)}",
        run_nonce=secrets.token_urlsafe(24),
    )
    head, calls_left, left_s = Head(lineage), passport.mission.max_tool_calls, passport.expires_at - now
    decisions, receipts = list[Decision](), list[SignedReceipt]()
    for call in _CALLS:
        standing = Standing(passport.jti, Budget(calls_left, left_s))
        decision = judge(
            call, passport.mission, standing, engines=[NativeEngine()], files=TextFiles(), clock=time.perf_counter
        )
        calls_left -= decision.permits
        step = _step(decision, {"tool_calls": calls_left, "duration_s": left_s}, now)
        new_id = receipt_id(secrets.token_bytes(16))
        signed = extend(head, step, key, arguments=dict(call.arguments), new_id=new_id, now=now)
        head = head.after(signed)
        decisions.append(decision)
        receipts.append(signed)
    return decisions, receipts


def _step(decision: Decision, left: dict[str, int], now: int) -> Step:
    """Return what a receipt says about a decision."""
    action = decision.action
    return Step(
        tool=action.tool,
        action_class=action.action_class,
        target=action.target,
        resource_family=action.resource_family,
        side_effect_class=action.side_effect_class,
        verdict=decision.verdict,
        reason=decision.reason,
        policy_decisions=policy_decisions(decision),
        budget_remaining=left,
        timestamp=_moment(now),
        public_denial_reason=decision.public_reason or UNSET,
        internal_denial_code=decision.code or UNSET,
        measurements=measurements(action) or UNSET,
    )


def _attest(passport: Passport, receipts: list[SignedReceipt], key: SigningKey, now: int) -> str:
    tally = Tally()
    for receipt in receipts:
        tally.add(receipt)
    session = SessionSummary(
        session_id=passport.jti,
        agent_id=passport.mission.agent_id,
        mission=passport.mission.mission,
        state="ended",
        started_at=_moment(now),
        ended_at=_moment(now),
        budget_used={"tool_calls": tally.verdicts["compliant"], "duration_s": 0},
    )
    jti = f"att:{secrets.token_hex(16)}"
    issuer = verifier_id(key.public)
    return sign_attestation(session, tally, key, issuer=issuer, jti=jti, now=now, chain_verified=True).token


def _moment(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat().replace("+00:00", "Z")


def _whitewash(receipt: SignedReceipt) -> str:
    """Return the token with its denial rewritten to a permit and the old signature kept."""
    header, _, signature = receipt.token.split(".")
    claims = to_builtins(receipt.claims) | {"verdict": "compliant", "reason": "nothing to see here"}
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"{header}.{forged}.{signature}"


def _forgeries(receipts: list[SignedReceipt]) -> dict[str, list[str]]:
    """Return what a forger could make of the chain, by deed."""
    first, second, third, fourth = (receipt.token for receipt in receipts)
    return {
        "rewrite the denial in receipt 1 to a permit": [first, _whitewash(receipts[1]), third, fourth],
        "remove receipt 1": [first, third, fourth],
        "swap receipts 1 and 2": [first, third, second, fourth],
        "cut off the last receipt": [first, second, third],
    }


def _tamper(deed: str, tokens: list[str], keyring: Keyring, kept: Head) -> Tampering:
    try:
        verify_chain(tokens, keyring, last_hash=kept.receipt_hash)
    except BrokenChain as error:
        return Tampering(deed, error.index, error.fault, str(error))
    raise RuntimeError(f"verification missed: {deed}")
