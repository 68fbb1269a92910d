"""What a check of the ledger notes down: findings, each with one of a closed list of faults."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias

from remit.claims.chain import Each
from remit.claims.keys import Keyring
from remit.claims.receipt import Receipt
from remit.claims.succession import KeyLimit
from remit.errors import BrokenChain, StateError
from remit.ledger.records import Session

__all__ = [
    "FAULTS",
    "LIMIT_STATED",
    "MAX_FINDINGS",
    "FindingRecorder",
    "LedgerFinding",
    "LedgerReport",
    "Limits",
    "Progress",
    "check_period",
    "is_limit_stated",
    "limits_fault",
    "period_fault",
]

MAX_FINDINGS: Final = 1000
# The tool of Remit's own statements that the period of a key ended; their target is the id of the record.
LIMIT_STATED: Final = "remit.keys"
_OWN_ACTOR: Final = "remit"
_TELL_EVERY: Final = 512

# Beside these, a fault is one of `remit.claims.chain.FAULTS`, or the code of the error that a token or file gives.
FAULTS: Final[Mapping[str, str]] = {
    "database_damaged": "the database itself is damaged",
    "reference_missing": "a row names another one that is not there",
    "count_mismatch": "a count that is kept is not the number of rows",
    "key_mismatch": "the record of a key does not follow from those before it",
    "key_retired": "it was signed with a key after that key had handed over to another",
    "key_distrusted": "it was signed with a key that is distrusted from an earlier point on",
    "limit_missing": "it states where the period of a key ended, and the ledger does not have that record any more",
    "passport_mismatch": "the session is not what its passport says",
    "row_mismatch": "the row of a receipt does not say what the receipt says",
    "session_mismatch": "the session does not say what its receipts say",
    "budget_mismatch": "the calls that are used or set aside do not follow from the receipts",
    "attestation_mismatch": "an attestation does not describe these receipts",
    "bookmark_mismatch": "the note of how far the chain was verified does not lie on it",
}

Progress: TypeAlias = Callable[[int, int], None]
# Where the periods of keys ended, by key id.
Limits: TypeAlias = Mapping[str, Sequence[KeyLimit]]


class LedgerFinding(NamedTuple):
    """Something that is not as it must be: of which session, at which of its receipts (counted from 1), and what."""

    session_id: str | None
    receipt: int | None
    fault: str
    sentence: str


class LedgerReport(NamedTuple):
    """What was looked at, and what was found; `findings` are the first of them, `found` is their number."""

    sessions: int
    receipts: int
    attestations: int
    keys: int
    found: int
    findings: tuple[LedgerFinding, ...]


class FindingRecorder:
    """What was found so far, and what the check goes by."""

    def __init__(self, each: Each, progress: Progress) -> None:
        self.each = each
        self.progress = progress
        self.keyring = Keyring([])
        self.total = 0
        self.done = self.sessions_done = self.attestations_done = self.keys_done = self.found = 0
        self.findings: list[LedgerFinding] = []
        # Where the periods of keys ended, by key; and the first and the last receipt that each key has signed.
        self.limits: dict[str, list[KeyLimit]] = {}
        self.signed: dict[str, tuple[int, int]] = {}

    def report(self) -> LedgerReport:
        """Return the report."""
        counts = self.sessions_done, self.done, self.attestations_done, self.keys_done, self.found
        return LedgerReport(*counts, tuple(self.findings))

    def note(
        self, fault: str, sentence: str = "", *, session: Session | None = None, receipt: int | None = None
    ) -> None:
        """Note that something is not as it must be."""
        self.found += 1
        if len(self.findings) < MAX_FINDINGS:
            name = session.id if session else None
            self.findings.append(LedgerFinding(name, receipt, fault, sentence or FAULTS[fault]))

    @contextmanager
    def noted(self, session: Session | None = None) -> Iterator[None]:
        """Note what the state of this machine makes impossible, and go on with the next thing."""
        try:
            yield
        except StateError as error:
            self.note(error.code, str(error), session=session)

    def fault_of_key(self, kid: str, number: int) -> str | None:
        """Return what is wrong with the n-th receipt of the ledger being signed with this key, if anything is."""
        first, last = self.signed.get(kid, (number, number))
        self.signed[kid] = min(first, number), max(last, number)
        return period_fault(self.limits, kid, number)

    def step(self) -> None:
        """Count one more receipt."""
        self.done += 1
        if self.done % _TELL_EVERY == 0:
            self.progress(self.done, max(self.done, self.total))


def period_fault(limits: Limits, kid: str, number: int) -> str | None:
    """Return the fault of the receipt with this number in the ledger, if its key signed it after its period."""
    passed = [limit for limit in limits.get(kid, ()) if number > limit.position.receipts]
    return limits_fault(passed) if passed else None


def check_period(limits: Limits, kid: str, number: int, index: int) -> None:
    """Raise `BrokenChain` at `index` if a key has signed the receipt with this number after its period."""
    fault = period_fault(limits, kid, number)
    if fault is not None:
        raise BrokenChain(index, fault, FAULTS[fault])


def is_limit_stated(claims: Receipt) -> bool:
    """Tell whether a receipt is one of Remit's own statements that the period of a key ended."""
    return (claims.tool, claims.actor) == (LIMIT_STATED, _OWN_ACTOR)


def limits_fault(passed: Iterable[KeyLimit]) -> str:
    """Return what is wrong with something that a key has signed after these limits of it."""
    return "key_distrusted" if any(limit.distrusted_from is not None for limit in passed) else "key_retired"
