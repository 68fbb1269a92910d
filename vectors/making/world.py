"""The keys, the mission, the receipts and the tokens that all vector files are made of."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final

from msgspec import to_builtins

from remit import (
    Head,
    Lineage,
    Mission,
    PolicyDecision,
    SessionSummary,
    SignedReceipt,
    SigningKey,
    Step,
    Tally,
    extend,
    issue_passport,
    receipt_id,
    sign_attestation,
    sign_bookmark,
    sign_key_change,
    verifier_id,
)
from remit.claims.canonical import decode_base64url, encode_base64url

NOW: Final = 1_790_000_000
Case = dict[str, Any]


def key_named(name: str) -> SigningKey:
    """Return the key of a name: SHA-512 of the name, first 40 bytes, as the seed."""
    return SigningKey.derive(hashlib.sha512(name.encode()).digest()[:40])


OURS, THEIRS, STRANGER = key_named("vectors: ours"), key_named("vectors: theirs"), key_named("vectors: stranger")
US, THEM = verifier_id(OURS.public), "https://issuer.example"
NEXT, LAST = key_named("vectors: next"), key_named("vectors: last")
KEYS: Final = [
    {"jwk": OURS.public.to_jwk(), "issuer": US, "foreign": False},
    {"jwk": THEIRS.public.to_jwk(), "issuer": THEM, "foreign": True},
]

MISSION: Final = Mission(
    agent_id="agent:reviewer",
    mission="Review the pull request and run the tests",
    allowed_tools=("read_file", "git_*"),
    forbidden_tools=("git_push",),
    resource_scope=("/work/project", "https://docs.example/api"),
    max_tool_calls=20,
    max_duration_s=900,
    cwd="/work/project",
)


def step(**changes: object) -> Step:
    """Return a permitted step, with changes."""
    members: dict[str, Any] = {
        "tool": "read_file",
        "action_class": "read",
        "target": "/work/project/README.md",
        "resource_family": "file",
        "side_effect_class": "none",
        "verdict": "compliant",
        "reason": "read_file is allowed and the path is in scope",
        "policy_decisions": (PolicyDecision(backend="native", decision="permit", eval_ms=0.021),),
        "budget_remaining": {"tool_calls": 19, "duration_s": 880},
        "timestamp": "2026-09-21T14:13:20Z",
    }
    return Step(**(members | changes))


DENIAL: Final[dict[str, object]] = {
    "tool": "write_file",
    "action_class": "write",
    "target": "/etc/passwd",
    "side_effect_class": "internal_write",
    "verdict": "violation",
    "reason": "write_file is not among the allowed tools",
    "policy_decisions": (PolicyDecision(backend="native", decision="deny", reason="tool_not_allowed"),),
    "public_denial_reason": "policy_denied",
    "internal_denial_code": "tool_not_allowed",
}


def lineage(name: str, key: SigningKey = OURS) -> Lineage:
    """Return the lineage of a session, one for each name."""
    nonce = hashlib.sha256(name.encode()).hexdigest()[:24]
    return Lineage(f"pass:{name}:0001", MISSION.agent_id, verifier_id(key.public), f"trace:{name}:0001", nonce)


def chain(name: str, length: int, key: SigningKey = OURS, head: Head | None = None) -> list[SignedReceipt]:
    """Return a chain of receipts, every third one a denial."""
    head = head or Head(lineage(name, key))
    receipts = []
    for number in range(head.length, head.length + length):
        signed = extend(
            head,
            step(**DENIAL) if number % 3 == 2 else step(),
            key,
            arguments={"path": f"file-{number}"},
            new_id=receipt_id(hashlib.sha256(f"{name} {number}".encode()).digest()[:16]),
            now=NOW + number,
        )
        receipts.append(signed)
        head = head.after(signed)
    return receipts


def mint(header: object, payload: object, key: SigningKey = OURS) -> str:
    """Return a signed token with any header and payload; bytes go in as they are."""
    message = f"{part(header)}.{part(payload)}"
    return f"{message}.{encode_base64url(key.sign(message.encode()))}"


def part(value: object) -> str:
    """Return a part of a token; bytes go in as they are."""
    return encode_base64url(value if isinstance(value, bytes) else json.dumps(value).encode())


def resign(token: str, change: Callable[[int, int], tuple[int, int]]) -> str:
    """Return the token with another (r, s)."""
    message, _, signature = token.rpartition(".")
    raw = decode_base64url(signature)
    r, s = change(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    return f"{message}.{encode_base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


PASSPORT: Final = issue_passport(MISSION, OURS, issuer=US, jti="pass:vectors:0001", now=NOW).token
FOREIGN: Final = issue_passport(MISSION, THEIRS, issuer=THEM, jti="pass:vectors:0002", now=NOW).token
RECEIPTS: Final = chain("vectors", 7)
RECEIPT: Final = RECEIPTS[0].token


def attestation(
    receipts: list[SignedReceipt], *, chain_verified: bool = True, in_all: int = 0, name: str = "vectors"
) -> str:
    """Return the attestation of a session with these receipts; `in_all` counts those after a break as well."""
    tally = Tally()
    for receipt in receipts:
        tally.add(receipt)
    summary = SessionSummary(
        session_id=lineage(name).grant_id,
        agent_id=MISSION.agent_id,
        mission=MISSION.mission,
        state="ended",
        started_at="2026-09-21T14:13:20Z",
        ended_at="2026-09-21T14:20:00Z",
        budget_used={"tool_calls": 5, "duration_s": 400},
    )
    return sign_attestation(
        summary,
        tally,
        OURS,
        issuer=US,
        jti="att:vectors:0001",
        now=NOW + 500,
        chain_verified=chain_verified,
        receipts_in_all=in_all,
    ).token


ATTESTATION: Final = attestation(RECEIPTS)


def bookmark(receipts: list[SignedReceipt]) -> str:
    """Return the bookmark of one who has verified these receipts."""
    head, tally = Head(lineage("vectors")), Tally()
    for receipt in receipts:
        head = head.after(receipt)
        tally.add(receipt)
    return sign_bookmark(head, tally, OURS, now=NOW + 500)


KEY_CHANGE: Final = sign_key_change(OURS, NEXT.public, jti="keys:vectors:0001", now=NOW + 100)
OF_KIND: Final = {
    "passport": PASSPORT,
    "receipt": RECEIPT,
    "attestation": ATTESTATION,
    "key change": KEY_CHANGE,
    "bookmark": bookmark(RECEIPTS),
}
HEADER: Final[dict[str, object]] = {"alg": "ES256", "kid": OURS.kid, "typ": "remit-receipt+jwt"}
CLAIMS: Final[dict[str, Any]] = to_builtins(RECEIPTS[0].claims)
PASSPORT_CLAIMS: Final[dict[str, Any]] = json.loads(decode_base64url(PASSPORT.split(".")[1]))
