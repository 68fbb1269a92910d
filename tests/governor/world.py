"""A service for tests: clocks that are set, keys that are fixed, a ledger that can fail and be restarted.

`check` reads everything back that is kept and counts it again from the tokens alone.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec import structs

from remit.claims.chain import Head, walk_chain
from remit.claims.keys import Keyring
from remit.claims.mission import Mission
from remit.claims.passport import Confirmation, Passport
from remit.claims.receipt import LineageBudgetDelta, Receipt
from remit.claims.strictjson import JSON
from remit.governor.attest import Attest, AttestResult
from remit.governor.clock import Moment
from remit.governor.context import Context, UseCase, UseCaseRunner
from remit.governor.delegate import Delegate, DelegateResult
from remit.governor.evaluate import Evaluate, Evaluation
from remit.governor.governor import Governor
from remit.governor.issue import IssuePassport, PassportRequest
from remit.governor.sessions import StartResult, StartSession
from remit.ledger.commit import GroupCommit
from remit.ledger.keys import build_keyring
from remit.ledger.records import KeyRecord, Session
from remit.ledger.store import LedgerReader
from remit.policy.call import ToolCall
from remit.policy.engines import Engine
from remit.policy.files import TextFiles
from remit.policy.native import NativeEngine
from remit.policy.observation import ObservationEngine
from tests.governor.places import DEADLINE_S, MemoryPlace, Place, Weather
from tests.ledger.memory import MemoryTables
from tests.world import NOW

__all__ = ["ALLOWED", "FORBIDDEN", "MISSION", "Service", "SetClock", "mission", "values"]

_T = TypeVar("_T")
_PROJECT = "/work/project"

MISSION = Mission(
    agent_id="agent:reviewer",
    mission="Review the pull request and run the tests",
    allowed_tools=("Bash", "read_file", "send_email"),
    forbidden_tools=("send_email",),
    resource_scope=(_PROJECT,),
    max_tool_calls=20,
    max_duration_s=900,
    cwd=_PROJECT,
)
ALLOWED = ToolCall("read_file", {"path": f"{_PROJECT}/README.md"})
FORBIDDEN = ToolCall("send_email", {"to": "press@example.com"})


def mission(**changes: Any) -> Mission:
    """Return the mission of these tests, with changes."""
    return structs.replace(MISSION, **changes)


@dataclass
class SetClock:
    """A clock that shows what it is set to."""

    wall_ms: int = NOW * 1000
    mono_ms: int = 50_000_000
    boot: str = "boot:1"

    def now(self) -> Moment:
        """Return this moment."""
        return Moment(self.wall_ms, self.mono_ms, self.boot)

    def pass_s(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self.wall_ms += round(seconds * 1000)
        self.mono_ms += round(seconds * 1000)

    def jump_s(self, seconds: float) -> None:
        """Set the clock on the wall."""
        self.wall_ms += round(seconds * 1000)

    def reboot(self, *, after_s: float) -> None:
        """Start the machine anew after some time; its monotonic clock begins again."""
        self.wall_ms += round(after_s * 1000)
        self.mono_ms = 1000
        self.boot += "+"


class _Entropy:
    """Bytes that follow from a name and a count; each process has a name of its own. `drawn` gets all of them."""

    def __init__(self, name: str, drawn: bytearray) -> None:
        self._name = name
        self._drawn = drawn
        self._count = 0

    def __call__(self, size: int) -> bytes:
        self._count += 1
        part = hashlib.shake_256(f"{self._name} {self._count}".encode()).digest(size)
        self._drawn += part
        return part


@dataclass
class _Audit:
    """What the tokens of one session say, as far as they were read."""

    head: Head | None = None
    tokens: list[str] = field(default_factory=list)
    used: int = 0
    reserved: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    set_aside: dict[str, int] = field(default_factory=dict)

    def count(self, claims: Receipt, limit: int) -> None:
        """Count one receipt, and hold what it says of the budget against the count."""
        self.verdicts[claims.verdict] = self.verdicts.get(claims.verdict, 0) + 1
        delta = claims.budget_delta
        if isinstance(delta, LineageBudgetDelta):
            self._count_delta(delta)
            assert (delta.used_total, delta.reserved_total) == (self.used, self.reserved)
        assert claims.budget_remaining.keys() == {"tool_calls", "duration_s"}
        assert claims.budget_remaining["tool_calls"] == limit - self.used - self.reserved
        assert self.used >= 0
        assert self.reserved >= 0

    def _count_delta(self, delta: LineageBudgetDelta) -> None:
        request = str(delta.delegation_request_id)
        if delta.operation == "consume":
            self.used += delta.amount
        elif delta.operation == "reserve":
            assert request not in self.set_aside
            self.set_aside[request] = delta.amount
            self.reserved += delta.amount
        elif delta.operation == "release":
            amount = self.set_aside.pop(request)
            self.reserved -= amount
            self.used += amount - delta.amount


class Service:
    """One process: a governor over a place. Several may share a place and a clock."""

    def __init__(
        self,
        place: Place | None = None,
        *,
        clock: SetClock | None = None,
        engines: Sequence[Engine] = (NativeEngine(),),
        name: str = "process",
    ) -> None:
        self.place: Place = place or MemoryPlace()
        self.clock = clock or SetClock()
        self.weather = Weather()
        self.permits: list[Evaluation] = []
        # All random bytes that the process has used, whenever it was started.
        self.drawn = bytearray()
        self._engines = engines
        self._name = name
        self._passports = 0
        self._starts = 0
        self._audits: dict[str, _Audit] = {}
        self._boot()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.check()
        self.close()

    def _boot(self) -> None:
        """Build everything that a process has in memory."""
        self._starts += 1
        reader = self.place.reader()
        self.ledger = GroupCommit(lambda: self.place.open_store(self.weather), reader, deadline_s=DEADLINE_S)
        self.governor: UseCaseRunner = Governor(self.ledger, self._means(reader))

    def _means(self, reader: LedgerReader) -> Context:
        return Context(
            keys=self.place.keys(),
            engines=self._engines,
            observers=[ObservationEngine(), NativeEngine()],
            files=TextFiles(),
            clock=self.clock,
            stopwatch=lambda: 0.0,
            entropy=self._entropy(),
            reader=reader,
        )

    def _entropy(self) -> Callable[[int], bytes]:
        return _Entropy(f"{self._name} {self._starts}", self.drawn)

    @property
    def reader(self) -> LedgerReader:
        """A reader of what is durable."""
        return self.place.reader()

    @property
    def shelf(self) -> MemoryTables:
        """What is kept, where that is in memory: for tests that damage it."""
        assert isinstance(self.place, MemoryPlace)
        return self.place.shelf

    def restart(self) -> None:
        """Forget everything that is not durable."""
        self.ledger.close()
        self.place.restart()
        self._boot()

    def close(self, *, with_place: bool = True) -> None:
        """Let go; a place that others use stays open."""
        self.ledger.close()
        if with_place:
            self.place.close()

    def run(self, case: UseCase[_T]) -> _T:
        """Run a use case; a permission that it hands out is remembered."""
        answer = self.governor.run(case)
        if isinstance(answer, Evaluation) and answer.permits:
            self.permits.append(answer)
        return answer

    def keyring(self) -> Keyring:
        """Return a keyring of someone who trusts the first key alone."""
        return build_keyring(self.reader.keys())

    def issue(
        self, wanted: Mission = MISSION, *, lifetime_s: int | None = None, bound_to: Confirmation | None = None
    ) -> Passport:
        """Return a passport that the key which signs now has issued, and that is registered."""
        self._passports += 1
        jti = f"pass:{self._name}:{self._passports:04d}"
        return self.governor.run(IssuePassport(PassportRequest(wanted, jti, lifetime_s, bound_to)))

    def start(self, wanted: Mission = MISSION, **changes: Any) -> StartResult:
        """Start a session under a new passport."""
        return self.run(StartSession(self.issue(structs.replace(wanted, **changes)).token))

    def call(self, session_id: str, tool: ToolCall = ALLOWED, key: str = "") -> Evaluation:
        """Evaluate a call."""
        return self.run(Evaluate(session_id, tool, key))

    def delegate(
        self, parent: str, request: str = "request-1", wanted: Mission = MISSION, **changes: Any
    ) -> DelegateResult:
        """Delegate a mission with changes."""
        return self.run(Delegate(parent, structs.replace(wanted, **changes), request))

    def start_delegate(self, parent: str, request: str = "request-1", **changes: Any) -> str:
        """Delegate, start the delegate, and return the id of its session."""
        delegated = self.delegate(parent, request, **changes)
        assert delegated.passport is not None
        return self.run(StartSession(delegated.passport)).session.id

    def attest(self, session_id: str, *, end: bool = False) -> AttestResult:
        """Attest a session."""
        return self.run(Attest(session_id, end=end))

    def rotate(self) -> KeyRecord:
        """Change the key that signs, and return the record of the new one."""
        return self.place.rotate(self.ledger, self.governor.context.keys, self.clock.now())

    def session(self, session_id: str) -> Session:
        """Return a session as it is kept."""
        session = self.reader.session(session_id)
        assert session is not None
        return session

    def tokens(self, session_id: str) -> list[str]:
        """Return the receipts of a session as they are kept."""
        return [kept.token for kept in self.reader.receipts(session_id, limit=10_000)]

    def claims(self, session_id: str) -> list[Receipt]:
        """Return the verified claims of a session's receipts."""
        return [receipt.claims for receipt, _ in walk_chain(self.tokens(session_id), self.keyring())]

    def sessions(self) -> list[Session]:
        """Return every session."""
        return self.reader.sessions(limit=10_000)

    def check(self) -> None:
        """Verify every chain, count every budget again, and find every permission that was handed out."""
        keyring = self.keyring()
        for session in self.sessions():
            self._check_session(session, keyring)
        for answer in self.permits:
            kept = self.reader.receipt(answer.receipt.claims.receipt_id)
            assert kept is not None
            assert kept.token == answer.receipt.token

    def check_afresh(self) -> None:
        """Check without relying on what was verified before."""
        self._audits.clear()
        self.check()

    def _check_session(self, session: Session, keyring: Keyring) -> None:
        """Verify what is new in a chain; what was verified before must be there byte for byte."""
        audit = self._audits.setdefault(session.id, _Audit())
        tokens = self.tokens(session.id)
        known = len(audit.tokens)
        assert tokens[:known] == audit.tokens
        for receipt, head in walk_chain(tokens[known:], keyring, start=audit.head):
            audit.count(receipt.claims, session.limit)
            audit.head = head
        audit.tokens = tokens
        assert session.length == len(tokens)
        if audit.head is not None:
            assert session.head == audit.head
        counted = tuple(audit.verdicts.get(name, 0) for name in ("compliant", "violation", "insufficient_evidence"))
        assert (session.compliant, session.violation, session.insufficient_evidence) == counted
        assert (session.used, session.reserved) == (audit.used, audit.reserved)


def values(arguments: object) -> dict[str, JSON]:
    """Return arguments of any kind as if they were JSON: what a client in the same process may hand over."""
    return {"value": arguments}  # type: ignore[dict-item]
