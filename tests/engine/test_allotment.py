"""All calls of one request together are bounded, retries and models beside each other included."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.engine.allotment import Allotment
from rheostat.errors import ModelError
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.ladder import FallbackSettings, Preset
from rheostat.testing import Act, scripted_model
from rheostat.types import Attempt, Failure, Outcome, Prediction
from tests.engine.test_engine import Bench

BROKEN = Act(ModelError("upstream_error", "boom", upstream_status=503), 0.01)
OFF = BreakerSettings(failure_threshold=0, error_rate=1.0)


def calls_of(bench: Bench) -> dict[str, int]:
    return {name: bench.backend(name).calls for name in bench.plan.pool}


def chain() -> dict[str, object]:
    return {
        "a": scripted_model("a", BROKEN, peers=("b", "c"), breaker=OFF),
        "b": scripted_model("b", BROKEN, peers=("c",), breaker=OFF),
        "c": scripted_model("c", BROKEN, breaker=OFF),
    }


@pytest.mark.parametrize(
    ("most", "made"), [(0, (3, 3, 3)), (1, (1, 0, 0)), (3, (3, 0, 0)), (4, (3, 1, 0)), (8, (3, 3, 2)), (20, (3, 3, 3))]
)
def test_exactly_so_many_calls_in_the_order_of_the_chain(most: int, made: tuple[int, int, int]) -> None:
    bench = Bench("a", chain(), retry=2, max_attempts=most)
    (served,) = bench.run()
    assert tuple(calls_of(bench).values()) == made
    assert served.error is not None
    assert "a: upstream_error 503" in str(served.error)
    assert served.error.http_status == 502  # type: ignore[attr-defined]
    told = [o.failure.message for o in served.record.outcomes if o.failure and o.failure.kind == "over_budget"]
    assert bool(told) == (0 < most <= 4)
    assert all(message == f"the {most} calls of a request are used up" for message in told)
    bench.assert_clean()


def test_the_ladder_goes_on_without_calls() -> None:
    bench = Bench("a", chain(), retry=0, max_attempts=1, preset=Preset(label="unknown"))
    (served,) = bench.run()
    assert (served.record.label, served.record.level) == ("unknown", 5)
    assert sum(calls_of(bench).values()) == 1
    cascade = {"cascade": {"stages": ["small", "a"], "threshold": 0.9}}
    models = {"small": scripted_model("small", Act(Prediction("x", 0.5), 0.01), cost=0.1), **chain()}
    bench = Bench(cascade, models, retry=2, max_attempts=2)
    (served,) = bench.run()
    assert (served.record.label, served.record.level) == ("x", 3)
    assert calls_of(bench) == {"small": 1, "a": 1, "b": 0, "c": 0}


def test_a_model_chosen_by_the_key_that_may_skip_the_route_is_bounded_too() -> None:
    bench = Bench("a", chain(), retry=2, max_attempts=2)
    bench.run({"skip_route": True})
    assert sum(calls_of(bench).values()) == 2


def test_models_beside_each_other_share_what_is_left() -> None:
    blend = {"blend": {"weights": {"a": 0.5, "b": 0.5}}}
    bench = Bench(blend, chain(), retry=2, max_attempts=3)
    bench.run()
    assert calls_of(bench) == {"a": 2, "b": 1, "c": 0}
    bench.assert_clean()
    bench = Bench(blend, chain(), retry=2, max_attempts=1)
    bench.run()
    assert sum(calls_of(bench).values()) == 1


def test_who_was_turned_away_used_nothing() -> None:
    allotment = Allotment(2)
    allotment.started(["a"])
    assert allotment.tries("a", 3) == 2
    allotment.ended(Outcome("a", failure=Failure("overloaded")))
    allotment.started(["b"])
    assert not allotment.used_up
    assert allotment.tries("b", 5) == 2
    assert allotment.used_up


@settings(deadline=None)
@given(most=st.integers(1, 6), rounds=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), max_size=8))
def test_never_more_than_the_bound(most: int, rounds: list[list[int]]) -> None:
    allotment, made = Allotment(most), 0
    for number, wishes in enumerate(rounds):
        started = {}
        for index, wanted in enumerate(wishes):
            if not allotment.used_up:
                allotment.started([f"{number}.{index}"])
                started[f"{number}.{index}"] = wanted
        for model, wanted in started.items():
            granted = allotment.tries(model, wanted)
            assert 1 <= granted <= wanted
            made += granted
            assert made <= most
        for model, granted in started.items():
            tries = tuple(Attempt(model, 0.0, 0.0) for _ in range(granted))
            used = tries[: allotment._held[model]]
            allotment.ended(Outcome(model, failure=Failure("timeout"), attempts=used))
    assert allotment.used_up == (made >= most)


def test_a_negative_bound_is_named() -> None:
    with pytest.raises(ValueError, match="`max_attempts`"):
        FallbackSettings(max_attempts=-1)
