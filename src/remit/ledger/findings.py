"""Findings of a check of the ledger, each with one of a closed list of faults."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias

from remit.claims.chain import Each
from remit.claims.keys import Keyring
from remit.claims.receipt import Receipt
from remit.claims.succession import KeyLimit
from remit.errors import BrokenChain, StateError
from remit.ledger.records import Session

MAX_FINDINGS: Final = 1000
# The tool of Remit's own statements that the period of a key ended; their target is the id of the record.
LIMIT_STATED: Final = "remit.keys"
_OWN_ACTOR: Final = "remit"
_TELL_EVERY: Final = 512

# Other faults are those of `remit.claims.chain.FAULTS`, and the codes of errors that a token or file raises.
FAULTS: Final[Mapping[str, str]] = {
    "database_damaged": "the database itself is damaged",
    "reference_missing": "a row refers to another one that does not exist",
    "count_mismatch": "a stored count is not the number of rows",
    "key_mismatch": "the record of a key does not follow from those before it",
    "key_retired": "it was signed with a key after that key had handed over to another",
    "key_distrusted": "it was signed with a key that is distrusted from an earlier point on",
    "limit_missing": "it states where the period of a key ended, and the ledger does not have that record any more",
    "passport_mismatch": "the session differs from its passport",
    "row_mismatch": "the row of a receipt differs from the receipt",
    "session_mismatch": "the session differs from its receipts",
    "budget_mismatch": "the used or reserved calls do not follow from the receipts",
    "attestation_mismatch": "an attestation does not describe these receipts",
    "bookmark_mismatch": "the bookmark of the last verification is not on the chain",
}

Progress: TypeAlias = Callable[[int, int], None]
# Where the periods of keys ended, by key id.
Limits: TypeAlias = Mapping[str, Sequence[KeyLimit]]


class LedgerFinding(NamedTuple):
    """A fault: its session, its receipt (counted from 1), and what is wrong."""

    session_id: str | None
    receipt: int | None
    fault: str
    sentence: str


class LedgerReport(NamedTuple):
    """What was checked, and what was found; `findings` has the first findings, `found` is their number."""

    sessions: int
    receipts: int
    attestations: int
    keys: int
    found: int
    findings: tuple[LedgerFinding, ...]


class FindingRecorder:
    """The findings so far, and what the check compares with."""

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
        """Add a finding."""
        self.found += 1
        if len(self.findings) < MAX_FINDINGS:
            name = session.id if session else None
            self.findings.append(LedgerFinding(name, receipt, fault, sentence or FAULTS[fault]))

    @contextmanager
    def noted(self, session: Session | None = None) -> Iterator[None]:
        """Add an error of this machine as a finding, and continue."""
        try:
            yield
        except StateError as error:
            self.note(error.code, str(error), session=session)

    def fault_of_key(self, kid: str, number: int) -> str | None:
        """Return the fault if the n-th receipt of the ledger must not be signed with this key."""
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
    """Return whether a receipt is one of Remit's own statements that the period of a key ended."""
    return (claims.tool, claims.actor) == (LIMIT_STATED, _OWN_ACTOR)


def limits_fault(passed: Iterable[KeyLimit]) -> str:
    """Return the fault of something that a key has signed after these limits."""
    return "key_distrusted" if any(limit.distrusted_from is not None for limit in passed) else "key_retired"
