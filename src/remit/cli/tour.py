"""What `remit demo` shows: a passport, four calls, the proof, and what becomes of a forgery.

Everything is made in memory with a key of the moment: nothing is written, and nothing of it can be used afterwards.
"""

import base64
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from msgspec import UNSET, to_builtins

from remit import (
    ActionClass,
    Attestation,
    BrokenChain,
    Head,
    Keyring,
    Lineage,
    Mission,
    Passport,
    PolicyDecision,
    SessionSummary,
    SideEffectClass,
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

__all__ = ["Tampering", "Tour", "take_tour"]

_MISSION: Final = Mission(
    agent_id="agent:reviewer",
    mission="Review the pull request and run the tests",
    allowed_tools=("read_file", "run_tests"),
    forbidden_tools=("send_email",),
    resource_scope=("/work/project",),
    max_tool_calls=20,
    max_duration_s=900,
)


class _Call(NamedTuple):
    """A call of the tour; `denial` is the code and the words, or None for a permit."""

    tool: str
    action_class: ActionClass
    target: str
    resource_family: str
    side_effect_class: SideEffectClass
    denial: tuple[str, str] | None = None


_CALLS: Final = (
    _Call("read_file", "read", "/work/project/README.md", "file", "none"),
    _Call(
        "read_file",
        "read",
        "/home/user/.ssh/id_ed25519",
        "file",
        "none",
        ("out_of_scope", "the path is outside /work/project"),
    ),
    _Call("run_tests", "query", "/work/project/tests", "process", "state_change"),
    _Call(
        "send_email",
        "send",
        "press@example.com",
        "mail",
        "external_send",
        ("tool_forbidden", "send_email is forbidden by the passport"),
    ),
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
    receipts = _make_chain(passport, key, now)
    tokens = [receipt.token for receipt in receipts]
    *_, (_, head) = walk_chain(tokens, keyring)
    attestation = _attest(passport, receipts, key, now)
    return Tour(
        passport=passport,
        receipts=receipts,
        head=head,
        attestation=verify_session(attestation, tokens, keyring),
        tamperings=[_tamper(deed, forged, keyring, head) for deed, forged in _forgeries(receipts).items()],
    )


def _make_chain(passport: Passport, key: SigningKey, now: int) -> list[SignedReceipt]:
    lineage = Lineage(
        grant_id=passport.jti,
        actor=passport.mission.agent_id,
        verifier_id=verifier_id(key.public),
        trace_id=f"trace:{secrets.token_hex(16)}",
        run_nonce=secrets.token_urlsafe(24),
    )
    head, receipts, calls_left = Head(lineage), [], passport.mission.max_tool_calls
    for call in _CALLS:
        calls_left -= call.denial is None
        code, words = call.denial or (None, f"{call.tool} is allowed and the target is in scope")
        step = Step(
            tool=call.tool,
            action_class=call.action_class,
            target=call.target,
            resource_family=call.resource_family,
            side_effect_class=call.side_effect_class,
            verdict="violation" if code else "compliant",
            reason=words,
            policy_decisions=(PolicyDecision(backend="demo", decision="deny" if code else "permit"),),
            budget_remaining={"tool_calls": calls_left, "duration_s": passport.expires_at - now},
            timestamp=_moment(now),
            public_denial_reason="policy_denied" if code else UNSET,
            internal_denial_code=code or UNSET,
        )
        arguments = {"target": call.target}
        new_id = receipt_id(secrets.token_bytes(16))
        signed = extend(head, step, key, arguments=arguments, new_id=new_id, now=now)
        head = head.after(signed)
        receipts.append(signed)
    return receipts


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
