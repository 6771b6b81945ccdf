"""A model fails and comes back, seen through the live engine in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from rheostat.engine.engine import Engine, Lane, Plan, Served
from rheostat.engine.journey import Route
from rheostat.errors import ModelError, NoAnswer
from rheostat.policies import parse_policy
from rheostat.pool import Model, ModelSettings, Pool, Reply, Row
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.holds import Holds
from rheostat.resilience.ladder import FallbackSettings
from rheostat.resilience.ramp import RampSettings
from rheostat.testing import Act, Scripted, VirtualLoop, run_virtual, scripted_model
from rheostat.types import Prediction, Request
from rheostat.types.duration import Duration

GOOD = Act(Prediction("yes", 1.0), 0.01)
BROKEN = Act(ModelError("upstream_error", "503"), 0.01)
ONE = BreakerSettings(failure_threshold=1, success_threshold=1, timeout_seconds=Duration(10.0))


class Timed:
    """Fails until a point in time, then answers, each in 10 ms."""

    labels = None

    def __init__(self, loop: VirtualLoop, until: float) -> None:
        self.loop, self.until, self.calls = loop, until, 0

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:  # noqa: ARG002
        self.calls += 1
        await asyncio.sleep(0.01)
        if self.loop.time() < self.until:
            raise ModelError("upstream_error", "503")
        return [Prediction("yes", 1.0)]

    async def aclose(self) -> None:
        """Nothing is open."""


class Bench:
    """One route that asks `a`, whose peer is `b` if there is one."""

    def __init__(self, loop: VirtualLoop, *models: Model, **fallback: Any) -> None:
        self.loop = loop
        self.pool = Pool({model.name: model for model in models})
        route = Route(
            policy=parse_policy("a"),
            fallback=FallbackSettings(**{"retry": 0} | fallback),
            links={model.name: model.link() for model in models},
            default="a",
        )
        self.plan = Plan(version="v", lanes={"default": Lane(name="default", route=route)}, pool=self.pool)
        self.engine = Engine(loop, Holds())

    async def ask(self, name: str = "0") -> Served:
        now = self.loop.time()
        return await self.engine.serve(self.plan, Request(id=name, data="x", received=now, deadline=now + 30.0))

    def calls(self, name: str) -> int:
        backend = self.pool[name].backend
        assert isinstance(backend, Scripted)
        return backend.calls


def test_a_recovered_model_gets_its_traffic_back_gradually() -> None:
    """50 requests a second; `a` fails for 20 s, its breaker is open for 10 s at a time, the ramp takes 60 s from 10 %."""
    loop = VirtualLoop()
    start = loop.time()
    settings = ModelSettings(
        peers=("b",),
        breaker=BreakerSettings(timeout_seconds=Duration(10.0)),
        ramp=RampSettings(start=0.1, seconds=Duration(60.0)),
    )
    bench = Bench(loop, Model("a", settings, Timed(loop, start + 20.0)), scripted_model("b", GOOD))
    served: list[tuple[float, str]] = []
    closed: list[float] = []

    async def one(number: int) -> None:
        at = loop.time() - start
        got = await bench.ask(f"request-{number}")
        assert got.error is None, "nobody sees an error"
        served.append((at, got.record.selected_model))
        if not closed and at > 15.0 and bench.pool["a"].breaker.name == "closed":
            closed.append(loop.time() - start)

    async def main() -> None:
        tasks = []
        for number in range(50 * 180):
            tasks.append(asyncio.ensure_future(one(number)))
            await asyncio.sleep(0.02)
        await asyncio.gather(*tasks)

    run_virtual(main(), loop)

    def share(begin: float, end: float) -> float:
        names = [model for at, model in served if begin <= at < end]
        return names.count("a") / len(names)

    back = closed[0]
    assert 20.0 < back < 32.0
    assert share(back + 0.1, back + 6.0) <= 0.2
    buckets = [share(back + at, back + at + 10.0) for at in range(0, 60, 10)]
    assert all(later >= earlier - 0.1 for earlier, later in pairwise(buckets)), buckets
    assert buckets[2] == pytest.approx(25 / 60, abs=0.1)
    assert share(back + 70.0, 180.0) >= 0.95


def test_one_probe_at_a_time_while_half_open_and_nobody_waits_for_it() -> None:
    slow = Act(Prediction("yes", 1.0), 2.0)
    loop = VirtualLoop()
    bench = Bench(loop, scripted_model("a", BROKEN, slow, GOOD, breaker=ONE, peers=("b",)), scripted_model("b", GOOD))

    async def main() -> list[tuple[str, float]]:
        await bench.ask()
        await asyncio.sleep(10.1)
        many = await asyncio.gather(*(bench.ask(str(number)) for number in range(100)))
        return [(one.record.selected_model, one.record.elapsed_s) for one in many]

    answers = run_virtual(main(), loop)
    assert bench.calls("a") == 2
    assert sorted(model for model, _ in answers) == ["a", *["b"] * 99]
    assert all(elapsed == pytest.approx(0.01) for model, elapsed in answers if model == "b")
    model = bench.pool["a"]
    assert (model.breaker.name, model.share(loop.time())) == ("closed", 0.05)


def test_an_abandoned_probe_gives_its_place_back() -> None:
    """The client whose request is the probe leaves after 0.3 s; the breaker is neither stuck nor blames the model."""
    loop = VirtualLoop()
    slow = Act(Prediction("yes", 1.0), 5.0)
    bench = Bench(loop, scripted_model("a", BROKEN, slow, GOOD, breaker=ONE, peers=("b",)), scripted_model("b", GOOD))

    async def main() -> None:
        await bench.ask()
        await asyncio.sleep(10.1)
        probe = asyncio.ensure_future(bench.ask("probe"))
        await asyncio.sleep(0.3)
        probe.cancel()
        await asyncio.sleep(0.0)
        state = bench.pool["a"].breaker
        assert (state.name, state.leases) == ("half-open", ())
        await asyncio.sleep(2.0)
        served = await bench.ask("next")
        assert served.record.selected_model == "a"
        assert bench.pool["a"].breaker.name == "closed"

    run_virtual(main(), loop)


def test_clients_that_leave_are_not_failures_of_the_model() -> None:
    loop = VirtualLoop()
    slow = Act(Prediction("yes", 1.0), 1.0)
    bench = Bench(loop, scripted_model("a", slow, breaker=BreakerSettings(failure_threshold=3)))

    async def main() -> None:
        for number in range(20):
            task = asyncio.ensure_future(bench.ask(str(number)))
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert bench.pool["a"].breaker.failures == 0
        assert (await bench.ask("last")).record.selected_model == "a"
        assert bench.calls("a") == 21, "nothing is retried"

    run_virtual(main(), loop)


def test_a_timeout_counts_once() -> None:
    loop = VirtualLoop()
    three = BreakerSettings(failure_threshold=3)
    bench = Bench(loop, scripted_model("a", Act(hang=True), breaker=three, timeout=Duration(0.5)), lighter=False)

    async def main() -> list[float]:
        took = []
        for number in range(5):
            assert bench.pool["a"].breaker.name == ("closed" if number < 3 else "open")
            took.append((await bench.ask(str(number))).record.elapsed_s)
        return took

    assert run_virtual(main(), loop) == pytest.approx([0.5, 0.5, 0.5, 0.0, 0.0])


def test_every_model_is_out_and_nobody_has_to_restart_anything() -> None:
    loop = VirtualLoop()
    models = [scripted_model(name, BROKEN, GOOD, breaker=ONE, peers=("b", "c")) for name in "abc"]
    bench = Bench(loop, *models)

    async def main() -> None:
        first = await bench.ask()
        assert isinstance(first.error, NoAnswer)
        await asyncio.sleep(3.0)
        second = await bench.ask("second")
        assert isinstance(second.error, NoAnswer)
        assert (second.error.http_status, second.error.retry_after_s) == (503, pytest.approx(7.0, abs=0.1))
        assert {o.failure.message for o in second.record.outcomes if o.failure} == {"its breaker is open"}
        assert [bench.calls(name) for name in "abc"] == [1, 1, 1]
        await asyncio.sleep(7.1)
        assert (await bench.ask("third")).record.selected_model == "a"

    run_virtual(main(), loop)


def test_a_503_with_a_wait_is_obeyed() -> None:
    loop = VirtualLoop()
    busy = Act(ModelError("upstream_error", "503", upstream_status=503, retry_after_s=4.0), 0.01)
    bench = Bench(loop, scripted_model("a", busy, GOOD, peers=("b",)), scripted_model("b", GOOD), retry=2)

    async def main() -> None:
        for at in (0.0, 1.0, 2.9):
            await asyncio.sleep(max(0.0, 1_000.0 + at - loop.time()))
            assert (await bench.ask(str(at))).record.selected_model == "b"
        assert bench.calls("a") == 1, "not even the retry asked it"
        await asyncio.sleep(1.2)
        assert (await bench.ask("later")).record.selected_model == "a"

    run_virtual(main(), loop)
