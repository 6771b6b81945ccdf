"""Equal requests of the same moment: who leads, who waits, and what happens when the leader is gone."""

from __future__ import annotations

import asyncio

import pytest

from rheostat.cache.flights import Flights
from rheostat.testing.virtual import VirtualLoop, run_virtual

KEY = b"k"


async def _serve(flights: Flights[str], calls: list[float], seconds: float = 1.0, patience: float = 10.0) -> str | None:
    came = await flights.join(KEY, patience)
    if came is not None:
        return came
    if not flights.lead(KEY):
        return None
    said = None
    try:
        calls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(seconds)
        said = f"call {len(calls)}"
        return said
    finally:
        flights.landed(KEY, said)


def test_those_that_wait_get_the_leaders_answer_from_one_call() -> None:
    async def run() -> None:
        flights: Flights[str] = Flights()
        calls: list[float] = []
        assert set(await asyncio.gather(*(_serve(flights, calls) for _ in range(200)))) == {"call 1"}
        assert (len(calls), len(flights)) == (1, 0)
        assert await _serve(flights, calls) == "call 2"  # later, not of the same moment

    run_virtual(run(), VirtualLoop())


def test_a_leader_that_is_cancelled_hands_over_to_the_next_and_fails_nobody() -> None:
    async def run() -> None:
        flights: Flights[str] = Flights()
        calls: list[float] = []
        leader = asyncio.ensure_future(_serve(flights, calls))
        others = [asyncio.ensure_future(_serve(flights, calls)) for _ in range(199)]
        await asyncio.sleep(0.2)
        leader.cancel()
        assert set(await asyncio.gather(*others)) == {"call 2"}
        assert (calls[1] - calls[0], len(calls), len(flights)) == (pytest.approx(0.2), 2, 0)

    run_virtual(run(), VirtualLoop())


def test_who_waits_and_is_cancelled_takes_nobody_along() -> None:
    async def run() -> None:
        flights: Flights[str] = Flights()
        calls: list[float] = []
        tasks = [asyncio.ensure_future(_serve(flights, calls)) for _ in range(3)]
        await asyncio.sleep(0.1)
        tasks[1].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert (done[0], done[2], len(calls)) == ("call 1", "call 1", 1)
        assert isinstance(done[1], asyncio.CancelledError)

    run_virtual(run(), VirtualLoop())


@pytest.mark.parametrize("patience", [0.0, 0.3])
def test_nobody_waits_longer_than_his_own_time(patience: float) -> None:
    async def run() -> None:
        flights: Flights[str] = Flights()
        calls: list[float] = []
        leader = asyncio.ensure_future(_serve(flights, calls, seconds=5.0))
        await asyncio.sleep(0.0)
        began = asyncio.get_running_loop().time()
        assert await _serve(flights, calls, patience=patience) is None
        assert asyncio.get_running_loop().time() - began == pytest.approx(patience)
        assert await leader == "call 1"

    run_virtual(run(), VirtualLoop())
