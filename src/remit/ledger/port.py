"""What a ledger promises, whoever implements it.

- **Durable when it returns.** What a piece of work wrote is on disk before its answer is given to anyone.
- **All or nothing.** Everything that one piece of work wrote is there, or nothing of it.
- **One after the other.** Work sees all work before it, in this process and in others. A chain cannot fork: a receipt
  is appended to the head it was signed on, or not at all (`HeadMoved`).
- **`LedgerUnavailable` means unknown.** The work may be written or not. Whoever asks again by the same key, request or
  id finds out; nobody may act as if it were written.
- **No cost grows with the history.** Work finds what it needs by key.

What the rows mean, and which changes are right, is the governor's business.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct, structs

from remit.claims.attestation import SessionState
from remit.claims.chain import Head, Lineage
from remit.claims.draft import Draft
from remit.claims.keys import SigningKey
from remit.claims.receipt import SignedReceipt
from remit.errors import LedgerUnavailable

__all__ = [
    "FINAL_STATES",
    "RESTORED",
    "Delegation",
    "Kept",
    "KeyRecord",
    "Ledger",
    "Once",
    "Overview",
    "Pending",
    "Prepare",
    "Reader",
    "Repeated",
    "Session",
    "Switches",
    "Transaction",
    "Work",
]

FINAL_STATES: Final[tuple[SessionState, ...]] = ("ended", "expired", "revoked")
# The cause of sessions that were brought back from an older copy, at the price of what came after it. Their chains may
# go on elsewhere, so they take no receipt any more: it could only fork them.
RESTORED: Final = "restored"


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
    def head(self) -> Head:
        """Return where the chain stands."""
        lineage = Lineage(self.id, self.actor, self.verifier, self.trace_id, self.run_nonce)
        return Head(lineage, self.length, self.receipt_id, self.receipt_hash, self.iat, self.kid)

    def after(self, pending: "Pending") -> "Session":
        """Return the session once a receipt is appended; the hash of its head is known when it is signed."""
        claims = pending.draft.claims
        return structs.replace(
            self,
            verifier=claims.verifier_id,
            length=self.length + 1,
            receipt_id=claims.receipt_id,
            receipt_hash=None,
            iat=claims.iat,
            kid=pending.key.kid,
        )


class Pending:
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
    """A receipt as it is kept: the exact token, and where it hangs."""

    session_id: str
    seq: int
    receipt_id: str
    token: str


class Once(NamedTuple):
    """What makes a request repeatable: the key it comes with, and a digest of all that was asked."""

    key: str
    digest: str


class Repeated(NamedTuple):
    """The receipt of a request that was made before, and the digest of what was asked then."""

    found: "Kept | Pending"
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


class Overview(NamedTuple):
    """How much there is, and the last of it."""

    ledger_id: str
    sessions: int
    receipts: int
    last_receipt_id: str | None
    last_receipt_hash: str | None
    epoch: int


class Reader(Protocol):
    """Reading, from any thread, of what is durable. It never waits for a writer."""

    def session(self, session_id: str) -> Session | None:
        """Return the session of this id."""

    def sessions(self, *, after: int = 0, limit: int = 100) -> list[Session]:
        """Return the sessions that were started after the one numbered `after`, oldest first."""

    def open_sessions(self) -> int:
        """Return how many sessions are active."""

    def switches(self) -> Switches:
        """Return what holds for the whole ledger."""

    def receipt(self, receipt_id: str) -> Kept | None:
        """Return the receipt of this id."""

    def receipts(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[Kept]:
        """Return the receipts of a session from number `after` + 1 on, in the order of the chain."""

    def count(self, session_id: str) -> int:
        """Return how many receipts of a session are kept, counted one by one."""

    def attestations(self, session_id: str) -> list[str]:
        """Return the attestations over a session, oldest first."""

    def bookmark(self, session_id: str) -> str | None:
        """Return the signed note of how far the chain was verified."""

    def keys(self) -> list[KeyRecord]:
        """Return every key that has signed here, oldest first."""

    def overview(self) -> Overview:
        """Return how much there is."""


class Transaction(Protocol):
    """Reading and writing inside one piece of work. What it writes, it and later work can read."""

    @property
    def switches(self) -> Switches:
        """Return what holds for the whole ledger."""

    def session(self, session_id: str) -> Session | None:
        """Return the session of this id."""

    def receipt(self, receipt_id: str) -> "Kept | Pending | None":
        """Return the receipt of this id."""

    def repeated(self, session_id: str, key: str) -> Repeated | None:
        """Return the receipt that was appended under this idempotency key."""

    def result_of(self, receipt_id: str) -> "Kept | Pending | None":
        """Return the receipt that holds the result of this one."""

    def delegation(self, parent: str, request: str) -> Delegation | None:
        """Return what was delegated upon this request."""

    def delegation_to(self, child: str) -> Delegation | None:
        """Return the delegation that made this passport."""

    def open_delegations(self, parent: str) -> list[Delegation]:
        """Return the delegations of a session that are not settled."""

    def active_sessions(self) -> Iterator[str]:
        """Go through the ids of all active sessions. Only for work that runs alone."""

    def revoked(self, passport_id: str) -> bool:
        """Tell whether a passport was revoked."""

    def put_session(self, session: Session) -> None:
        """Keep a session: a new one, or one that was read here with changes."""

    def append(self, session: Session, pending: Pending, *, once: Once | None = None, result_of: str = "") -> Session:
        """Append a receipt and keep what `session` says, or raise `HeadMoved`; return the session as it now stands.

        The head of `session` is the one that the receipt was drafted on.
        """

    def put_delegation(self, delegation: Delegation) -> None:
        """Keep a delegation, or that it was settled."""

    def put_revocation(self, passport_id: str, *, at_ms: int, reason: str) -> None:
        """Keep that a passport was revoked."""

    def put_switches(self, switches: Switches) -> None:
        """Keep what holds for the whole ledger."""

    def put_key(self, record: KeyRecord) -> None:
        """Keep a public key."""

    def put_attestation(self, session_id: str, attestation_id: str, token: str, bookmark: str | None) -> None:
        """Keep an attestation, and the bookmark of how far the chain was verified for it."""


_T = TypeVar("_T")
Work: TypeAlias = Callable[[Transaction], _T]
# What can be done before anything of a group is written: it only reads, and what it does takes its time.
Prepare: TypeAlias = Callable[[Transaction], None]


class Ledger(Protocol):
    """Where evidence is kept."""

    def run(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> _T:
        """Return what `work` answers, once everything it wrote is durable. Waits; for threads.

        Work may be run more than once before it counts, so it must do nothing but through its transaction. Work that
        runs alone shares its commit with no other. `prepare` is run once before the work, and never while the ledger
        is held; all work of a group is prepared first.
        """

    async def arun(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> _T:
        """Return what `work` answers, once everything it wrote is durable. For an event loop."""

    def read(self) -> Reader:
        """Return a reader."""
