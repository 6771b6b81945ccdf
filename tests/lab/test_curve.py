from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_tables import columns, synthetic, table

from rheostat.combine import combine
from rheostat.lab.curve import ESCALATE_ALL, blend_curve, cascade_curve, simplex
from rheostat.lab.mixing import mixed_labels
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.replay import replay
from rheostat.lab.ternary import ternary_grid
from rheostat.policies import Blend, Cascade, Delegate, Use

LABELS = ("a", "b", "c")
EIGHTHS = [i / 8 for i in range(9)]


@st.composite
def tables(draw: st.DrawFn, models: int = 2) -> OutcomesTable:
    """Coarse confidences, so that ties are common; some are missing; some rows cannot be judged."""
    n = draw(st.integers(1, 12))
    made = {}
    for index in range(models):
        label = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
        confidence = draw(st.lists(st.sampled_from([*EIGHTHS, math.nan]), min_size=n, max_size=n))
        scores = None
        if draw(st.booleans()):
            cuts = draw(
                st.lists(st.sampled_from([(8, 0, 0), (4, 4, 0), (2, 2, 4), (0, 1, 7), (3, 3, 2)]), min_size=n, max_size=n)
            )
            scores = np.array(cuts, float) / 8
            scores[draw(st.integers(0, n - 1))] = math.nan
        failure = draw(st.lists(st.sampled_from([0, 0, 0, 0, 0, 1, -1]), min_size=n, max_size=n))
        made[f"m{index}"] = columns(label, confidence, latency=[(1 + index) * (1 + i) / 64 for i in range(n)],
                                    cost=4.0**index, failure=failure, scores=scores)  # fmt: skip
    truth = draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n))
    return table(truth, made, labels=LABELS)


def usable(whole: OutcomesTable) -> OutcomesTable | None:
    rows = np.flatnonzero(whole.complete(whole.models))
    return whole.subset(rows) if len(rows) else None


def test_ties_move_together_and_only_values_of_the_data_are_candidates() -> None:
    made = table([1, 1, 0, 1, 0], {"small": columns([1] * 5, [0.9, 0.9, 0.9, 0.5, 0.5]), "large": columns([1] * 5)})
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1]):
        curve = cascade_curve(made.subset(np.array(order)), ["small", "large"])
        assert curve.threshold.tolist() == [ESCALATE_ALL, 0.9, 0.5]
        assert curve.coverage.tolist() == [0.0, 0.6, 1.0]
        assert math.isnan(curve.precision[0])
        assert curve.precision[1:].tolist() == pytest.approx([2 / 3, 0.6])
    served = replay(Cascade(stages=("small", "large"), threshold=0.9), made)
    assert (~served.called[:, 1]).tolist() == [True, True, True, False, False]


@settings(max_examples=150, deadline=None)
@given(tables(), st.sampled_from([0.0, 0.25, 0.5]))
def test_the_curve_is_the_policy_replayed_at_every_threshold(whole: OutcomesTable, blend: float) -> None:
    part = usable(whole)
    if part is None:
        with pytest.raises(ValueError, match="no row can be used"):
            cascade_curve(whole, ["m0", "m1"])
        return
    curve = cascade_curve(whole, ["m0", "m1"], blend=blend)
    assert curve.n == len(part)
    assert sum(curve.left_out.values()) == len(whole) - len(part)
    for index in range(len(curve)):
        point = curve.point(index)
        if point.threshold == ESCALATE_ALL:
            continue
        policy = Cascade(stages=("m0", "m1"), threshold=point.threshold, blend=blend)
        compare(point, replay(policy, part))
        assert curve.index(point.threshold) == index
    for threshold in EIGHTHS:
        policy = Cascade(stages=("m0", "m1"), threshold=threshold, blend=blend)
        compare(curve.point(curve.index(threshold)), replay(policy, part))


def compare(point: Any, played: Any) -> None:
    assert point.quality == pytest.approx(played.correct.mean())
    assert point.share == pytest.approx(played.called[:, -1].mean())
    assert point.cost == pytest.approx(played.cost.mean())
    assert point.latency_s == pytest.approx(played.latency_s.mean())


@settings(max_examples=80, deadline=None)
@given(tables(models=3), st.sampled_from([0.0, 0.25]))
def test_three_stages_too(whole: OutcomesTable, blend: float) -> None:
    part = usable(whole)
    if part is None:
        return
    stages = ("m0", "m1", "m2")
    curve = cascade_curve(whole, stages, blend=blend)
    for threshold in EIGHTHS:
        played = replay(Cascade(stages=stages, threshold=threshold, max_escalations=2, blend=blend), part)
        index = curve.index(threshold)
        compare(curve.point(index), played)
        assert curve.latency_quantiles(index) == pytest.approx(played.latency_quantiles())
        assert curve.taken(index, curve.correct).tolist() == played.correct.tolist()


