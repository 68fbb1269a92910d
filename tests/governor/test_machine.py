"""Everything in any order, against a model: chains verify, budgets are exact, states agree, whatever fails between."""

import shutil
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from remit.claims.attestation import verify_session
from remit.claims.passport import verify_passport
from remit.errors import LedgerUnavailable, RemitError, RequestConflict
from remit.governor.attest import Attest
from remit.governor.context import UseCase
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Evaluate
from remit.governor.revoke import KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession, StartSession
from remit.policy.call import ToolCall
from tests.governor.model import Grant, Model, Run
from tests.governor.places import MemoryPlace, Place, SqlitePlace
from tests.governor.world import ALLOWED, FORBIDDEN, Service, mission

pytestmark = pytest.mark.slow

_T = TypeVar("_T")
# The profile decides: `--hypothesis-profile=thorough` asks for thousands of runs.
_THOROUGH = settings.default is not None and settings.default.max_examples > 1000
_NUMBERS = st.integers(0, 50)
_HOUR, _DAY = 3600, 86400
_FAULTS = st.sampled_from(["", "", "", "lost", "unknown"])


class Machine(RuleBasedStateMachine):
    """A service in memory beside its model."""

    def __init__(self) -> None:
        super().__init__()
        self.service = Service(self.place())
        self.model = Model()
        # By session and idempotency key: the call and the token it got.
        self.answers: dict[tuple[str, str], tuple[ToolCall, str]] = {}

    def place(self) -> Place:
        """Return where evidence is kept."""
        return MemoryPlace()

    @property
    def wall_ms(self) -> int:
        """The time on the wall."""
        return self.service.clock.wall_ms

    @property
    def mono_ms(self) -> int:
        """The time on the clock that nobody can set."""
        return self.service.clock.mono_ms

    def pick(self, number: int) -> tuple[str, Run]:
        """Return one of the sessions, the later ones first."""
        names = list(self.model.runs)
        name = names[-1 - number % len(names)]
        if self.model.runs[name].state != "active":
            self.service.clock.pass_s(1)  # calls of a session that is over are limited to ten a second
        return name, self.model.runs[name]

    def do(self, case: UseCase[_T], fault: str = "") -> _T:
        """Run a use case; where the ledger fails, whoever asked asks again."""
        self.service.weather.lost = fault == "lost"
        self.service.weather.unknown = fault == "unknown"
        try:
            return self.service.run(case)
        except LedgerUnavailable:
            assert fault
            return self.service.run(case)
        finally:
            self.service.weather.lost = self.service.weather.unknown = False

    def refused(self, case: UseCase[Any], code: str) -> None:
        """Expect a use case to fail with a code, and to leave every chain as it was."""
        with pytest.raises(RemitError) as caught:
            self.service.run(case)
        assert caught.value.code == code

    @initialize(calls=st.integers(2, 8))
    def begin(self, calls: int) -> None:
        self.issue_and_start(calls, 100, "")

    @rule(calls=st.integers(0, 8), duration_s=st.sampled_from([1, 30, 100, 5000]), fault=_FAULTS)
    def issue_and_start(self, calls: int, duration_s: int, fault: str) -> None:
        passport = self.service.issue(mission(max_tool_calls=calls, max_duration_s=duration_s))
        grant = self.model.grants[passport.jti] = Grant.of(passport)
        self.present(grant, fault)

    @rule(number=_NUMBERS, fault=_FAULTS)
    def present_a_passport(self, number: int, fault: str) -> None:
        grants = list(self.model.grants.values())
        self.present(grants[-1 - number % len(grants)], fault)

    def present(self, grant: Grant, fault: str) -> None:
        """Start a session, or find that there is one."""
        refusal = self.model.refusal_to_start(grant, self.wall_ms, self.mono_ms)
        if refusal:
            return self.refused(StartSession(grant.token), refusal)
        before = grant.id in self.model.runs
        self.model.start(grant, self.wall_ms, self.mono_ms)
        started = self.do(StartSession(grant.token), fault)
        # A start that was written although it seemed to fail is found again.
        assert started.existing in (before, True) if fault else started.existing == before
        if started.existing:
            self.model.look(grant.id, self.mono_ms, self.wall_ms)
        assert started.session.state == self.model.runs[grant.id].state
        return None

    @precondition(lambda self: self.model.runs)
    @rule(number=_NUMBERS, allowed=st.booleans(), key=st.sampled_from(["", "", "a", "b"]), fault=_FAULTS)
    def evaluate(self, number: int, allowed: bool, key: str, fault: str) -> None:
        name, _ = self.pick(number)
        call = ALLOWED if allowed else FORBIDDEN
        if (name, key) in self.answers:
            return self.repeat(name, key, call)
        run = self.model.runs[name]
        before = run.state, run.left
        code = self.model.answer(name, self.wall_ms, self.mono_ms, allowed=allowed)
        answer = self.do(Evaluate(name, call, key), fault if key else "")
        claims = answer.receipt.claims
        assert answer.permits == (not code)
        assert (claims.internal_denial_code or "") == code
        # A call that finds its session over may be written down before delegates give back what they hold.
        least = before[1] if before[0] != run.state else run.left
        assert least <= claims.budget_remaining["tool_calls"] <= run.left
        if key:
            self.answers[name, key] = call, answer.receipt.token
        return None

    def repeat(self, name: str, key: str, call: ToolCall) -> None:
        """Ask under a key that was used before."""
        first, token = self.answers[name, key]
        if call != first:
            return self.refused(Evaluate(name, call, key), RequestConflict.code)
        answer = self.service.run(Evaluate(name, call, key))
        assert answer.repeated
        assert answer.receipt.token == token
        return None

    @precondition(lambda self: self.model.runs)
    @rule(
        number=_NUMBERS,
        calls=st.integers(1, 4),
        duration_s=st.sampled_from([1, 20, 100]),
        request=st.sampled_from(["one", "two", "three"]),
        fault=_FAULTS,
    )
    def delegate(self, number: int, calls: int, duration_s: int, request: str, fault: str) -> None:
        name, run = self.pick(number)
        if not run.grant.calls:
            return None  # a delegate needs at least one
        wanted = mission(
            max_tool_calls=min(calls, run.grant.calls), max_duration_s=min(duration_s, run.grant.duration_s)
        )
        case = Delegate(name, wanted, request)
        asked = wanted.max_tool_calls, wanted.max_duration_s
        known = next((it for it in self.model.grants.values() if (it.parent, it.request) == (name, request)), None)
        if known is not None:
            self.model.look(name, self.mono_ms, self.wall_ms)
            return self.delegate_again(case, known, same=asked == (known.calls, known.duration_s))
        if self.depth_of(run.grant) == 8:
            return None
        self.model.look(name, self.mono_ms, self.wall_ms)
        code = self.model.reserve(name, wanted.max_tool_calls, self.wall_ms, self.mono_ms)
        delegated = self.do(case, fault)
        assert delegated.permits == (not code)
        assert (delegated.receipt.claims.internal_denial_code or "") == code
        if delegated.passport is not None:
            now_s = max(delegated.receipt.claims.iat, run.grant.not_before)
            passport = verify_passport(delegated.passport, self.service.keyring(), now=now_s)
            assert passport.mission == wanted
            self.model.grants[passport.jti] = Grant.of(passport, request)
            run.reserved += wanted.max_tool_calls
        assert delegated.receipt.claims.budget_remaining["tool_calls"] == run.left
        return None

    def delegate_again(self, case: Delegate, known: Grant, *, same: bool) -> None:
        """Make a request again that was granted."""
        if not same:
            return self.refused(case, RequestConflict.code)
        delegated = self.service.run(case)
        assert delegated.repeated
        assert delegated.passport == known.token
        return None

    def depth_of(self, grant: Grant) -> int:
        """Return how many delegations led to a grant."""
        return 0 if grant.parent is None else 1 + self.depth_of(self.model.grants[grant.parent])

    @rule(number=_NUMBERS, fault=_FAULTS)
    def revoke_passport(self, number: int, fault: str) -> None:
        names = list(self.model.grants)
        name = names[-1 - number % len(names)]
        self.model.revoke_passport(name)
        self.do(RevokePassport(name), fault)

    @precondition(lambda self: self.model.runs)
    @rule(number=_NUMBERS, lineage=st.booleans(), fault=_FAULTS)
    def revoke_session(self, number: int, lineage: bool, fault: str) -> None:
        name, _ = self.pick(number)
        first = self.model.first_of(name) if lineage else name
        self.model.look(first, self.mono_ms, self.wall_ms)
        self.model.close(first, "revoked", "session_revoked")
        self.model.revoked.add(first)
        self.do(RevokeSession(name, lineage=lineage), fault)

    @rule(fault=_FAULTS)
    def turn_kill_switch(self, fault: str) -> None:
        self.model.kill_switch = not self.model.kill_switch
        self.do(KillSwitch(on=self.model.kill_switch), fault)
        if self.model.kill_switch:
            for name in self.model.runs:
                self.model.close(name, "revoked", "kill_switch")

    @precondition(lambda self: self.model.runs)
    @rule(number=_NUMBERS, fault=_FAULTS)
    def end(self, number: int, fault: str) -> None:
        name, run = self.pick(number)
        self.model.look(name, self.mono_ms, self.wall_ms)
        self.model.close(name, "ended", "session_ended")
        assert self.do(EndSession(name), fault).state == run.state

    @rule(seconds=st.sampled_from([0.5, 1, 20, 60, 100]))
    def let_time_pass(self, seconds: float) -> None:
        self.service.clock.pass_s(seconds)

    @rule(seconds=st.sampled_from([-_HOUR, _DAY, -2 * _DAY]))
    def set_the_wall_clock(self, seconds: int) -> None:
        self.service.clock.jump_s(seconds)

    @rule()
    def crash(self) -> None:
        self.service.restart()

    @rule()
    def rotate(self) -> None:
        self.service.rotate()

    @precondition(lambda self: self.model.runs)
    @rule(number=_NUMBERS, end=st.booleans(), fault=_FAULTS)
    def attest(self, number: int, end: bool, fault: str) -> None:
        name, run = self.pick(number)
        self.model.look(name, self.mono_ms, self.wall_ms)
        if end:
            self.model.close(name, "ended", "session_ended")
        attested = self.do(Attest(name, end=end), fault)
        keyring = self.service.keyring()
        claims = verify_session(attested.attestation.token, self.service.tokens(name), keyring)
        assert (claims.state, claims.budget_used["tool_calls"]) == (run.state, run.used)

    @invariant()
    def everything_kept_agrees_with_the_tokens(self) -> None:
        self.service.check()

    @invariant()
    def everything_kept_agrees_with_the_model(self) -> None:
        kept = {session.id: session for session in self.service.sessions()}
        assert kept.keys() == self.model.runs.keys()
        for name, run in self.model.runs.items():
            self.found_expired(name, run, kept[name].state)
            session = kept[name]
            assert (session.state, session.cause) == (run.state, run.cause)
            assert (session.limit, session.used, session.reserved) == (run.grant.calls, run.used, run.reserved)

    def found_expired(self, name: str, run: Run, state: str) -> None:
        """Take over that a session was found to have expired, at whatever touch, if its time is over indeed."""
        if run.state == "active" and state == "expired":
            self.model.look(name, self.mono_ms, self.wall_ms)

    @invariant()
    def no_lineage_makes_more_calls_than_its_first_passport_allows(self) -> None:
        for name, run in self.model.runs.items():
            assert self.model.used_below(name) <= run.grant.calls

    def teardown(self) -> None:
        """Verify everything once more from the beginning."""
        try:
            self.service.check_afresh()
        finally:
            self.service.close()


