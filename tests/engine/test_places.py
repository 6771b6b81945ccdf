"""Places at a model: the order of those who wait, early refusals, and that every place comes back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rheostat.clock import SystemClock
from rheostat.engine.execute import Executor
from rheostat.engine.places import Places, wait_s
from rheostat.pool import Model, ModelSettings, Reply, Row
from rheostat.pool.processors import processors
from rheostat.resilience.breaker import BreakerSettings
from rheostat.testing import Act, VirtualLoop, run_virtual, scripted_model
from rheostat.types import Failure, Outcome, Prediction, Request
from tests.engine.test_engine import Bench, pair


class Door:
    """One model's places under a virtual clock."""

    def __init__(self, latency_s: float = 0.0, **settings: Any) -> None:
        self.loop = VirtualLoop()
        self.places = Places(self.loop)
        self.model = scripted_model("m", **settings)
        self.model.latency_s = latency_s
        self.order: list[str] = []

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        async def whole() -> None:
            await story()

        run_virtual(whole(), self.loop)
        assert self.model.in_flight == 0
        assert len(self.model.waiting) == 0

    async def ask(self, name: str, hold_s: float = 1.0, left_s: float = 60.0, patience_s: float = 0.0, **more: Any) -> Any:
        """Take a place, work for `hold_s` and leave; returns why there was none."""
        now = self.loop.time()
        request = Request(id=name, data="x", received=now, deadline=now + left_s, **more)
        why = await self.places.take(self.model, request, patience_s)
        if why is not None:
            return why
        self.model.began_at = self.loop.time()
        self.order.append(name)
        try:
            await asyncio.sleep(hold_s)
        finally:
            self.places.leave(self.model)
        return None


def start(*asks: Awaitable[Any]) -> list[asyncio.Future[Any]]:
    return [asyncio.ensure_future(ask) for ask in asks]


def test_priority_first_then_tenants_in_turn() -> None:
    door = Door(max_concurrency=1, queue=10)

    async def story() -> None:
        tasks = start(
            door.ask("runs"),
            door.ask("late", priority="low", tenant="a"),
            door.ask("a1", tenant="a"),
            door.ask("a2", tenant="a"),
            door.ask("a3", tenant="a"),
            door.ask("b1", tenant="b"),
            door.ask("urgent", priority="high", tenant="a"),
        )
        assert set(await asyncio.gather(*tasks)) == {None}

    door.run(story)
    assert door.order == ["runs", "urgent", "a1", "b1", "a2", "a3", "late"]


def test_a_full_queue_is_no_shelter_for_low_priority_or_for_one_tenant() -> None:
    door = Door(max_concurrency=1, queue=2)

    async def story() -> None:
        tasks = start(door.ask("runs"), door.ask("a1", tenant="a"), door.ask("a2", tenant="a"))
        await asyncio.sleep(0.1)
        full = await door.ask("a3", tenant="a")
        assert full.message == "1 calls are running and the queue is full"
        tasks += start(door.ask("b1", tenant="b"))
        await asyncio.sleep(0.1)
        assert tasks[2].done()
        assert "went to a request of a higher priority or of a tenant that has fewer" in tasks[2].result().message
        assert (await door.ask("a4", tenant="a", priority="low")).kind == "overloaded"
        tasks += start(door.ask("urgent", priority="high"))
        await asyncio.gather(*tasks)

    door.run(story)
    assert door.order in (["runs", "urgent", "a1"], ["runs", "urgent", "b1"])
    assert door.model.overflowed == 4


def test_who_cannot_be_in_time_is_told_at_once() -> None:
    door = Door(latency_s=1.0, max_concurrency=2, queue=10)

    async def story() -> None:
        tasks = start(door.ask("one"), door.ask("two"))
        await asyncio.sleep(0)
        before = door.loop.time()
        late = await door.ask("late", left_s=1.4)  # half a second for a place, one for an answer
        assert door.loop.time() == before
        assert (late.kind, late.retry_after_s) == ("overloaded", 0.5)
        assert "too late" in late.message
        tasks += start(door.ask("in time", left_s=2.1))
        await asyncio.sleep(0)
        later = await door.ask("behind", left_s=1.9)
        assert later.retry_after_s == 1.0
        assert (await door.ask("impatient", patience_s=0.9)).kind == "overloaded"
        await asyncio.gather(*tasks)

    door.run(story)
    assert door.order == ["one", "two", "in time"]
    assert door.model.overflowed == 3


def test_who_has_too_little_time_left_when_the_turn_comes_is_not_started() -> None:
    door = Door(latency_s=0.5, max_concurrency=1, queue=10)

    async def story() -> None:
        tasks = start(door.ask("slow", hold_s=1.6), door.ask("a", left_s=2.0), door.ask("b", left_s=9.0))
        answers = await asyncio.gather(*tasks)
        assert "too little time was left" in answers[1].message
        assert answers[1].kind == "overloaded"
        assert answers[2] is None

    door.run(story)
    assert door.order == ["slow", "b"]


