"""Handing work over: from threads and from event loops, and giving up in time without harm."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remit.errors import LedgerUnavailable
from remit.ledger.commit import GroupCommit
from remit.ledger.store import Transaction
from tests.ledger.contract import PATIENT_S, MemoryPlace, append_to, checked, new_session, put

pytestmark = pytest.mark.slow

FIRST = new_session("first")
# Long enough for a busy machine to begin what was asked, short enough to wait for.
HASTY_S = 0.5


class Busy:
    """Work that keeps the writer busy until it is released."""

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()

    def __call__(self, _: Transaction) -> str:
        self.begun.set()
        assert self.released.wait(PATIENT_S)
        return "done"

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, PATIENT_S)


@pytest.fixture
def place(tmp_path: Path) -> MemoryPlace:
    return MemoryPlace(tmp_path)


@pytest.fixture
def ledger(place: MemoryPlace) -> Iterator[GroupCommit]:
    opened = place.open()
    opened.run(put(FIRST))
    yield opened
    opened.close()


@pytest.fixture
def hasty(place: MemoryPlace, ledger: GroupCommit) -> Iterator[GroupCommit]:
    opened = place.open(deadline_s=HASTY_S)
    yield opened
    opened.close()


async def append_many(ledger: GroupCommit, count: int) -> list[str]:
    answers = await asyncio.gather(*(ledger.arun(append_to(FIRST.id)) for _ in range(count)))
    return [answer.receipt.token for answer in answers]


def test_an_event_loop_gets_its_answers_in_order(ledger: GroupCommit) -> None:
    assert asyncio.run(append_many(ledger, 100)) == checked(ledger.read(), FIRST.id)


def test_event_loops_can_follow_each_other(ledger: GroupCommit) -> None:
    tokens = [token for _ in range(5) for token in asyncio.run(append_many(ledger, 3))]
    assert tokens == checked(ledger.read(), FIRST.id)


def test_event_loops_of_several_threads_share_a_ledger(ledger: GroupCommit) -> None:
    with ThreadPoolExecutor(3) as threads:
        looped = [threads.submit(lambda: asyncio.run(append_many(ledger, 30))) for _ in range(2)]
        plain = threads.submit(lambda: [ledger.run(append_to(FIRST.id)).receipt.token for _ in range(30)])
        tokens = [token for outcome in (*looped, plain) for token in outcome.result()]
    assert sorted(tokens) == sorted(checked(ledger.read(), FIRST.id))


def test_what_work_raises_comes_out_of_the_loop(ledger: GroupCommit) -> None:
    def refuse(_: Transaction) -> None:
        raise KeyError("refused")

    async def ask() -> None:
        await ledger.arun(refuse)

    with pytest.raises(KeyError):
        asyncio.run(ask())


def test_a_loop_is_not_held_up_while_the_ledger_works(ledger: GroupCommit) -> None:
    async def scene() -> list[str]:
        busy, seen = Busy(), list[str]()
        waiting = asyncio.ensure_future(ledger.arun(busy))
        await busy.has_begun()
        seen.append("free")
        busy.released.set()
        seen.append(await waiting)
        return seen

    assert asyncio.run(scene()) == ["free", "done"]


def test_a_thread_gives_up_in_time_and_what_it_gave_up_is_not_begun(hasty: GroupCommit) -> None:
    ran: list[str] = []
    busy = Busy()
    with pytest.raises(LedgerUnavailable) as caught:
        hasty.run(busy)
    assert caught.value.code == "ledger_unavailable"
    with pytest.raises(LedgerUnavailable):
        hasty.run(lambda _: ran.append("ran"))
    busy.released.set()
    hasty.close()
    assert ran == []


def test_a_loop_gives_up_in_time_and_what_it_gave_up_is_not_begun(hasty: GroupCommit) -> None:
    ran: list[str] = []
    busy = Busy()

    async def scene() -> list[object]:
        first = asyncio.ensure_future(hasty.arun(busy))
        await busy.has_begun()
        late = [hasty.arun(lambda _: ran.append("ran")) for _ in range(20)]
        return list(await asyncio.gather(first, *late, return_exceptions=True))

    assert [type(answer) for answer in asyncio.run(scene())] == [LedgerUnavailable] * 21
    busy.released.set()
    hasty.close()
    assert ran == []


def test_a_loop_that_gave_up_is_served_again(place: MemoryPlace, ledger: GroupCommit) -> None:
    hasty = place.open(deadline_s=HASTY_S)

    async def at_last() -> str:
        while True:
            try:
                return (await hasty.arun(append_to(FIRST.id))).receipt.token
            except LedgerUnavailable:
                continue

    async def scene() -> str:
        busy = Busy()
        with pytest.raises(LedgerUnavailable):
            await hasty.arun(busy)
        busy.released.set()
        return await at_last()

    assert asyncio.run(scene()) in checked(ledger.read(), FIRST.id)
    hasty.close()


def test_a_late_answer_to_one_who_gave_up_harms_nobody(place: MemoryPlace, ledger: GroupCommit) -> None:
    hasty = place.open(deadline_s=HASTY_S)

    async def scene() -> None:
        busy = Busy()
        with pytest.raises(LedgerUnavailable):
            await hasty.arun(busy)
        busy.released.set()
        await asyncio.to_thread(hasty.close)
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(scene())


def test_giving_up_a_task_harms_nobody(ledger: GroupCommit) -> None:
    async def scene() -> list[str]:
        busy = Busy()
        first = asyncio.ensure_future(ledger.arun(busy))
        await busy.has_begun()
        tasks = [asyncio.ensure_future(ledger.arun(append_to(FIRST.id))) for _ in range(6)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        first.cancel()
        busy.released.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(answers.pop(2), asyncio.CancelledError)
        return [answer.receipt.token for answer in answers if not isinstance(answer, BaseException)]

    tokens = asyncio.run(scene())
    assert len(tokens) == 5
    assert set(tokens) <= set(checked(ledger.read(), FIRST.id))


def test_a_task_that_is_given_up_before_it_was_sent_harms_nobody(ledger: GroupCommit) -> None:
    async def scene() -> list[str]:
        task = asyncio.ensure_future(ledger.arun(append_to(FIRST.id)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await append_many(ledger, 2)

    assert asyncio.run(scene()) == checked(ledger.read(), FIRST.id)[-2:]


def test_an_answer_for_a_loop_that_is_gone_harms_nobody(ledger: GroupCommit) -> None:
    busy = Busy()

    async def leave() -> None:
        waiting = asyncio.ensure_future(ledger.arun(busy))
        await busy.has_begun()
        waiting.cancel()

    asyncio.run(leave())
    busy.released.set()
    assert asyncio.run(append_many(ledger, 2)) == checked(ledger.read(), FIRST.id)


def test_a_ledger_that_was_closed_is_unavailable_to_a_loop(ledger: GroupCommit) -> None:
    ledger.close()

    async def scene() -> list[object]:
        return list(
            await asyncio.gather(*(ledger.arun(append_to(FIRST.id)) for _ in range(20)), return_exceptions=True)
        )

    assert [type(answer) for answer in asyncio.run(scene())] == [LedgerUnavailable] * 20


def test_closing_finishes_what_a_loop_has_asked_for(ledger: GroupCommit) -> None:
    async def scene() -> list[str]:
        busy = Busy()
        first = asyncio.ensure_future(ledger.arun(busy))
        await busy.has_begun()
        waiting = asyncio.ensure_future(append_many(ledger, 20))
        for _ in range(5):
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(asyncio.to_thread(ledger.close))
        busy.released.set()
        await asyncio.gather(first, closing)
        return await waiting

    assert asyncio.run(scene()) == checked(ledger.read(), FIRST.id)


def test_a_loop_that_does_not_take_its_answers_holds_nobody_up(ledger: GroupCommit) -> None:
    async def scene() -> str:
        busy = Busy()
        waiting = asyncio.ensure_future(ledger.arun(busy))
        await busy.has_begun()
        with ThreadPoolExecutor(4) as threads:
            others = [threads.submit(ledger.run, append_to(FIRST.id)) for _ in range(4)]
            busy.released.set()
            for other in others:  # this loop stands still until all are answered
                other.result(PATIENT_S)
        return await waiting

    assert asyncio.run(scene()) == "done"
    assert len(checked(ledger.read(), FIRST.id)) == 4


def test_work_that_runs_alone_can_be_asked_for_by_a_loop(ledger: GroupCommit) -> None:
    async def ask() -> None:
        await ledger.arun(append_to(FIRST.id), alone=True)

    asyncio.run(ask())
    assert len(checked(ledger.read(), FIRST.id)) == 1
