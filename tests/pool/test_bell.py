"""Time limits of many calls by one timer."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.pool.bell import Bell
from rheostat.testing import VirtualLoop, run_virtual


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.001, 5.0), st.floats(0.0, 5.0)), max_size=12))
def test_each_ends_at_its_own_limit_or_when_it_is_done(plans):
    """Whatever begins when, takes how long and may take how long."""
    bell = Bell()

    async def one(begins, limit, takes):
        loop = asyncio.get_running_loop()
        await asyncio.sleep(begins)
        began = loop.time()
        try:
            with bell.within(limit, asyncio.get_running_loop()):
                await asyncio.sleep(takes)
            ended = "done"
        except TimeoutError:
            ended = "late"
        return ended, loop.time() - began

    async def everything():
        return await asyncio.gather(*[one(*plan) for plan in plans])

    for (_, limit, takes), (ended, took) in zip(plans, run_virtual(everything(), VirtualLoop()), strict=True):
        assert took == pytest.approx(min(limit, takes), abs=1e-6)
        if abs(limit - takes) > 1e-6:
            assert ended == ("done" if takes < limit else "late")


def test_whoever_is_cancelled_from_outside_is_not_late():
    bell = Bell()

    async def everything():
        async def work():
            with bell.within(5.0, asyncio.get_running_loop()):
                await asyncio.sleep(10.0)

        task = asyncio.ensure_future(work())
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(everything(), VirtualLoop())


def test_cancelled_from_outside_in_the_moment_it_rings_stays_cancelled():
    bell = Bell()

    async def everything():
        async def work():
            with bell.within(1.0, asyncio.get_running_loop()):
                await asyncio.sleep(10.0)

        task = asyncio.ensure_future(work())
        asyncio.get_running_loop().call_later(1.0, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1

    run_virtual(everything(), VirtualLoop())


def test_a_limit_without_end_and_another_loop():
    bell = Bell()

    async def left_behind():
        with bell.within(float("inf"), asyncio.get_running_loop()), bell.within(3.0, asyncio.get_running_loop()):
            await asyncio.sleep(1.0)

    async def late():
        with pytest.raises(TimeoutError), bell.within(2.0, asyncio.get_running_loop()):
            await asyncio.sleep(5.0)

    for _ in range(2):
        run_virtual(left_behind(), VirtualLoop())
        run_virtual(late(), VirtualLoop())
