"""Threads for what takes long: one session does not take them all."""

import asyncio
import threading

import pytest

from remit.governor.pools import Pools

PATIENT_S = 60


def test_a_session_has_two_at_a_time_and_leaves_the_rest_to_others() -> None:
    entered, release = list[int](), threading.Event()

    def slow() -> None:
        entered.append(1)
        assert release.wait(PATIENT_S)

    async def everyone() -> int:
        pools = Pools()
        waiting = [asyncio.create_task(pools.run(slow, limit_key="greedy")) for _ in range(6)]
        for _ in range(20):
            assert await pools.run(lambda: "done", limit_key="modest") == "done"
            assert await pools.run(lambda: "read") == "read"
        at_once = len(entered)
        release.set()
        await asyncio.gather(*waiting)
        pools.close()
        return at_once

    assert asyncio.run(everyone()) == 2
    assert len(entered) == 6


def test_what_hangs_though_it_should_be_quick_keeps_no_loop_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.governor.pools.DEADLINE_S", 0.05)
    release = threading.Event()

    async def everyone() -> tuple[str, list[str]]:
        pools = Pools()
        before = await asyncio.gather(*(pools.run_quick(lambda: "done") for _ in range(3)))
        assert before == ["done"] * 3
        with pytest.raises(KeyError):
            await pools.run_quick(lambda: dict[str, str]()["not there"])
        late = await asyncio.gather(
            pools.run_quick(lambda: release.wait(PATIENT_S)), pools.run_quick(lambda: True), return_exceptions=True
        )
        release.set()
        after = await pools.run("done".upper)
        pools.close()
        return after, [str(error) for error in late]

    after, late = asyncio.run(everyone())
    assert after == "DONE"
    assert len(late) == 2
    assert all("a file system did not answer in time" in said for said in late)
