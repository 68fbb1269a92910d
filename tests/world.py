"""A small fixed world for tests: keys that never change, one mission, and chains of any length."""

import hashlib
from dataclasses import dataclass, field

from msgspec import UNSET

from remit import (
    Head,
    Keyring,
    Lineage,
    Mission,
    PolicyDecision,
    RemitError,
    SignedReceipt,
    SigningKey,
    Step,
    TrustedKey,
    canonicalize,
    extend,
    receipt_id,
    verifier_id,
    verify_chain,
)

NOW = 1_790_000_000
TIMESTAMP = "2026-09-21T14:13:20Z"


def key_named(name: str) -> SigningKey:
    """Return the key that belongs to a name, the same in every run."""
    return SigningKey.derive(hashlib.sha512(name.encode()).digest()[:40])


OURS = key_named("ours")
THEIRS = key_named("theirs")
STRANGER = key_named("stranger")
ISSUER = verifier_id(OURS.public)
KEYRING = Keyring([TrustedKey(OURS.public, ISSUER), TrustedKey(THEIRS.public, "https://issuer.example", foreign=True)])

MISSION = Mission(
    agent_id="agent:reviewer",
    mission="Review the pull request and run the tests",
    allowed_tools=("read_file", "git_*"),
    forbidden_tools=("git_push",),
    resource_scope=("/work/project", "https://docs.example/api"),
    max_tool_calls=20,
    max_duration_s=900,
    cwd="/work/project",
)


def error_classes(root: type[RemitError] = RemitError) -> list[type[RemitError]]:
    """Return every class of the error tree, each before its leaves."""
    return [root, *(error for child in root.__subclasses__() for error in error_classes(child))]


def permitted(**changes: object) -> Step:
    """Return a permitted step, with changes."""
    members: dict[str, object] = {
        "tool": "read_file",
        "action_class": "read",
        "target": "/work/project/README.md",
        "resource_family": "file",
        "side_effect_class": "none",
        "verdict": "compliant",
        "reason": "read_file is allowed and the path is in scope",
        "policy_decisions": (PolicyDecision(backend="native", decision="permit", eval_ms=0.021),),
        "budget_remaining": {"tool_calls": 19, "duration_s": 880},
        "timestamp": TIMESTAMP,
    }
    return Step(**(members | changes))  # type: ignore[arg-type]  # tests build wrong ones on purpose


def denied(**changes: object) -> Step:
    """Return a denied step, with changes."""
    denial: dict[str, object] = {
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
    return permitted(**(denial | changes))


def lineage_named(name: str = "first", key: SigningKey = OURS) -> Lineage:
    """Return the lineage of a session, one for each name."""
    return Lineage(
        grant_id=f"pass:{name}:0001",
        actor=MISSION.agent_id,
        verifier_id=verifier_id(key.public),
        trace_id=f"trace:{name}:0001",
        run_nonce=hashlib.sha256(name.encode()).hexdigest()[:24],
    )


@dataclass
class Session:
    """A chain under construction. It verifies itself after every step."""

    name: str = "first"
    key: SigningKey = OURS
    keyring: Keyring = KEYRING
    now: int = NOW
    receipts: list[SignedReceipt] = field(default_factory=list)
    head: Head = field(init=False)

    def __post_init__(self) -> None:
        self.head = Head(lineage_named(self.name, self.key))

    def append(self, step: Step | None = None, arguments: object = UNSET) -> SignedReceipt:
        """Append a step, one second after the last."""
        number = self.head.length
        signed = extend(
            self.head,
            step or permitted(),
            self.key,
            arguments=canonicalize({"path": f"file-{number}"} if arguments is UNSET else arguments),
            new_id=receipt_id(hashlib.sha256(f"{self.name} {number}".encode()).digest()[:16]),
            now=self.now,
        )
        before = self.head
        self.receipts.append(signed)
        self.now += 1
        self.head = self.head.after(signed)
        assert verify_chain([signed.token], self.keyring, start=before) == self.head
        return signed

    @property
    def tokens(self) -> list[str]:
        """The chain as tokens, in order."""
        return [receipt.token for receipt in self.receipts]


def session_of(length: int, name: str = "first", key: SigningKey = OURS, keyring: Keyring = KEYRING) -> Session:
    """Return a session with `length` receipts, every third one a denial."""
    session = Session(name, key, keyring)
    for number in range(length):
        session.append(denied() if number % 3 == 2 else permitted())
    return session
