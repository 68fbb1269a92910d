"""What a ledger keeps, as values: sessions, receipts, and what belongs to them.

What they mean, and which changes are right, is the governor's business; how they are kept is for each ledger.
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

__all__ = [
    "FINAL_STATES",
    "NOTES_KEPT",
    "RESTORED",
    "SOURCE_TRACE",
    "CodeCount",
    "Delegation",
    "EarlierRequest",
    "IdempotencyKey",
    "Kept",
    "KeyRecord",
    "LimitRecord",
    "MinuteCount",
    "Note",
    "Numbered",
    "Overview",
    "PassportRegistration",
    "Session",
    "Source",
    "Switches",
    "UnsignedReceipt",
    "source_trace_id",
    "unverified_kid",
]

FINAL_STATES: Final[tuple[SessionState, ...]] = ("ended", "expired", "revoked")
# The cause of sessions that were brought back from an older copy, at the price of what came after it. Their chains may
# go on elsewhere, so they take no receipt any more: it could only fork them.
RESTORED: Final = "restored"
# What a `trace_id` begins with that was made from the key of a source.
SOURCE_TRACE: Final = "source:"
# How many notes of a session are kept: the last ones.
NOTES_KEPT: Final = 50


class Session(Struct, frozen=True, kw_only=True):
    """One session as it is kept: what was fixed at its start, where its chain stands, and what it has used."""

    id: str
    passport: str
    actor: str
    parent: str | None
    # The thumbprint of the certificate that its client has shown at the start; empty where there was none.
    holder: str = ""
    trace_id: str
    run_nonce: str
    started_ms: int
    # How long it may last, and when on the wall its passport ends.
    lifetime_ms: int
    expires_ms: int
    limit: int

    state: SessionState = "active"
    # The denial code that explains a final state, or a quarantine.
    cause: str = ""
    ended_ms: int | None = None
    # 1 once its chain was found broken, whatever has become of it since.
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
    # Of the events that adapters have reported: how many there were, and words for what was in them, in order.
    observed: int = 0
    marks: str = ""

    # How long it has lasted, and the moment up to which that is counted: on the monotonic clock of one boot, and on
    # the wall for the time after a reboot.
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
        """Return the moment as of which the passport of the session must verify: when the session was started.

        A session started after the end of its passport has no time at all, so its passport is verified as of that end.
        """
        return min(self.started_ms, self.expires_ms) // 1000

    @property
    def calls_left(self) -> int:
        """Return how many calls are left: those that delegates hold are not."""
        return max(0, self.limit - self.used - self.reserved)

    @property
    def left_ms(self) -> int:
        """Return how long it may still last, as of `seen_wall_ms`: by its duration and the end of its passport."""
        return max(0, min(self.lifetime_ms - self.elapsed_ms, self.expires_ms - self.seen_wall_ms))

    @property
    def duration_left_s(self) -> int:
        """Return the seconds that are left, the last one begun counted whole: none are left when the time is over."""
        left = min(self.lifetime_ms - self.elapsed_ms, self.expires_ms - self.seen_wall_ms)
        return -(-left // 1000) if left > 0 else 0

    @property
    def head(self) -> Head:
        """Return where the chain stands."""
        lineage = Lineage(self.id, self.actor, self.verifier, self.trace_id, self.run_nonce)
        return Head(lineage, self.length, self.receipt_id, self.receipt_hash, self.iat, self.kid)

    def after(self, pending: "UnsignedReceipt", changes: Mapping[str, Any]) -> "Session":
        """Return the session with `changes`, once a receipt is appended; its hash is known when it is signed."""
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
    """A receipt on its way: a draft, and the key to sign it. `signed` is there once the work is durable.

    The receipts of a group are signed in a row, after all work has been done: nothing but signing then goes on, and a
    signature takes only as long as it must.
    """

    __slots__ = ("draft", "key", "signed")

    def __init__(self, draft: Draft, key: SigningKey) -> None:
        self.draft = draft
        self.key = key
        self.signed: SignedReceipt | None = None

    @property
    def receipt(self) -> SignedReceipt:
        """Return the receipt, once it is durable."""
        if self.signed is None:
            raise LedgerUnavailable("the receipt is not durable yet")
        return self.signed


class Kept(NamedTuple):
    """A receipt as it is kept: the exact token, its place in its chain, and its number in the whole ledger."""

    session_id: str
    seq: int
    receipt_id: str
    token: str
    number: int


class Numbered(NamedTuple):
    """A receipt as it is kept, with its place in the whole ledger and the code of its denial, if it is one."""

    number: int
    code: str
    kept: Kept


class Source(NamedTuple):
    """Who reports to a session: the key by which it is found again, and what was told, as JSON."""

    session_id: str
    key: str
    told: str


class Note(NamedTuple):
    """What people are shown of an event that was observed, as JSON: the n-th of its session. Nothing signs it."""

    observed: int
    text: str


class MinuteCount(NamedTuple):
    """How many receipts of one minute (of the wall, since 1970) have a denial code; none is permitted."""

    minute: int
    code: str
    receipts: int


class CodeCount(NamedTuple):
    """How many receipts of the whole ledger have a denial code; none is permitted."""

    code: str
    receipts: int


class IdempotencyKey(NamedTuple):
    """What makes a request repeatable: the key it comes with, and a digest of all that was asked."""

    key: str
    digest: str


class EarlierRequest(NamedTuple):
    """The receipt of a request that was made before, and the digest of what was asked then."""

    found: "Kept | UnsignedReceipt"
    digest: str


class Delegation(NamedTuple):
    """Calls that a session has set aside for a delegate, and the passport that the delegate got."""

    parent: str
    request: str
    # Of what was asked, so that the same request can be told from another under the same id.
    digest: str
    child: str
    passport: str
    amount: int
    receipt_id: str
    expires_ms: int
    settled: bool = False


class Switches(NamedTuple):
    """What holds for the whole ledger: the key that signs, and whether the kill switch is on.

    `epoch` counts the changes of either, of revocations, and of the states of sessions.
    """

    kid: str
    kill_switch: bool = False
    epoch: int = 0
    # Sessions up to this number were killed, and stay so when the switch is released.
    killed_up_to: int = 0


class KeyRecord(NamedTuple):
    """A public key that has signed here, and the record by which the key before handed over to it."""

    kid: str
    public_pem: str
    change: str | None
    created_ms: int


class LimitRecord(NamedTuple):
    """The signed record of where the period of a key ended, as it is kept."""

    kid: str
    token: str


class PassportRegistration(NamedTuple):
    """A passport that was issued here: the SHA-256 of its token in hex, the key that signed it, and when."""

    passport_id: str
    hash: str
    kid: str
    at_ms: int


class Overview(NamedTuple):
    """How much there is, and the last of it."""

    ledger_id: str
    sessions: int
    receipts: int
    last_receipt_id: str | None
    last_receipt_hash: str | None
    epoch: int


def source_trace_id(key: str) -> str:
    """Return the `trace_id` of all sessions of a source that continue each other; receipts sign it, and not the key."""
    return f"{SOURCE_TRACE}{sha256_hex(key.encode())[:32]}"


def unverified_kid(token: str) -> str:
    """Return the id of the key that a token says it was signed with; nothing is verified."""
    header = unsafe_peek(token).header or {}
    return str(header.get("kid", ""))
