"""The end of a large lineage: refused at once, closed a bounded number of sessions at a time, resumed after a crash."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.governor.closing import CloseOpenDelegates
from remit.governor.context import UseCase
from remit.governor.evaluate import Evaluate
from remit.governor.lifecycle import MAX_CLOSED
from remit.governor.revoke import KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession, GetSession, StartSession
from tests.governor.places import MemoryPlace, Place, SqlitePlace
from tests.governor.stepping import Aside, steps_of
from tests.governor.world import ALLOWED, Service

pytestmark = pytest.mark.slow

# Each session that is closed gives back to its parent, which writes the rows of both; a lineage is at most 8 deep.
MOST_SESSIONS = 2 * MAX_CLOSED + 8
MOST_RECEIPTS = MAX_CLOSED + 8


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return MemoryPlace() if request.param == "memory" else SqlitePlace(tmp_path)


def _lineage(service: Service, children: int, grandchildren: int) -> tuple[str, list[str]]:
    """Start a session with delegates and theirs, some of which are never started; return it with those started."""
    first = service.start(max_tool_calls=100_000).session.id
    started = []
    for number in range(children):
        child = service.start_delegate(first, f"request-{number}", max_tool_calls=1000)
        service.call(child)
        started.append(child)
        for other in range(grandchildren):
            request = f"request-{other}"
            if other % 10:
                service.delegate(child, request, max_tool_calls=2)
            else:
                started.append(service.start_delegate(child, request, max_tool_calls=2))
                service.call(started[-1])
    return first, started


def _steps(service: Service, case: UseCase[Any]) -> Iterator[None]:
    """Run a use case step by step, as a governor does; what happens between two steps comes in between."""
    steps = steps_of(case, service.governor.context)
    answer: Any = None
    while True:
        try:
            asked = steps.send(answer)
        except StopIteration:
            return
        if isinstance(asked, Aside):
            answer = asked.compute()
        else:
            answer = service.ledger.run(asked.work, alone=asked.alone, prepare=asked.prepare)
        yield


ENDINGS: dict[str, Callable[[str], UseCase[Any]]] = {
    "ended": EndSession,
    "its passport revoked": RevokePassport,
    "revoked": RevokeSession,
    "its lineage revoked": lambda name: RevokeSession(name, lineage=True),
    "killed": lambda _name: KillSwitch(on=True),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_other_sessions_go_on_while_a_large_lineage_is_closed_and_no_transaction_is_large(how: str) -> None:
    with Service() as service:
        first, started = _lineage(service, 4, 60)
        other = service.start(max_tool_calls=1000).session.id
        service.weather.written.clear()
        refused: set[str] = set()
        turns = 0
        for _ in _steps(service, ENDINGS[how](first)):
            turns += 1
            refused.add(str(service.call(started[-turns]).receipt.claims.internal_denial_code))
            assert service.call(other).permits == (how != "killed")
        assert turns > 4
        assert "None" not in refused
        assert all(sessions <= MOST_SESSIONS for sessions, _ in service.weather.written)
        assert all(receipts <= MOST_RECEIPTS for _, receipts in service.weather.written)
        states = {service.session(name).state for name in (first, *started)}
        assert states == ({"ended"} if how == "ended" else {"revoked"})
        ended = service.session(first)
        assert (ended.used, ended.reserved) == (len(started), 0)


def test_a_lineage_of_two_thousand_is_closed_by_bounded_transactions_and_its_budget_is_exact() -> None:
    with Service() as service:
        first, started = _lineage(service, 20, 99)
        service.weather.written.clear()
        assert service.run(EndSession(first)).state == "ended"
        assert sum(receipts for _, receipts in service.weather.written) == 20 * 100
        assert all(receipts <= MOST_RECEIPTS for _, receipts in service.weather.written)
        assert len(service.weather.written) >= 2000 / MAX_CLOSED
        ended = service.session(first)
        assert (ended.used, ended.reserved) == (len(started), 0)
        assert {session.state for session in service.sessions()} == {"ended"}


@pytest.mark.parametrize("how", ENDINGS)
def test_from_the_first_commit_on_no_call_of_the_lineage_is_permitted(how: str) -> None:
    with Service() as service:
        first, started = _lineage(service, 3, 40)
        steps = _steps(service, ENDINGS[how](first))
        next(steps)
        for name in (first, *started):
            assert not service.call(name).permits
            assert not service.delegate(name, "request-late", max_tool_calls=1).permits


RESUMED: dict[str, Callable[[str], UseCase[Any]]] = {
    "a start of the service": lambda _name: CloseOpenDelegates(),
    "a look": GetSession,
    "the same again": EndSession,
}


@pytest.mark.parametrize("after", [1, 2, 3])
@pytest.mark.parametrize("by", RESUMED)
def test_a_crash_in_between_is_resumed_and_budgets_stay_exact(place: Place, by: str, after: int) -> None:
    with Service(place) as service:
        above = service.start(max_tool_calls=500_000).session.id
        first = service.start_delegate(above, "request-first", max_tool_calls=100_000)
        started = [service.start_delegate(first, f"request-{number}", max_tool_calls=100) for number in range(3)]
        for name in started:
            for number in range(30):
                service.delegate(name, f"request-{number}", max_tool_calls=2)
            service.call(name)
        steps = _steps(service, EndSession(first))
        for _ in range(after):
            next(steps)
        service.restart()
        service.check()
        assert not any(service.call(name).permits for name in (first, *started))
        service.run(RESUMED[by](first))
        assert {service.session(name).state for name in (first, *started)} == {"ended"}
        closed, parent = service.session(first), service.session(above)
        assert (closed.used, closed.reserved) == (3, 0)
        assert (parent.used, parent.reserved) == (3, 0)
        assert service.reader.unsettled_sessions() == []


def test_a_kill_switch_that_was_interrupted_is_resumed_by_the_next_start() -> None:
    with Service() as service:
        first, started = _lineage(service, 3, 40)
        steps = _steps(service, KillSwitch(on=True))
        next(steps)
        next(steps)
        service.restart()
        service.run(CloseOpenDelegates())
        assert {service.session(name).cause for name in (first, *started)} == {"kill_switch"}
        assert service.session(first).reserved == 0


def test_calls_that_a_finished_delegate_holds_come_back_before_a_call_is_denied_for_them() -> None:
    with Service() as service:
        parent = service.start(max_tool_calls=200).session.id
        child = service.start_delegate(parent, max_tool_calls=200, max_duration_s=60)
        for number in range(90):
            service.delegate(child, f"request-{number}", max_tool_calls=2, max_duration_s=60)
        assert not service.call(parent).permits
        service.clock.pass_s(60)
        service.weather.written.clear()
        assert service.call(parent).permits
        assert all(receipts <= MOST_RECEIPTS for _, receipts in service.weather.written)
        session = service.session(parent)
        assert (session.used, session.reserved) == (1, 0)


def test_calls_that_a_finished_delegate_holds_pay_for_a_new_delegate() -> None:
    with Service() as service:
        parent = service.start(max_tool_calls=200).session.id
        child = service.start_delegate(parent, max_tool_calls=200, max_duration_s=60)
        for number in range(90):
            service.delegate(child, f"request-{number}", max_tool_calls=2, max_duration_s=60)
        service.clock.pass_s(60)
        assert service.delegate(parent, "request-2", max_tool_calls=200).permits
        session = service.session(parent)
        assert (session.used, session.reserved) == (0, 200)


def test_a_call_in_a_session_whose_time_is_over_closes_some_of_its_delegates_and_no_more() -> None:
    with Service() as service:
        name = service.start(max_tool_calls=1000).session.id
        for number in range(90):
            service.delegate(name, f"request-{number}", max_tool_calls=2)
        service.clock.pass_s(900)
        service.run(Evaluate(name, ALLOWED))
        assert service.session(name).reserved == 2 * (90 - MAX_CLOSED)
        service.run(Evaluate(name, ALLOWED))
        assert service.session(name).reserved == 0


def test_a_delegate_cannot_start_between_the_end_of_its_parent_and_its_own() -> None:
    with Service() as service:
        first = service.start(max_tool_calls=1000).session.id
        passports = [service.delegate(first, f"request-{it}", max_tool_calls=2).passport for it in range(90)]
        steps = _steps(service, EndSession(first))
        next(steps)
        for passport in (passports[0], passports[-1]):
            with pytest.raises(Exception, match="no longer permits calls"):
                service.run(StartSession(str(passport)))
        list(steps)
        assert len(service.sessions()) == 1
