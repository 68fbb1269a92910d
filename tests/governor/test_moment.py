"""One moment for each request: verified, judged, recorded and committed as of the same reading of the clock."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.claims.mission import Mission
from remit.claims.passport import MAX_SKEW_S
from remit.errors import RemitError
from remit.governor.assistants import Actor, BeginAssistantSession, EndAssistantSession, EvaluateAssistantCall
from remit.governor.attest import Attest
from remit.governor.clock import Moment
from remit.governor.closing import CloseOpenDelegates
from remit.governor.conclude import RecordAssistantResult
from remit.governor.context import UseCase
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Evaluate
from remit.governor.governor import Governor
from remit.governor.observe import ObserveEvent, PreviewDecision, ReportEvent
from remit.governor.results import RecordResult
from remit.governor.revoke import KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession, GetSession, StartSession
from remit.governor.sources import Reporter, StartSourceSession
from remit.governor.statements import RecordStatement
from remit.ledger.check import check_ledger
from remit.ledger.home import open_home
from tests.governor.places import SqlitePlace
from tests.governor.results import DIGEST
from tests.governor.world import ALLOWED, MISSION, Service, SetClock, mission

REPORTER = Reporter("hook:one", '{"title":"a test","type":"cli"}', MISSION)
OBSERVER = Reporter(
    "test:two",
    '{"title":"a test","type":"browser"}',
    Mission(agent_id="observer", mission="observe", allowed_tools=("browser_observe",), resource_scope=("**",)),
)
OBSERVED = ObserveEvent("", "browser", {"kind": "page_view", "target": "https://example.com/"})


class JumpingClock(SetClock):
    """A clock that goes on by some milliseconds whenever it is read, and counts how often it was."""

    def __init__(self, jumps_ms: tuple[int, ...] = (1500,)) -> None:
        super().__init__()
        self._jumps_ms = jumps_ms
        self.readings = 0

    def now(self) -> Moment:
        """Return this moment, and go on."""
        moment = super().now()
        self.pass_s(self._jumps_ms[self.readings % len(self._jumps_ms)] / 1000)
        self.readings += 1
        return moment


CASES: dict[str, Callable[[Service, str, str], UseCase[Any]]] = {
    "start": lambda service, _name, _token: StartSession(service.issue().token),
    "start again": lambda _service, _name, token: StartSession(token),
    "look": lambda _service, name, _token: GetSession(name),
    "evaluate": lambda _service, name, _token: Evaluate(name, ALLOWED),
    "evaluate what takes long": lambda _service, name, _token: Evaluate(name, _bash()),
    "result": lambda service, name, _token: RecordResult(name, service.call(name).receipt.claims.receipt_id, DIGEST),
    "delegate": lambda _service, name, _token: Delegate(name, mission(max_tool_calls=2), "request-1"),
    "end": lambda _service, name, _token: EndSession(name),
    "attest": lambda _service, name, _token: Attest(name, end=True),
    "revoke a passport": lambda _service, name, _token: RevokePassport(name),
    "revoke a session": lambda _service, name, _token: RevokeSession(name),
    "kill switch": lambda _service, _name, _token: KillSwitch(on=True),
    "finish closing": lambda _service, _name, _token: CloseOpenDelegates(),
    "start for": lambda _service, _name, _token: StartSourceSession(REPORTER),
    "begin": lambda _service, _name, _token: BeginAssistantSession(REPORTER),
    "govern": lambda _service, _name, _token: EvaluateAssistantCall(Actor(REPORTER), ALLOWED, "call-1", "test call-1"),
    "govern a subagent": lambda _service, _name, _token: EvaluateAssistantCall(
        Actor(REPORTER, "helper"), ALLOWED, "call-1", "test call-1"
    ),
    "conclude": lambda _service, _name, _token: RecordAssistantResult(
        Actor(REPORTER), ALLOWED, "call-1", "test call-1", DIGEST
    ),
    "finish": lambda _service, _name, _token: EndAssistantSession(Actor(REPORTER)),
    "report": lambda _service, _name, _token: ReportEvent(OBSERVER, OBSERVED),
    "consider": lambda _service, _name, _token: PreviewDecision(ReportEvent(OBSERVER, OBSERVED)),
    "declare": lambda _service, _name, _token: RecordStatement("remit.test", "a target", {}, "", "all is well"),
}


def _bash() -> Any:
    return ALLOWED._replace(tool_name="Bash", arguments={"command": "ls"})


@pytest.mark.parametrize("case", CASES)
def test_the_clock_is_read_once_for_each_request(case: str) -> None:
    clock = JumpingClock()
    with Service(clock=clock) as service:
        passport = service.issue()
        name = service.run(StartSession(passport.token)).session.id
        asked = CASES[case](service, name, passport.token)
        before = clock.readings
        service.run(asked)
        assert clock.readings == before + 1


def test_work_that_runs_again_because_another_process_was_faster_keeps_its_moment(
    pair: tuple[Service, Service],
) -> None:
    one, two = pair
    name = one.start().session.id
    one.call(name)
    at = one.clock.wall_ms

    def meanwhile() -> None:
        two.call(name)
        one.clock.pass_s(7)

    one.weather.meanwhile = meanwhile
    one.call(name)
    assert [claims.iat for claims in one.claims(name)] == [at // 1000] * 3


def test_requests_that_are_committed_out_of_order_neither_count_time_twice_nor_turn_back_timestamps(
    service: Service,
) -> None:
    name = service.start().session.id
    early = copy.copy(service.governor.context)
    early.clock = copy.copy(service.clock)
    service.clock.pass_s(100.9)
    later = service.call(name)
    Governor(service.ledger, early).run(Evaluate(name, ALLOWED))
    service.clock.pass_s(100)
    last = service.call(name)
    stamps = [claims.timestamp for claims in service.claims(name)]
    assert stamps == sorted(stamps)
    assert stamps[1] == later.receipt.claims.timestamp
    assert last.receipt.claims.budget_remaining["duration_s"] == 900 - 200


_JUMPS = st.lists(st.sampled_from([0, 1, 499, 1000, 2500, 60_000]), min_size=1, max_size=6).map(tuple)


@settings(max_examples=25, deadline=None)
@given(jumps=_JUMPS, short_of_ms=st.integers(-2500, 2500), skew_s=st.sampled_from([0, MAX_SKEW_S]))
def test_a_ledger_is_whole_whenever_a_session_is_started_around_the_end_of_its_passport(
    tmp_path_factory: pytest.TempPathFactory, jumps: tuple[int, ...], short_of_ms: int, skew_s: int
) -> None:
    folder = tmp_path_factory.mktemp("moment")
    clock = SetClock()
    with Service(SqlitePlace(folder), clock=clock) as service:
        first = service.start(max_duration_s=5000).session.id
        delegated = service.delegate(first, max_duration_s=100)
        lone = service.issue(mission(max_duration_s=100))
        clock.pass_s(100 + skew_s - short_of_ms / 1000)
        jumping = JumpingClock(jumps)
        jumping.wall_ms, jumping.mono_ms = clock.wall_ms, clock.mono_ms
        service.governor.context.clock = jumping
        for token in (str(delegated.passport), lone.token):
            try:
                name = service.run(StartSession(token)).session.id
                service.run(Evaluate(name, ALLOWED))
                service.run(Attest(name))
            except RemitError as error:
                assert error.code in ("passport_expired", "passport_revoked")  # noqa: PT017
        assert _findings(folder) == []


def _findings(folder: Path) -> list[Any]:
    with open_home(folder.resolve() / "home") as home:
        return list(check_ledger(home).findings)


@pytest.mark.parametrize("late_s", [0, MAX_SKEW_S, MAX_SKEW_S + 1])
def test_a_session_that_an_earlier_release_has_started_after_the_end_of_its_passport_does_not_break_the_ledger(
    tmp_path: Path, late_s: int
) -> None:
    with Service(SqlitePlace(tmp_path)) as service:
        name = service.start(max_duration_s=100).session.id
        session = service.session(name)
        started_ms = session.expires_ms + late_s * 1000
        _write(tmp_path, f"UPDATE sessions SET started_ms = {started_ms}, lifetime_ms = 0")
        assert _findings(tmp_path) == []
        service.restart()
        assert service.call(name).receipt.claims.internal_denial_code == "duration_exceeded"


def test_a_session_that_was_given_time_beyond_the_end_of_its_passport_is_found(tmp_path: Path) -> None:
    with Service(SqlitePlace(tmp_path)) as service:
        service.start(max_duration_s=100)
        _write(tmp_path, "UPDATE sessions SET started_ms = started_ms + 50000")
        assert [finding.fault for finding in _findings(tmp_path)] == ["passport_mismatch"]
        _write(tmp_path, "UPDATE sessions SET started_ms = started_ms - 50000")


def _write(folder: Path, sql: str) -> None:
    connection = apsw.Connection(str(folder.resolve() / "home" / "ledger.db"))
    connection.execute(sql)
    connection.close()
