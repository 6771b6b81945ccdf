"""The case of counters that steer: they stay true through cancels, errors and kept answers, and attract nobody."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.engine.engine import Engine, Lane, Plan
from rheostat.engine.journey import Route
from rheostat.errors import ModelError
from rheostat.policies import parse_policy
from rheostat.pool import Model, ModelSettings, Pool, Reply, Row
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.holds import Holds
from rheostat.resilience.ladder import FallbackSettings
from rheostat.testing import VirtualLoop, run_virtual
from rheostat.testing.step import Ok, Status
from rheostat.types import Prediction, Request
from tests.cases_routing.routed import routed

NAMES = ("a", "b", "c", "d")
WAYS = ("least_loaded", "shortest_wait", "two_choices", "weighted")
DONE = Prediction("x", 1.0)


class Told:
    """A remote backend that does what the row says: (seconds, then what to answer). It looks at the counters each time."""

    labels: tuple[str, ...] | None = None

    def __init__(self, place: Place, broken: bool) -> None:
        self.place, self.broken, self.calls = place, broken, 0

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:  # noqa: ARG002
        self.calls += 1
        self.place.look()
        (said,) = rows
        assert isinstance(said, dict)
        if not self.broken:
            await asyncio.sleep(said["s"])
            self.place.look()
        if self.broken or said["bad"]:
            raise ModelError("upstream_error", "told to")
        return [DONE]

    async def aclose(self) -> None:
        """Nothing to give back."""


class Place:
    """An engine over four equal models in virtual time, some of them broken: these fail at once, and so look idle."""

    def __init__(self, choose: str, broken: tuple[str, ...] = (), breaker: BreakerSettings | None = None) -> None:
        self.loop = VirtualLoop()
        self.backends = {name: Told(self, name in broken) for name in NAMES}
        settings = ModelSettings(breaker=breaker or BreakerSettings(failure_threshold=0), max_concurrency=8, queue=8)
        self.models = {name: Model(name, settings, self.backends[name]) for name in NAMES}
        route = Route(
            policy=parse_policy({"balance": {"models": list(NAMES), "choose": choose}}),
            fallback=FallbackSettings(retry=1),
            links={name: model.link() for name, model in self.models.items()},
            default="a",
        )
        lane = Lane(name="default", route=route, live=True, deadline_s=30.0)
        self.plan = Plan(version="v", lanes={"default": lane}, pool=Pool(self.models))
        self.engine = Engine(self.loop, Holds(), ())
        self.number = 0

    def look(self) -> None:
        assert all(model.in_flight >= 0 and model.throughput.active >= 0 for model in self.models.values())

    def is_idle(self) -> bool:
        counts = [(m.in_flight, len(m.waiting), m.throughput.active) for m in self.models.values()]
        return counts == [(0, 0, 0)] * len(NAMES)

    async def ask(self, seconds: float = 0.01, bad: bool = False, leaves_s: float | None = None) -> str:
        """Ask once; the client leaves after a while, if it does. Return who answered, or nothing."""
        self.number += 1
        now = self.loop.time()
        request = Request(id=str(self.number), data={"s": seconds, "bad": bad}, received=now, deadline=now + 30.0)
        try:
            async with asyncio.timeout(leaves_s):
                served = await self.engine.serve(self.plan, request)
        except TimeoutError:
            return ""
        self.look()
        return next(iter(served.record.weights), "")


@given(
    st.sampled_from(WAYS),
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.01, 0.5]), st.booleans(), st.sampled_from([None, None, 0.0, 0.01, 0.2])),
        max_size=60,
    ),
)
def test_case_four_the_counters_are_never_negative_and_zero_when_idle(
    choose: str, doings: list[tuple[float, bool, float | None]]
) -> None:
    """O-ROL-04: whatever calls fail and whatever clients leave, waiting, running or between two tries."""
    place = Place(choose)

    async def storm() -> None:
        await asyncio.gather(*(place.ask(*doing) for doing in doings))

    run_virtual(storm(), place.loop)
    assert place.is_idle()


@pytest.mark.parametrize("choose", WAYS)
@pytest.mark.parametrize("together", [1, 8])
def test_case_four_equal_models_get_equal_shares_after_errors_cancels_and_a_long_rest(choose: str, together: int) -> None:
    """O-ROL-04: 4000 requests, one at a time (every choice is a tie) and eight at a time."""
    place = Place(choose)
    counts: Counter[str] = Counter()

    async def run() -> None:
        await asyncio.gather(*(place.ask(0.01, bad=n % 5 == 0, leaves_s=0.005 if n % 3 == 0 else None) for n in range(60)))
        assert place.is_idle()
        await asyncio.sleep(100_000.0)
        for _ in range(4000 // together):
            counts.update(await asyncio.gather(*(place.ask() for _ in range(together))))

    run_virtual(run(), place.loop)
    assert counts.total() == 4000
    for name in NAMES:
        assert counts[name] / 4000 == pytest.approx(0.25, abs=0.03)
    assert place.is_idle()


@pytest.mark.parametrize("choose", WAYS)
def test_case_four_a_model_that_is_out_is_not_chosen_because_it_looks_idle(choose: str) -> None:
    """O-ROL-04: its calls end at once, so nothing is ever in flight at it; all others are busy."""
    place = Place(choose, broken=("b",), breaker=BreakerSettings(failure_threshold=5, timeout_seconds=1000.0))  # type: ignore[arg-type]

    async def run() -> None:
        for _ in range(50):
            answered = await asyncio.gather(*(place.ask(0.1) for _ in range(20)))
            assert set(answered) <= {"a", "c", "d"}

    run_virtual(run(), place.loop)
    first = place.backends["b"].calls
    assert 5 <= first <= 25, "it was tried until its breaker opened; calls of one burst had begun before"
    assert place.models["b"].breaker.name == "open"
    assert place.is_idle()


def test_case_four_an_answer_that_is_kept_changes_no_counter(tmp_path: Path) -> None:
    """O-ROL-04: a cached answer begins no call, so it may not end one."""
    policy = {"balance": {"models": ["a", "b"], "choose": "least_loaded"}}
    scripts = {name: [Ok(times=20), Status(code=503)] for name in ("a", "b")}

    async def run() -> None:
        async with routed(tmp_path, policy, scripts, fallback={"retry": 0, "cached": True}) as place:
            levels: list[int] = []
            for _ in range(120):
                levels.append((await place.ask("the same")).record.level)
                models = place.router.plan.pool.models.values()
                assert [(model.in_flight, len(model.waiting), model.throughput.active) for model in models] == [
                    (0, 0, 0)
                ] * 2
            assert levels == [0] * 40 + [4] * 80
            gauge = place.metric("rheostat_in_flight{").splitlines()
            assert len(gauge) == 2
            assert all(float(line.rpartition(" ")[2]) == 0.0 for line in gauge)

    asyncio.run(run())
