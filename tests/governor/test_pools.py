"""Threads for what takes long: one session does not take them all."""

import asyncio
import threading

from remit.governor.pools import Pools

PATIENT_S = 60


def test_a_session_has_two_at_a_time_and_leaves_the_rest_to_others() -> None:
    entered, release = list[int](), threading.Event()

    def slow() -> None:
        entered.append(1)
        assert release.wait(PATIENT_S)

    async def everyone() -> int:
        pools = Pools()
        waiting = [asyncio.create_task(pools.run(slow, fair_to="greedy")) for _ in range(6)]
        for _ in range(20):
            assert await pools.run(lambda: "done", fair_to="modest") == "done"
            assert await pools.run(lambda: "read") == "read"
        at_once = len(entered)
        release.set()
        await asyncio.gather(*waiting)
        pools.close()
        return at_once

    assert asyncio.run(everyone()) == 2
    assert len(entered) == 6
