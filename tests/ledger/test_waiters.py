"""How an event loop waits for a thread that works for it."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from remit.ledger import waiters
from remit.ledger.waiters import AsyncWaiter, Item, deliver_answers
from tests.ledger.contract import PATIENT_S

pytestmark = pytest.mark.slow

_T = TypeVar("_T")


def with_waiter(submit: Callable[[Sequence[Item]], None], use: Callable[[AsyncWaiter], Awaitable[_T]]) -> _T:
    async def run() -> _T:
        return await use(AsyncWaiter(asyncio.get_running_loop(), submit, 16))

    return asyncio.run(run())


def send(waiter: AsyncWaiter, value: int, *, alone: bool = False) -> "asyncio.Future[int]":
    return waiter.send(lambda _: value, PATIENT_S, alone=alone, prepare=None)


def answer(items: Sequence[Item]) -> None:
    for item in items:
        item.answer = item.work(None)  # type: ignore[arg-type]  # the works here ask for nothing
    deliver_answers(items)


def answer_on_a_thread(items: Sequence[Item]) -> None:
    threading.Thread(target=answer, args=(items,)).start()


def test_every_item_gets_its_own_answer() -> None:
    async def use(waiter: AsyncWaiter) -> list[int]:
        return await asyncio.gather(*(send(waiter, number) for number in range(100)))

    assert with_waiter(answer_on_a_thread, use) == list(range(100))


def test_a_loop_is_blocked_for_one_bundle_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters, "_BLOCK_S", PATIENT_S)
    bundles: list[int] = []

    def submit(items: Sequence[Item]) -> None:
        bundles.append(len(items))
        answer_on_a_thread(items)

    async def use(waiter: AsyncWaiter) -> None:
        first = send(waiter, 1)
        others = [send(waiter, 1) for _ in range(39)]
        await first
        # Nothing was handed over before the answers of the first bundle were passed on.
        assert bundles == [16]
        await asyncio.gather(*others)

    with_waiter(submit, use)
    assert bundles == [16, 16, 8]


def test_a_loop_goes_on_if_the_thread_does_not_answer() -> None:
    submitted: list[Item] = []

    async def use(waiter: AsyncWaiter) -> list[int]:
        first = [send(waiter, number) for number in range(20)]
        while len(submitted) < len(first):
            await asyncio.sleep(0)
        assert not any(future.done() for future in first)
        last = send(waiter, 20)
        while len(submitted) < 21:
            await asyncio.sleep(0)
        answer_on_a_thread(submitted)
        return await asyncio.gather(*first, last)

    assert with_waiter(submitted.extend, use) == list(range(21))


def test_a_loop_that_is_released_goes_on_before_the_answers_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters, "_BLOCK_S", PATIENT_S)
    resumed = threading.Event()
    outcomes: list[bool] = []

    def work(waiter: AsyncWaiter, items: Sequence[Item]) -> None:
        while not waiter._is_blocked:
            time.sleep(0.001)
        waiter.release()
        outcomes.append(resumed.wait(PATIENT_S))
        answer(items)

    def submit(items: Sequence[Item]) -> None:
        waiter = items[0].waiter
        assert isinstance(waiter, AsyncWaiter)
        threading.Thread(target=work, args=(waiter, items)).start()

    async def use(waiter: AsyncWaiter) -> int:
        future = send(waiter, 7)
        await asyncio.sleep(0)
        resumed.set()
        return await future

    assert with_waiter(submit, use) == 7
    assert outcomes == [True]


def test_a_loop_is_not_blocked_for_work_that_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters, "_BLOCK_S", PATIENT_S)
    resumed = threading.Event()
    outcomes: list[bool] = []

    def submit(items: Sequence[Item]) -> None:
        def work() -> None:
            outcomes.append(resumed.wait(PATIENT_S))
            answer(items)

        threading.Thread(target=work).start()

    async def use(waiter: AsyncWaiter) -> int:
        future = send(waiter, 7, alone=True)
        await asyncio.sleep(0)
        resumed.set()
        return await future

    assert with_waiter(submit, use) == 7
    assert outcomes == [True]
