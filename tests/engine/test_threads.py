"""Models that compute in threads: what nobody waits for any more is not begun, and every place comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rheostat.clock import SystemClock
from rheostat.engine.execute import Executor
from rheostat.pool import Model, ModelSettings, Reply, Row
from rheostat.types import Outcome, Prediction, Request


class Slow:
    labels = None

    def __init__(self) -> None:
        self.begun = 0

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        self.begun += 1
        time.sleep(0.2)
        return [Prediction("x", 1.0) for _ in rows]

    def close(self) -> None:
        """Nothing to give back."""


def request(name: str, left_s: float) -> Request:
    now = time.monotonic()
    return Request(id=name, data="x", received=now, deadline=now + left_s)


def test_work_that_nobody_waits_for_is_not_begun() -> None:
    backend = Slow()
    model = Model("m", ModelSettings(run="thread"), backend)
    model.limit = 20

    async def go() -> list[Outcome]:
        executor = Executor(SystemClock())
        asks = [executor.run(model, request(str(number), 0.1), 1, 0.1) for number in range(20)]
        outcomes = list(await asyncio.gather(*asks))
        until = time.monotonic() + 5.0
        while model.in_flight and time.monotonic() < until:
            await asyncio.sleep(0.02)
        return outcomes

    outcomes = asyncio.run(go())
    assert {outcome.failure.kind for outcome in outcomes if outcome.failure is not None} == {"timeout"}
    assert backend.begun < 20
    assert model.in_flight == 0


def test_threads_that_are_gone_keep_no_place() -> None:
    model = Model("m", ModelSettings(run="thread"), Slow())
    model.threads.shutdown()
    outcome = asyncio.run(Executor(SystemClock()).run(model, request("r", 1.0), 1, 1.0))
    assert outcome.failure is not None
    assert outcome.failure.kind == "crashed"
    assert model.in_flight == 0
