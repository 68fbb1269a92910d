"""What `remit demo` shows: a passport, four calls that are really judged, the proof, and what becomes of a forgery.

Everything is made in memory with a key of the moment: nothing is written, and nothing of it can be used afterwards.
"""

import base64
import json
from dataclasses import dataclass
from typing import Final

from msgspec import to_builtins

from remit import (
    Attestation,
    BrokenChain,
    Head,
    Keyring,
    Mission,
    Passport,
    SignedReceipt,
    TrustedKey,
    issue_passport,
    verifier_id,
    verify_chain,
    verify_passport,
    verify_session,
    walk_chain,
)
from remit.governor.attest import Attest
from remit.governor.evaluate import Evaluate
from remit.governor.sessions import Start
from remit.policy.call import ToolCall
from remit.policy.engines import Remedy
from remit.wiring import build_rehearsal

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
    remedies: list[Remedy | None]
    receipts: list[SignedReceipt]
    head: Head
    attestation: Attestation
    tamperings: list[Tampering]


def take_tour() -> Tour:
    """Return a tour made with a fresh key: the calls are really judged, by the same path as any other."""
    with build_rehearsal() as (governor, key):
        issuer = verifier_id(key.public)
        now = governor.means.clock.now().wall_s
        token = issue_passport(_MISSION, key, issuer=issuer, jti=governor.means.new_id("pass"), now=now).token
        session_id = governor.run(Start(token)).session.id
        answers = [governor.run(Evaluate(session_id, call)) for call in _CALLS]
        attested = governor.run(Attest(session_id, end=True)).attestation.token
    keyring = Keyring([TrustedKey(key.public, issuer)])
    receipts = [answer.receipt for answer in answers]
    tokens = [receipt.token for receipt in receipts]
    *_, (_, head) = walk_chain(tokens, keyring)
    return Tour(
        passport=verify_passport(token, keyring, now=now),
        calls=_CALLS,
        remedies=[answer.remedy for answer in answers],
        receipts=receipts,
        head=head,
        attestation=verify_session(attested, tokens, keyring),
        tamperings=[_tamper(deed, forged, keyring, head) for deed, forged in _forgeries(receipts).items()],
    )


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
