"""Figures for any number of models, against tables worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.lab.metrics import zero_router_aiq
from rheostat.lab.metrics_many import (
    arena_score,
    best_single,
    deferral_area,
    delta_ibc,
    gains,
    mixed_cost_at_quality,
    mixed_quality_at_cost,
    optimality,
    peak,
    qnc,
    robustness,
)

MODELS = [(1.0, 0.5), (2.0, 0.6), (4.0, 0.7)]


def test_quality_and_cost_between_points_mix_them() -> None:
    # hull: (1, .5) (2, .8) (4, .9); the point (3, .6) is dominated
    cost, quality = [1, 2, 3, 4], [0.5, 0.8, 0.6, 0.9]
    assert mixed_quality_at_cost(cost, quality, 3.0) == pytest.approx(0.85)
    assert mixed_quality_at_cost(cost, quality, 9.0) == pytest.approx(0.9)
    assert math.isnan(mixed_quality_at_cost(cost, quality, 0.5))
    assert mixed_cost_at_quality(cost, quality, 0.85) == pytest.approx(3.0)
    assert mixed_cost_at_quality(cost, quality, 0.1) == 1.0  # no cheaper point exists
    assert math.isnan(mixed_cost_at_quality(cost, quality, 0.95))


def test_area_and_neutral_cost_by_hand() -> None:
    # zero router: hull of the models, relative costs .25 .5 1. Flat at .5 to .25, then .5 -> .6 -> .7.
    cost, quality = [c for c, _ in MODELS], [q for _, q in MODELS]
    assert deferral_area(cost, quality, MODELS) == pytest.approx(0.25 * 0.5 + 0.25 * 0.55 + 0.5 * 0.65)
    assert deferral_area(cost, quality, MODELS, limit=0.5) == pytest.approx((0.25 * 0.5 + 0.25 * 0.55) / 0.5)
    assert qnc(cost, quality, MODELS) == pytest.approx(1.0)
    # a router with the point (2, .9): from (1, .5) it crosses .7 at cost 1.5
    assert qnc([2.0, 1.0], [0.9, 0.5], MODELS) == pytest.approx(1.5 / 4)
    assert math.isnan(qnc([2.0], [0.65], MODELS))
    assert peak([0.2, 0.9, 0.4]) == 0.9


def test_a_dominated_dear_model_is_not_the_best_one() -> None:
    models = [(1.0, 0.8), (5.0, 0.6)]
    assert best_single(models) == 0
    assert best_single([(2.0, 0.5), (1.0, 0.5), (1.0, 0.5)]) == 1
    assert qnc([1.0], [0.8], models) == pytest.approx(0.2)
    assert qnc([1.0], [0.8], models, to_best=True) == pytest.approx(1.0)
    assert deferral_area([1.0], [0.8], models) == pytest.approx(0.8)


def test_delta_ibc_by_hand() -> None:
    # weak (1, .5), strong (5, .7): .05 a unit of cost; the point (2, .6) brings .1: twice that, +100 %
    assert delta_ibc((2.0, 0.6), (1.0, 0.5), (5.0, 0.7)) == pytest.approx(100.0)
    assert delta_ibc((3.0, 0.6), (1.0, 0.5), (5.0, 0.7)) == pytest.approx(0.0)
    with pytest.raises(ValueError, match="better and dearer"):
        delta_ibc((2.0, 0.6), (1.0, 0.7), (5.0, 0.7))
    with pytest.raises(ValueError, match="no more than the weak"):
        delta_ibc((1.0, 0.6), (1.0, 0.5), (5.0, 0.7))


def test_arena_score_by_hand() -> None:
    # two models of RouterArena's public split: 69.0 % at $0.047 and 52.3 % at $0.176 a thousand
    assert arena_score(0.690, 0.047) == pytest.approx(0.697, abs=5e-4)
    assert arena_score(0.523, 0.176) == pytest.approx(0.533, abs=5e-4)
    assert arena_score(0.5, 0.0) == arena_score(0.5, 0.0044) == pytest.approx(1.1 * 0.5 / 1.05)
    assert arena_score(0.5, 200.0) == arena_score(-0.03, 1.0) == 0.0
    with pytest.raises(ValueError, match="0 or more"):
        arena_score(0.5, -1.0)
    with pytest.raises(ValueError, match="NaN"):
        arena_score(float("nan"), 1.0)


def test_optimality_by_hand() -> None:
    # best and cheapest: model 0 (a tie), model 1, model 0 (nobody is right; a negative score is below 0), model 1
    quality, cost = [[1, 0, 0, 0.5], [1, 1, -0.03, 1]], [[1, 1, 1, 1], [4, 4, 4, 4]]
    found = optimality([0, 0, 0, 1], quality, cost)
    assert found.selection == pytest.approx(2 / 3)  # queries 0, 1 and 3 have a right model
    assert found.cost == pytest.approx((1 + 4 + 1 + 4) / (1 + 1 + 1 + 4))
    assert found.quality == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="names model 2"):
        optimality([0, 0, 0, 2], quality, cost)
    nothing = optimality([0], [[0.0], [0.0]], [[0.0], [0.0]])
    assert all(math.isnan(value) for value in nothing)


def test_robustness_and_gains_by_hand() -> None:
    assert robustness([0, 1, 2, 2], [0, 1, 1, 2]) == 0.75
    with pytest.raises(ValueError, match="twice"):
        robustness([0, 1], [0])
    found = gains([1.0, 2.0, 4.0], [0.5, 0.7, 0.77], MODELS)
    assert found.quality == pytest.approx(0.1)
    assert found.saved == pytest.approx(0.5)
    assert math.isnan(gains([1.0], [0.5], MODELS).saved)
    with pytest.raises(ValueError, match="above 0"):
        gains([1.0], [0.5], [(0.0, 0.5)])


def test_traps_are_named() -> None:
    with pytest.raises(ValueError, match="NaN"):
        mixed_quality_at_cost([1.0, float("nan")], [0.1, 0.2], 1.0)
    with pytest.raises(ValueError, match="costs nothing"):
        qnc([0.0], [0.5], [(0.0, 0.5)])
    with pytest.raises(ValueError, match="more than 0"):
        deferral_area([0.0], [0.5], [(0.0, 0.5)])
    with pytest.raises(ValueError, match="limit"):
        deferral_area([1.0], [0.5], MODELS, limit=0.0)
    with pytest.raises(ValueError, match="at least one model"):
        best_single([])


POINTS = st.lists(st.tuples(st.floats(1, 5), st.floats(0, 1)), min_size=1, max_size=12)


@given(POINTS, st.floats(0, 1))
def test_cost_and_quality_are_inverse_on_the_hull(points: list[tuple[float, float]], target: float) -> None:
    cost, quality = np.array(points).T
    found = mixed_cost_at_quality(cost, quality, target)
    assert math.isnan(found) == (target > quality.max() + 1e-12)
    if not math.isnan(found):
        assert mixed_quality_at_cost(cost, quality, found + 1e-9) >= target - 1e-6


@given(POINTS)
def test_more_points_never_lower_the_area(points: list[tuple[float, float]]) -> None:
    cost, quality = [c for c, _ in points], [q for _, q in points]
    ours = deferral_area([*cost, *(c for c, _ in MODELS)], [*quality, *(q for _, q in MODELS)], MODELS)
    assert ours >= deferral_area([c for c, _ in MODELS], [q for _, q in MODELS], MODELS) - 1e-12
    assert zero_router_aiq(MODELS) <= 0.7