class PairMachine(Machine):
    """The same with two processes over one shelf: whatever one of them did, the other one knows."""

    def __init__(self) -> None:
        super().__init__()
        self.other = Service(self.service.place, clock=self.service.clock, name="other")

    @rule()
    def go_on_in_the_other_process(self) -> None:
        self.service, self.other = self.other, self.service

    def teardown(self) -> None:
        """Let both verify everything once more."""
        self.other.check_afresh()
        self.other.close(with_place=False)
        super().teardown()


class SqliteMachine(Machine):
    """The same over the embedded ledger, in a home of its own."""

    def place(self) -> Place:
        """Return a home that is removed afterwards."""
        self._path = Path(tempfile.mkdtemp(prefix="remit-machine-"))
        return SqlitePlace(self._path)

    def teardown(self) -> None:
        """Verify everything once more, and remove the home."""
        try:
            super().teardown()
        finally:
            shutil.rmtree(self._path)


TestInMemory = Machine.TestCase
TestInMemory.settings = settings(max_examples=2000 if _THOROUGH else 15, stateful_step_count=50 if _THOROUGH else 40)
TestInTwoProcesses = PairMachine.TestCase
TestInTwoProcesses.settings = settings(TestInMemory.settings, max_examples=2000 if _THOROUGH else 10)
TestOnDisk = SqliteMachine.TestCase
TestOnDisk.settings = settings(max_examples=200 if _THOROUGH else 3, stateful_step_count=50 if _THOROUGH else 25)