def test_nobody_waits_longer_than_an_attempt_may_take_or_past_the_deadline() -> None:
    door = Door(max_concurrency=1, queue=10)

    async def story() -> None:
        tasks = start(door.ask("hangs", hold_s=5.0), door.ask("a", patience_s=0.3), door.ask("b", left_s=0.4))
        await asyncio.sleep(0.35)
        assert tasks[1].result().message == "no place came within 0.300 s"
        assert tasks[1].result().kind == "overloaded"
        await asyncio.sleep(0.1)
        assert tasks[2].result().kind == "deadline"
        await tasks[0]

    door.run(story)


def test_calls_that_hang_are_expected_to_go_on_hanging() -> None:
    door = Door(latency_s=0.1, max_concurrency=2, queue=100)

    async def story() -> None:
        tasks = start(door.ask("one", hold_s=30.0), door.ask("two", hold_s=30.0))
        await asyncio.sleep(20.0)
        assert wait_s(door.model, 0, door.loop.time()) == 10.0
        assert (await door.ask("refused", left_s=5.0)).retry_after_s == 10.0
        await asyncio.gather(*tasks)
        assert await door.ask("again", left_s=5.0) is None

    door.run(story)


def test_a_place_that_came_at_the_moment_of_leaving_goes_on() -> None:
    door = Door(max_concurrency=1, queue=10)

    async def story() -> None:
        request = Request(id="holder", data="x", received=0.0)
        assert await door.places.take(door.model, request, 0.0) is None
        door.model.began_at = door.loop.time()
        tasks = start(door.ask("left"), door.ask("next"))
        await asyncio.sleep(0.5)
        door.places.leave(door.model)  # the place is the first one's, who has not heard of it yet
        tasks[0].cancel()
        await asyncio.wait(tasks)
        assert tasks[0].cancelled()
        assert tasks[1].result() is None

    door.run(story)
    assert door.order == ["next"]


def test_a_full_large_model_overflows_to_the_small_one_and_says_so() -> None:
    models = pair([Act(Prediction("small", 0.6), 0.1)], [Act(Prediction("large", 0.9), 1.0)] * 9)
    models["large"] = scripted_model(
        "large", *[Act(Prediction("large", 0.9), 1.0)] * 9, max_concurrency=1, queue=1, lighter="fast", cost=40.0
    )
    bench = Bench("large", models)

    async def together() -> list[Any]:
        return await asyncio.gather(*(bench.one(str(number), {}) for number in range(3)))

    served = run_virtual(together(), bench.loop)
    assert [one.record.label for one in served] == ["large", "large", "small"]
    record = served[2].record
    assert record.level == 3
    assert [(o.model, o.failure.kind) for o in record.outcomes if o.failure] == [("large", "overloaded")]
    assert record.fallback_reason == "large failed: overloaded"
    assert record.steps[-2].reason == "L3: large failed: overloaded, asking fast"
    assert models["large"].overflowed == 1
    bench.assert_clean()


class Busy:
    labels = None

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = self.most = self.calls = 0

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        with self.lock:
            self.running += 1
            self.calls += 1
            self.most = max(self.most, self.running)
        time.sleep(0.02)
        with self.lock:
            self.running -= 1
        return [Prediction("x", 1.0) for _ in rows]

    def close(self) -> None:
        """Nothing to give back."""


def test_a_local_model_has_as_many_places_as_threads_and_a_queue() -> None:
    backend = Busy()
    cap = BreakerSettings(max_concurrent=processors() + 3)
    model = Model("m", ModelSettings(run="thread", breaker=cap), backend)
    assert (model.limit, model.queue) == (processors(), 3)

    async def go() -> list[Outcome]:
        executor, now = Executor(SystemClock()), time.monotonic()
        asks = [
            executor.run(model, Request(id=str(number), data="x", received=now, deadline=now + 30.0), 1, 0.0)
            for number in range(processors() + 5)
        ]
        return list(await asyncio.gather(*asks))

    outcomes = asyncio.run(go())
    assert sum(outcome.ok for outcome in outcomes) == processors() + 3 == backend.calls
    assert [o.failure.kind for o in outcomes if o.failure] == ["overloaded"] * 2
    assert backend.most <= processors()
    assert model.in_flight == 0
    assert model.threads._work_queue.qsize() == 0


def test_without_a_cap_at_the_breaker_the_queue_is_still_bounded() -> None:
    model = Model("m", ModelSettings(run="thread", breaker=BreakerSettings(max_concurrent=0)), Busy())
    assert model.queue == 1000 - processors()
    own = Model("m", ModelSettings(run="thread", queue=7), Busy())
    assert (own.limit, own.queue) == (processors(), 7)
    given = Model("m", ModelSettings(run="thread", max_concurrency=1), Busy())
    assert (given.limit, given.queue) == (1, 0)
    inline = Model("m", ModelSettings(run="inline"), Busy())
    assert inline.limit == 1000


def test_a_failure_says_when_there_will_be_room() -> None:
    model = scripted_model("m", max_concurrency=4, queue=8)
    model.latency_s = 2.0
    assert wait_s(model, 7, 0.0) == 4.0
    assert Failure("overloaded", "x", None, wait_s(model, 7, 0.0)).retry_after_s == 4.0
