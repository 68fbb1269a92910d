"""Many callers at once: a budget is what it says, and a chain is one chain."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remit.errors import LedgerUnavailable
from remit.governor.evaluate import Evaluate, Evaluation
from remit.governor.sessions import StartSession
from tests.governor.places import MemoryPlace, Place, SqlitePlace
from tests.governor.world import ALLOWED, Service

CALLERS = 32
BUDGET = 20


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return MemoryPlace() if request.param == "memory" else SqlitePlace(tmp_path)


def _at_once(work: Iterable[Callable[[], Evaluation]]) -> list[Evaluation]:
    """Run everything at the same time, each on a thread of its own."""
    tasks = list(work)
    gate = threading.Barrier(len(tasks))

    def run(task: Callable[[], Evaluation]) -> Evaluation:
        gate.wait()
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(run, tasks))


def _assert_exact(service: Service, name: str, answers: list[Evaluation]) -> None:
    """Expect exactly the budget of permissions, each receipt of its own, and one contiguous chain."""
    assert sum(answer.permits for answer in answers) == BUDGET
    assert {answer.receipt.token for answer in answers} == set(service.tokens(name))
    steps = [f"step:{number:06d}" for number in range(1, len(answers) + 1)]
    assert [claims.step_id for claims in service.claims(name)] == steps
    assert service.session(name).used == BUDGET
    denied = [claims for claims in service.claims(name) if claims.verdict != "compliant"]
    assert {claims.internal_denial_code for claims in denied} == {"tool_calls_exhausted"}


def test_threads_get_exactly_the_budget_of_one_session(place: Place) -> None:
    with Service(place) as service:
        name = service.start(max_tool_calls=BUDGET).session.id
        answers = _at_once([lambda: service.call(name)] * CALLERS)
        _assert_exact(service, name, answers)


def test_tasks_of_an_event_loop_get_exactly_the_budget_of_one_session(place: Place) -> None:
    with Service(place) as service:
        name = service.start(max_tool_calls=BUDGET).session.id

        async def gathered() -> list[Evaluation]:
            return await asyncio.gather(*(service.governor.arun(Evaluate(name, ALLOWED)) for _ in range(CALLERS)))

        _assert_exact(service, name, asyncio.run(gathered()))


def test_two_processes_get_exactly_the_budget_of_one_session(place: Place) -> None:
    with Service(place, name="one") as one:
        two = Service(place, clock=one.clock, name="two")
        name = one.start(max_tool_calls=BUDGET).session.id
        answers = _at_once([lambda: one.call(name), lambda: two.call(name)] * (CALLERS // 2))
        _assert_exact(one, name, answers)
        two.check()
        two.close(with_place=False)


def test_one_key_used_by_all_at_once_counts_once(place: Place) -> None:
    with Service(place) as service:
        name = service.start(max_tool_calls=BUDGET).session.id
        answers = _at_once([lambda: service.call(name, key="key-1")] * CALLERS)
        assert len({answer.receipt.token for answer in answers}) == 1
        assert sum(not answer.repeated for answer in answers) == 1
        assert service.session(name).used == 1


def test_one_passport_presented_by_all_at_once_is_one_session(place: Place) -> None:
    with Service(place) as service:
        passport = service.issue()

        async def gathered() -> list[bool]:
            started = await asyncio.gather(
                *(service.governor.arun(StartSession(passport.token)) for _ in range(CALLERS))
            )
            return [each.existing for each in started]

        assert asyncio.run(gathered()).count(False) == 1
        assert len(service.sessions()) == 1


def test_a_failing_commit_gives_nobody_of_its_group_an_answer(place: Place) -> None:
    with Service(place) as service:
        name = service.start(max_tool_calls=BUDGET).session.id
        service.call(name)
        service.weather.lost = True

        async def gathered() -> list[Evaluation | BaseException]:
            calls = (service.governor.arun(Evaluate(name, ALLOWED)) for _ in range(4))
            return await asyncio.gather(*calls, return_exceptions=True)

        outcomes = asyncio.run(gathered())
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert failed
        assert {type(outcome) for outcome in failed} == {LedgerUnavailable}
        assert service.session(name).used == 1 + len(outcomes) - len(failed)


def test_sessions_beside_each_other_do_not_disturb_each_other(place: Place) -> None:
    with Service(place) as service:
        names = [service.start(max_tool_calls=BUDGET).session.id for _ in range(4)]
        answers = _at_once([lambda name=name: service.call(name) for name in names for _ in range(8)])  # type: ignore[misc]
        assert all(answer.permits for answer in answers)
        assert [service.session(name).used for name in names] == [8] * 4


def test_sessions_that_start_at_once_have_numbers_of_their_own(place: Place) -> None:
    with Service(place) as service:
        passports = [service.issue() for _ in range(CALLERS)]

        async def gathered() -> None:
            await asyncio.gather(*(service.governor.arun(StartSession(passport.token)) for passport in passports))

        asyncio.run(gathered())
        numbers = [session.number for session in service.sessions()]
        assert numbers == list(range(1, CALLERS + 1))
