"""Budgets while serving: of a stream by a signal that moves, of one request by what its calls may cost."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.errors import ModelError
from rheostat.lab.outcomes import ModelColumns, ModelInfo, OutcomesTable
from rheostat.lab.replay import replay
from rheostat.policies import parse_policy
from rheostat.resilience.spend import Spend, SpendSettings
from rheostat.testing import Act, scripted_model
from rheostat.types import Prediction
from tests.engine.test_engine import CASCADE, Bench, pair

MOVING = {"cascade": {"stages": ["fast", "large"], "threshold": "spend.large"}}
BUDGET = Spend(name="large", settings=SpendSettings(share=0.25, models=("large",), step=0.5), unit=40.0)


def doubts(count: int) -> list[float]:
    return [(number * 0.6180339887) % 1.0 for number in range(count)]


def serve(sure: list[float]) -> tuple[Bench, list[Any]]:
    acts = [Act(Prediction("a", value), 0.1) for value in sure]
    bench = Bench(MOVING, pair(acts, [Act(Prediction("b", 0.99), 0.1)] * len(sure)))
    lane = msgspec.structs.replace(bench.plan.lanes["default"], spends=(BUDGET,))
    bench.plan = msgspec.structs.replace(bench.plan, lanes={"default": lane})
    return bench, bench.run(*[{} for _ in sure])


def table(sure: list[float]) -> OutcomesTable:
    n = len(sure)

    def columns(label: int, confidence: Any, cost: float) -> ModelColumns:
        return ModelColumns(
            np.full(n, label, np.int32), np.asarray(confidence, np.float64), np.full(n, 0.1), np.full(n, cost),
            np.zeros(n, np.int8),
        )  # fmt: skip

    return OutcomesTable(
        np.array([str(row) for row in range(n)], object), np.full(n, 2, np.int8), np.zeros(n, np.int32), ("a", "b"),
        {"fast": columns(0, sure, 1.0), "large": columns(1, np.full(n, 0.99), 40.0)},
        {"fast": ModelInfo(cost=1.0), "large": ModelInfo(cost=40.0)},
    )  # fmt: skip


def test_a_moving_threshold_is_recorded_and_replays_the_same() -> None:
    sure = doubts(200)
    bench, served = serve(sure)
    played = replay(parse_policy(MOVING), table(sure), spends=(BUDGET,))
    assert [one.record.label for one in served] == [played.table.labels[code] for code in played.label]
    assert [one.record.reason for one in served] == played.reason.tolist()
    told = [one.record.signals["spend.large"] for one in served]
    assert told[0] == pytest.approx(0.9)
    assert len(set(told)) > 10
    assert np.mean(played.called[50:, 1]) == pytest.approx(0.25, abs=0.03)
    assert bench.engine.spends.used(BUDGET) == pytest.approx(np.mean(played.called[:, 1]))


@settings(deadline=None, max_examples=60)
@given(sure=st.lists(st.one_of(st.sampled_from([0.0, 0.9, 1.0]), st.floats(0, 1)), min_size=1, max_size=30))
def test_live_and_replayed_budgets_are_one(sure: list[float]) -> None:
    _, served = serve(sure)
    played = replay(parse_policy(MOVING), table(sure), spends=(BUDGET,))
    records = [one.record for one in served]
    assert [record.reason for record in records] == played.reason.tolist()
    assert [record.cost for record in records] == played.cost.tolist()
    state = BUDGET.begin()
    for record in records:  # a record says what the threshold was, and what followed from it
        assert record.signals["spend.large"] == pytest.approx(BUDGET.told(state, 0.0)["spend.large"])
        state = BUDGET.after(state, [outcome.model for outcome in record.outcomes], record.cost, record.wall)


def test_a_request_that_fails_or_whose_client_leaves_is_counted_too() -> None:
    bench = Bench(MOVING, pair([Act(ModelError("crashed", "x"), 0.1)], [Act(ModelError("crashed", "x"), 0.1)]), retry=0)
    lane = msgspec.structs.replace(bench.plan.lanes["default"], spends=(BUDGET,))
    bench.plan = msgspec.structs.replace(bench.plan, lanes={"default": lane})
    (served,) = bench.run()
    assert served.error is not None
    assert bench.engine.spends.used(BUDGET) == 1.0
    bench.assert_clean()


def test_what_a_request_cannot_pay_for_is_not_asked() -> None:
    bench = Bench(CASCADE, pair([Act(Prediction("a", 0.6), 0.1)], [Act(Prediction("b", 0.9), 0.1)]))
    served, dear = bench.run({"max_cost": 40.0}, {"max_cost": 41.0})
    record = served.record
    assert (record.label, record.level, record.cost) == ("a", 3, 1.0)  # 1 + 40 would be too much
    assert [(o.model, o.failure.kind) for o in record.outcomes if o.failure] == [("large", "over_budget")]
    assert (dear.record.label, dear.record.cost) == ("b", 41.0)


def test_a_request_that_can_pay_for_nothing_says_so() -> None:
    bench = Bench(CASCADE, pair([Act(Prediction("a", 0.6), 0.1)], [Act(Prediction("b", 0.9), 0.1)]))
    (served,) = bench.run({"max_cost": 0.5})
    assert isinstance(served.error, ModelError)
    assert served.error.kind == "over_budget"
    assert "its cost of 40 is more than is left of 0.5" in str(served.error)
    bench.assert_clean()


def test_too_dear_and_too_large_together_are_the_clients_to_change() -> None:
    models = {"fast": scripted_model("fast", max_input=1, cost=1.0), "large": scripted_model("large", cost=40.0)}
    (served,) = Bench(CASCADE, models).run({"max_cost": 2.0, "data": "more than one token"})
    assert isinstance(served.error, ModelError)
    assert served.error.kind == "over_budget"


def test_models_asked_together_share_the_budget() -> None:
    blend = {"blend": {"weights": {"fast": 0.5, "large": 0.5}}}
    bench = Bench(blend, pair([Act(Prediction("a", 0.6), 0.1)], [Act(Prediction("b", 0.9), 0.1)]))
    (served,) = bench.run({"max_cost": 40.0})
    assert (served.record.label, served.record.cost) == ("a", 1.0)
    assert bench.backend("large").calls == 0
    bench.assert_clean()


def test_a_peer_is_asked_only_if_it_can_be_paid() -> None:
    models = pair([Act(ModelError("crashed", "x"), 0.1)], [Act(Prediction("b", 0.9), 0.1)])
    models["fast"] = scripted_model("fast", Act(ModelError("crashed", "x"), 0.1), cost=1.0, peers=("large",))
    bench = Bench("fast", models, retry=0)
    (served,) = bench.run({"max_cost": 10.0})
    assert served.error is not None
    assert bench.backend("large").calls == 0


def test_a_try_that_cannot_be_paid_for_is_not_made_again() -> None:
    bench = Bench(CASCADE, pair([Act(Prediction("a", 0.6), 0.1)], [Act(ModelError("crashed", "x"), 0.1)] * 4), retry=3)
    (served,) = bench.run({"max_cost": 42.0})
    assert served.record.cost <= 42.0
    assert bench.backend("large").calls == 1