@settings(max_examples=80, deadline=None)
@given(tables(), st.booleans())
def test_the_two_cuts_are_the_policy_replayed(whole: OutcomesTable, parallel: bool) -> None:
    part = usable(whole)
    if part is None:
        return
    grid = ternary_grid(whole, "m0", "m1")
    for i, low in enumerate(grid.low):
        for j, high in enumerate(grid.high):
            if low > high:
                assert math.isnan(grid.quality[i, j])
                continue
            played = replay(Delegate(weak="m0", strong="m1", low=low, high=high, parallel=parallel), part)
            assert grid.quality[i, j] == pytest.approx(played.correct.mean())
            assert grid.taken(low, high).tolist() == played.correct.tolist()
            if not parallel:
                assert grid.share[i, j] == pytest.approx(played.called[:, 1].mean())
                assert grid.cost[i, j] == pytest.approx(played.cost.mean())
                assert grid.latency_s[i, j] == pytest.approx(played.latency_s.mean())


@settings(max_examples=80, deadline=None)
@given(tables(models=3))
def test_fixed_blends_are_the_policy_replayed(whole: OutcomesTable) -> None:
    part = usable(whole)
    if part is None:
        return
    grid = np.array([[1, 0, 0], [0, 0, 1], [0.5, 0.5, 0], [0.25, 0.25, 0.5]])
    curve = blend_curve(whole, part.models, grid)
    for weights, correct, cost, latency in zip(grid, curve.correct, curve.cost, curve.latency_s, strict=True):
        played = replay(Blend(weights=dict(zip(part.models, weights.tolist(), strict=True))), part)
        assert correct.tolist() == played.correct.tolist()
        assert cost == pytest.approx(played.cost.mean())
        assert latency == pytest.approx(played.latency_s.mean())


@settings(max_examples=100, deadline=None)
@given(tables(models=3))
def test_mixing_many_rows_is_mixing_each(whole: OutcomesTable) -> None:
    part = usable(whole)
    if part is None:
        return
    weights = [0.5, 0.25, 0.25]
    found = mixed_labels([part.model(name) for name in part.models], weights, 3)
    for row, code in enumerate(found):
        outcomes = tuple(part.row_outcomes(row).values())
        prediction = combine(dict(zip(part.models, weights, strict=True)), outcomes)
        assert prediction is not None
        assert prediction.label == LABELS[code]


def test_a_missing_confidence_always_defers() -> None:
    made = table([1, 1], {"small": columns([1, 1], [0.0, math.nan]), "large": columns([0, 0])})
    curve = cascade_curve(made, ["small", "large"])
    assert curve.threshold.tolist() == [ESCALATE_ALL, 0.0]
    assert curve.share.tolist() == [1.0, 0.5]
    assert curve.index(0.0) == 1


def test_no_confidence_at_all_leaves_one_candidate() -> None:
    made = table([1, 0], {"small": columns([1, 1]), "large": columns([1, 1])})
    assert cascade_curve(made, ["small", "large"]).threshold.tolist() == [ESCALATE_ALL]


def test_latency_quantiles_never_fall_as_the_threshold_rises() -> None:
    curve = cascade_curve(synthetic(500), ["small", "large"])
    found = np.array([curve.latency_quantiles(index) for index in range(0, len(curve), 25)])
    assert (np.diff(found, axis=0) <= 0).all()  # candidates go downwards


def test_wrong_calls_teach() -> None:
    whole = synthetic(10)
    with pytest.raises(ValueError, match="at least two"):
        cascade_curve(whole, ["small"])
    with pytest.raises(KeyError, match="it has: small, large"):
        cascade_curve(whole, ["small", "big"])
    with pytest.raises(ValueError, match="weights"):
        blend_curve(whole, ["small", "large"], [[0, 0]])
    with pytest.raises(ValueError, match="names big"):
        replay(Use("big"), whole)


def test_simplex_grids_sum_to_one_and_hold_the_corners() -> None:
    for models in (2, 3, 4):
        grid = simplex(models)
        np.testing.assert_allclose(grid.sum(axis=1), 1.0)
        assert sorted(map(tuple, grid[(grid == 1).any(axis=1)])) == sorted(map(tuple, np.eye(models)))
