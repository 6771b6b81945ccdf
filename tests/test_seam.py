"""The seam: what a policy does over a table is what it does live, failures and cancellations included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rheostat.errors import ModelError
from rheostat.lab.outcomes import FAILURE_KINDS, ModelColumns, ModelInfo, OutcomesTable
from rheostat.lab.replay import replay
from rheostat.policies import answering_of, parse_policy
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.ladder import FallbackSettings, Preset
from rheostat.testing import Act, scripted_model
from rheostat.types import Outcome, Prediction, Request
from tests.engine.test_engine import Bench
from tests.policies.test_policies import MODELS, nodes

LABELS = ("a", "b")
KINDS = ("upstream_error", "bad_output", "rate_limited", "timeout", "input_refused")
CELL = st.tuples(
    st.sampled_from([None, None, None, *KINDS]),  # the failure
    st.sampled_from(LABELS),
    st.one_of(st.none(), st.floats(0, 1)),
    st.integers(1, 400),  # milliseconds
)


class Doubt:
    """Signals made from answers: each needed model's confidence, .4 without one; a sum of 1.2 or more is a fault."""

    def __init__(self, name: str, needs: tuple[str, ...], makes: tuple[str, ...]) -> None:
        self.needs = needs
        self.names = tuple(f"{name}.{model}" for model in makes)

    def score(self, request: Request, signals: Mapping[str, float], outcomes: Mapping[str, Outcome]) -> dict[str, float]:
        assert set(outcomes) == set(self.needs)
        assert signals["d"] is not None
        assert request.data == "x"
        sure = [0.4 if (found := outcomes[model].confidence) is None else found for model in self.needs]
        if sum(sure) >= 1.2:
            raise ValueError("too sure")
        return {name: sum(sure) / len(sure) for name in self.names}


ANSWERS = (
    *(Doubt("a", (model,), (model,)) for model in MODELS),
    Doubt("both", ("m0", "m1"), MODELS),
)


class Level:
    """A signal that is the same for every row."""

    names = ("d", *(f"q.{model}" for model in MODELS))

    def __init__(self, value: float) -> None:
        self.value = value

    def score(self, request: Request) -> dict[str, float]:  # noqa: ARG002
        return {"d": self.value} | {f"q.{model}": abs(self.value - at / 3) for at, model in enumerate(MODELS)}


def table_of(cells: tuple[Any, ...], peers: tuple[str, ...]) -> OutcomesTable:
    def one(value: Any, kind: Any) -> Any:
        return np.array([value], kind)

    columns = {
        name: ModelColumns(
            one(-1 if failure else LABELS.index(label), np.int32),
            one(np.nan if confidence is None or failure else confidence, np.float64),
            one(ms / 1000, np.float64),
            one(float(cost), np.float64),
            one(FAILURE_KINDS.index(failure) + 1 if failure else 0, np.int8),
        )
        for cost, (name, (failure, label, confidence, ms)) in enumerate(zip(MODELS, cells, strict=True), 1)
    }
    info = {name: ModelInfo(cost=float(cost), peers=peers) for cost, name in enumerate(MODELS, 1)}
    ids = np.array(["0"], object)
    return OutcomesTable(ids, one(2, np.int8), one(0, np.int32), LABELS, columns, info, inputs=one('"x"', object))


@settings(deadline=None, max_examples=800)
@given(
    node=nodes(answers=True),
    cells=st.tuples(CELL, CELL, CELL),
    signal=st.floats(0, 1),
    deadline=st.sampled_from([10.0, 0.5, 0.25]),
    peers=st.sampled_from([(), ("m2",)]),
    preset=st.booleans(),
    max_cost=st.sampled_from([float("inf"), float("inf"), 2.5, 4.0]),
)
def test_replay_and_service_are_one(
    node: object,
    cells: tuple[Any, ...],
    signal: float,
    deadline: float,
    peers: tuple[str, ...],
    preset: bool,
    max_cost: float,
) -> None:
    times = [cell[3] for cell in cells]
    sums = {sum(subset) for subset in ([a] for a in times)} | {times[0] + times[1], times[0] + times[2], times[1] + times[2]}
    assume(len(sums) == 6 and not sums & {500, 250} and sum(times) not in (500, 250))
    ladder = FallbackSettings(retry=0, preset=Preset(label="p") if preset else None)
    policy = parse_policy(node)
    result = replay(
        policy,
        table_of(cells, peers),
        fallback=ladder,
        scorers=(Level(signal), *ANSWERS),
        deadline_s=deadline,
        max_cost=max_cost,
        default=answering_of(policy)[0],
    )

    models = {}
    for cost, (name, (failure, label, confidence, ms)) in enumerate(zip(MODELS, cells, strict=True), 1):
        reply = ModelError(failure, "x") if failure else Prediction(label, confidence)
        off = BreakerSettings(failure_threshold=0)
        models[name] = scripted_model(name, Act(reply, ms / 1000), cost=float(cost), peers=peers, breaker=off)
    bench = Bench(node, models, retry=0, preset=ladder.preset, scorers=(Level(signal), *ANSWERS))
    (served,) = bench.run({"deadline_s": deadline, "max_cost": max_cost})
    record = served.record

    every_label = (*LABELS, *result.extra_labels)
    assert (record.label or "-") == (every_label[result.label[0]] if result.label[0] >= 0 else "-")
    assert record.confidence == pytest.approx(result.confidence[0], nan_ok=True) or record.confidence is None
    assert record.level == result.level[0]
    assert bool(record.review) == result.review[0]
    assert record.reason == result.reason[0]
    assert record.route_type == result.by[0]
    assert record.cost == pytest.approx(result.cost[0])
    assert record.elapsed_s == pytest.approx(result.latency_s[0])
    assert {name: w for name, w in record.weights.items() if w > 1e-6} == pytest.approx(
        {name: float(w) for name, w in zip(MODELS, result.weights[0], strict=True) if w > 1e-6}
    )
    assert {name for name in MODELS if bench.backend(name).calls} == {
        name for name, called in zip(MODELS, result.called[0], strict=True) if called
    }
    cut = {name for name in MODELS if bench.backend(name).cancelled}
    assert set(record.cancelled) == {name for name, gone in zip(MODELS, result.cancelled[0], strict=True) if gone}
    assert set(record.cancelled) <= cut
