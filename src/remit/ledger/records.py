"""The records of a ledger: sessions, receipts, delegations, keys and others.

They are plain values. The governor decides which changes are valid; each store decides how they are stored.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct, structs

from remit.claims.attestation import SessionState
from remit.claims.canonical import sha256_hex
from remit.claims.chain import Head, Lineage
from remit.claims.jws import unsafe_peek
from remit.claims.keys import SigningKey
from remit.claims.receipt import Draft, SignedReceipt
from remit.errors import LedgerUnavailable

FINAL_STATES: Final[tuple[SessionState, ...]] = ("ended", "expired", "revoked")
# The cause of sessions that were restored from an older copy of the ledger, with the loss of later receipts. Nothing
# can be appended to them: their chains may have continued in the lost part, and would fork.
RESTORED: Final = "restored"
# The prefix of a `trace_id` that is derived from a source key.
SOURCE_TRACE: Final = "source:"
# The maximum number of notes stored for a session; older ones are deleted.
MAX_NOTES: Final = 50


class Session(Struct, frozen=True, kw_only=True):
    """A stored session: the values fixed at its start, the head of its chain, and its usage."""

    id: str
    passport: str
    actor: str
    parent: str | None
    # The thumbprint of the client certificate presented at the start; empty without one.
    holder: str = ""
    trace_id: str
    run_nonce: str
    started_ms: int
    # The maximum duration, and the wall-clock time at which the passport expires.
    lifetime_ms: int
    expires_ms: int
    limit: int

    state: SessionState = "active"
    # The denial code that explains a final state, or a quarantine.
    cause: str = ""
    ended_ms: int | None = None
    # 1 if its chain was ever found broken, whatever its state.
    broken: int = 0

    verifier: str
    length: int = 0
    receipt_id: str | None = None
    receipt_hash: str | None = None
    iat: int = 0
    kid: str | None = None

    used: int = 0
    reserved: int = 0
    compliant: int = 0
    violation: int = 0
    insufficient_evidence: int = 0
    # Events reported by adapters: their number, and the labels of their content, sorted.
    observed: int = 0
    marks: str = ""

    # The elapsed time, and the moment up to which it is counted: on the monotonic clock of one boot, and on the wall
    # clock, which is used after a reboot.
    elapsed_ms: int = 0
    seen_boot: str
    seen_mono_ms: int
    seen_wall_ms: int

    # Of the store: the row, the row of the last receipt, and a count of changes.
    number: int = 0
    last_number: int | None = None
    version: int = 0

    @property
    def verified_at_s(self) -> int:
        """Return the time at which the passport must be valid: the start of the session.

        A session that was started after its passport expired has no time left; its passport is verified as of its
        expiry.
        """
        return min(self.started_ms, self.expires_ms) // 1000

    @property
    def calls_left(self) -> int:
        """Return the number of calls left, without those reserved for delegates."""
        return max(0, self.limit - self.used - self.reserved)

    @property
    def left_ms(self) -> int:
        """Return the milliseconds left as of `seen_wall_ms`, by the duration and the expiry of the passport."""
        return max(0, min(self.lifetime_ms - self.elapsed_ms, self.expires_ms - self.seen_wall_ms))

    @property
    def duration_left_s(self) -> int:
        """Return the seconds left, rounded up; 0 once the session has expired."""
        left = min(self.lifetime_ms - self.elapsed_ms, self.expires_ms - self.seen_wall_ms)
        return -(-left // 1000) if left > 0 else 0

    @property
    def head(self) -> Head:
        """Return the head of the chain."""
        lineage = Lineage(self.id, self.actor, self.verifier, self.trace_id, self.run_nonce)
        return Head(lineage, self.length, self.receipt_id, self.receipt_hash, self.iat, self.kid)

    def with_receipt(self, pending: "UnsignedReceipt", changes: Mapping[str, Any]) -> "Session":
        """Return the session with `changes` and a new head. `receipt_hash` is None until the receipt is signed."""
        claims = pending.draft.claims
        return structs.replace(
            self,
            **changes,
            verifier=claims.verifier_id,
            length=self.length + 1,
            receipt_id=claims.receipt_id,
            receipt_hash=None,
            iat=claims.iat,
            kid=pending.key.kid,
        )


class UnsignedReceipt:
    """A draft receipt and the key to sign it with. `signed` is set when the group is committed.

    The receipts of a group are signed one after the other, after all work of the group has run, which is faster.
    """

    __slots__ = ("draft", "key", "signed")

    def __init__(self, draft: Draft, key: SigningKey) -> None:
        self.draft = draft
        self.key = key
        self.signed: SignedReceipt | None = None

    @property
    def receipt(self) -> SignedReceipt:
        """Return the signed receipt, or raise `LedgerUnavailable` if it is not durable yet."""
        if self.signed is None:
            raise LedgerUnavailable("the receipt is not durable yet")
        return self.signed


class StoredReceipt(NamedTuple):
    """A stored receipt: the exact token, its sequence number in its chain, and its number in the whole ledger."""

    session_id: str
    seq: int
    receipt_id: str
    token: str
    number: int


class IndexedReceipt(NamedTuple):
    """A stored receipt with its number in the whole ledger, and its denial code, empty if it permits."""

    number: int
    code: str
    kept: StoredReceipt


class Source(NamedTuple):
    """The source that reports to a session: its key, and its description as JSON (`told`)."""

    session_id: str
    key: str
    told: str


class EventNote(NamedTuple):
    """The details of an observed event for display, as JSON, and its number within the session. It is not signed."""

    observed: int
    text: str


class MinuteCount(NamedTuple):
    """The number of receipts with a denial code in one minute since 1970. An empty code means permitted."""

    minute: int
    code: str
    receipts: int


class CodeCount(NamedTuple):
    """The number of receipts with a denial code in the whole ledger. An empty code means permitted."""

    code: str
    receipts: int


class IdempotencyKey(NamedTuple):
    """The idempotency key of a request, and a digest of the whole request."""

    key: str
    digest: str


class EarlierRequest(NamedTuple):
    """The receipt of an earlier request with the same idempotency key, and the digest of that request."""

    found: "StoredReceipt | UnsignedReceipt"
    digest: str


class Delegation(NamedTuple):
    """Calls that a session has reserved for a delegate, and the passport issued to the delegate."""

    parent: str
    request: str
    # The digest of the request, to detect a different request with the same id.
    digest: str
    child: str
    passport: str
    amount: int
    receipt_id: str
    expires_ms: int
    settled: bool = False


class LedgerState(NamedTuple):
    """The state of the whole ledger: the signing key, and whether the kill switch is on.

    `epoch` counts changes of these, of revocations, keys and attestations, and of session states.
    """

    kid: str
    kill_switch: bool = False
    epoch: int = 0
    # Sessions up to this number were stopped by the kill switch, and stay so when it is released.
    killed_up_to: int = 0


class KeyRecord(NamedTuple):
    """A public key of the ledger, and the signed record by which its predecessor handed over to it."""

    kid: str
    public_pem: str
    change: str | None
    created_ms: int


class LimitRecord(NamedTuple):
    """The stored, signed record of the end of a key's period."""

    kid: str
    token: str


class PassportRegistration(NamedTuple):
    """The registration of a passport issued here: the SHA-256 of its token in hex, the signing key, and the time."""

    passport_id: str
    hash: str
    kid: str
    at_ms: int


class LedgerOverview(NamedTuple):
    """The size of a ledger, its last receipt, and its epoch."""

    ledger_id: str
    sessions: int
    receipts: int
    last_receipt_id: str | None
    last_receipt_hash: str | None
    epoch: int


def source_trace_id(key: str) -> str:
    """Return the `trace_id` of the sessions of a source: a hash, so that receipts do not contain the key itself."""
    return f"{SOURCE_TRACE}{sha256_hex(key.encode())[:32]}"


def unverified_kid(token: str) -> str:
    """Return the `kid` in the header of a token, without verifying the token."""
    header = unsafe_peek(token).header or {}
    return str(header.get("kid", ""))
