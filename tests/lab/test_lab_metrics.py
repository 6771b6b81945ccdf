from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.lab import metrics
from rheostat.lab.bootstrap import _means, bootstrap, paired_bootstrap
from rheostat.lab.metrics import aiq, apgr, call_performance_curve, cost_at_quality, cpt, hull, oracle, pgr
from rheostat.lab.reliability import (
    aurc,
    auroc,
    bins,
    brier,
    confidence_errors,
    ece,
    excess_aurc,
    risk_coverage,
)

# Four rows: weak right on 2, strong right on 3. Gains by row: 0, +1, -1, +1.
WEAK, STRONG = [1, 0, 1, 0], [1, 1, 0, 1]
SCORE = [0.1, 0.9, 0.2, 0.8]


def test_curve_by_hand() -> None:
    curve = call_performance_curve(WEAK, STRONG, SCORE)
    # order: row 1 (+1), row 3 (+1), row 2 (-1), row 0 (0)
    np.testing.assert_allclose(curve.share, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(curve.quality, [0.5, 0.75, 1.0, 0.75, 0.75])
    # PGR: 0, 1, 2, 1, 1; trapezoid: (0.5 + 1.5 + 1.5 + 1) / 4
    assert apgr(curve) == pytest.approx(1.125)
    assert cpt(curve, 0.5) == pytest.approx(0.125)
    assert cpt(curve, 1.5) == pytest.approx(0.375)
    assert math.isnan(cpt(curve, 2.5))


def test_deciles_differ_from_exact() -> None:
    curve = metrics.Curve(np.array([0, 0.05, 1]), np.array([0.0, 1.0, 1.0]))
    assert apgr(curve) == pytest.approx(0.975)
    assert apgr(curve, deciles=True) == pytest.approx(0.95)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30), st.floats(-5, 5))
def test_a_constant_score_is_exactly_random(rows: list[tuple[bool, bool]], score: float) -> None:
    weak, strong = [float(w) for w, _ in rows], [float(s) for _, s in rows]
    curve = call_performance_curve(weak, strong, [score] * len(rows))
    assert len(curve.share) == 2
    if sum(strong) > sum(weak):
        assert apgr(curve) == pytest.approx(0.5)
        assert cpt(curve, 0.8) == pytest.approx(0.8)


@given(st.data())
def test_equal_scores_do_not_depend_on_the_order_of_rows(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=20))
    mixed = data.draw(st.permutations(rows))
    one = call_performance_curve(*(list(part) for part in zip(*rows, strict=True)))
    two = call_performance_curve(*(list(part) for part in zip(*mixed, strict=True)))
    np.testing.assert_allclose(one.share, two.share)
    np.testing.assert_allclose(one.quality, two.quality)


def test_no_gap_is_refused_not_infinite() -> None:
    with pytest.raises(ValueError, match="no gap"):
        pgr(0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="no gap"):
        apgr(call_performance_curve([1, 1], [1, 0], [0.1, 0.2]))
    assert pgr(0.9, 0.5, 0.7) == pytest.approx(2.0)


def test_bad_numbers_are_named() -> None:
    with pytest.raises(ValueError, match="score: 1 values are NaN"):
        call_performance_curve([1, 0], [1, 1], [0.5, math.nan])
    with pytest.raises(ValueError, match="weak: expected"):
        call_performance_curve([], [], [])


def test_cost_and_quality() -> None:
    cost, quality = [1, 5, 3, 9], [0.5, 0.9, 0.8, 0.85]
    assert cost_at_quality(cost, quality, 0.8) == 3
    assert math.isnan(cost_at_quality(cost, quality, 0.95))
    assert metrics.quality_at_cost(cost, quality, 4) == 0.8
    assert math.isnan(metrics.quality_at_cost(cost, quality, 0.5))


def test_hull_drops_dominated_points_and_those_under_a_line() -> None:
    cost, quality = [1, 2, 3, 4, 4, 6], [0.2, 0.3, 0.8, 0.7, 0.9, 0.9]
    assert hull(cost, quality).tolist() == [0, 2, 4]
    assert hull([1.0], [0.0]).tolist() == [0]
    assert hull([5, 1], [0.1, 0.9]).tolist() == [1]  # a dearer, worse model


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=40))
def test_no_point_lies_above_its_hull(points: list[tuple[int, int]]) -> None:
    cost, quality = np.array(points, float).T
    kept = hull(cost, quality)
    assert (np.diff(cost[kept]) > 0).all()
    assert (np.diff(quality[kept]) > 0).all()
    slopes = np.diff(quality[kept]) / np.diff(cost[kept])
    assert (np.diff(slopes) < 0).all()
    right = cost >= cost[kept[0]]
    assert (quality[right] <= np.interp(cost[right], cost[kept], quality[kept]) + 1e-9).all()


def test_aiq_by_hand() -> None:
    models = [(1.0, 0.5), (5.0, 0.9)]
    assert metrics.zero_router_aiq(models) == pytest.approx(0.7)
    # one router point (2, 0.9): rises 0.5 -> 0.9 over [1, 2], flat over [2, 5]
    assert aiq([2], [0.9], models) == pytest.approx((0.7 + 3 * 0.9) / 4)
    with pytest.raises(ValueError, match="cost the same"):
        aiq([1], [0.5], [(1, 0.5), (1, 0.7)])
    # a dear model that is worse adds nothing: the zero router stays with the cheap one
    assert metrics.zero_router_aiq([(1.0, 0.9), (5.0, 0.5)]) == pytest.approx(0.9)


def test_oracle_takes_the_cheapest_of_the_best() -> None:
    assert oracle([[1, 0, 0, -0.03], [1, 1, 0, 0]], [[1, 1, 1, 1], [9, 9, 0, 9]]).tolist() == [0, 1, 1, 1]


# --------------------------------------------------------------------------------------------------------- reliability

CONFIDENCE, CORRECT = [0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0]


def test_reliability_by_hand() -> None:
    assert brier(CONFIDENCE, CORRECT) == pytest.approx((0.01 + 0.64 + 0.09 + 0.36) / 4)
    # two bins of width 1/2: all four rows in the upper one, mean confidence 0.75, accuracy 0.5
    assert ece(CONFIDENCE, CORRECT, count=2) == pytest.approx(0.25)
    # equal mass, two bins: [.6, .7] accuracy .5 confidence .65; [.8, .9] accuracy .5 confidence .85
    assert ece(CONFIDENCE, CORRECT, count=2, equal_mass=True) == pytest.approx((0.15 + 0.35) / 2)
    # risks: 0, 1/2, 1/3, 2/4
    assert risk_coverage(CONFIDENCE, CORRECT).risk.tolist() == pytest.approx([0, 1 / 2, 1 / 3, 1 / 2])
    assert aurc(CONFIDENCE, CORRECT) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    # perfect order: 0, 0, 1/3, 2/4 - but the two right (and wrong) rows tie, which does not change it
    assert excess_aurc(CONFIDENCE, CORRECT) == pytest.approx((1 / 2 + 1 / 3 - 1 / 3) / 4)
    assert auroc(CONFIDENCE, CORRECT) == pytest.approx(3 / 4)
    assert math.isnan(auroc([0.5, 0.5], [1, 1]))
    assert auroc([0.5, 0.5, 0.5], [1, 0, 1]) == pytest.approx(0.5)


def test_confidence_errors_put_the_edges_where_they_belong() -> None:
    found = confidence_errors([0.0, 0.5, 0.79, 0.8, 0.99, 1.0], [0, 1, 0, 1, 1, 1])
    assert [b.rows for b in found] == [1, 2, 1, 0, 2]
    assert found[1].accuracy == 0.5
    assert math.isnan(found[3].accuracy)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=50))
def test_bins_hold_every_row_once(rows: list[tuple[float, bool]]) -> None:
    confidence, correct = [c for c, _ in rows], [float(y) for _, y in rows]
    assert sum(b.rows for b in bins(confidence, correct, [0, 0.25, 0.5, 1])) == len(rows)
    assert 0 <= ece(confidence, correct) <= 1
    assert excess_aurc(confidence, correct) >= -1e-12


# ----------------------------------------------------------------------------------------------------------- bootstrap


def test_bootstrap_repeats_and_agrees_with_the_normal_limit() -> None:
    right = np.repeat([1.0, 0.0], [800, 200])
    found = bootstrap(right)
    assert found == bootstrap(right)
    half = 1.96 * math.sqrt(0.8 * 0.2 / 1000)
    assert found.low == pytest.approx(0.8 - half, abs=0.003)
    assert found.high == pytest.approx(0.8 + half, abs=0.003)


def test_all_three_ways_of_drawing_agree() -> None:
    rng = np.random.default_rng(1)
    rows = rng.exponential(1.0, 2000)
    few = np.round(rows, 2)
    spread = [np.std(_means(values, 4000, 0)) for values in (rows, few, np.tile(rows, 15))]
    expected = rows.std() / math.sqrt(2000)
    assert spread[0] == pytest.approx(expected, rel=0.05)
    assert spread[1] == pytest.approx(expected, rel=0.05)
    assert spread[2] == pytest.approx(expected / math.sqrt(15), rel=0.05)


def test_paired_difference_is_sharper_than_two_intervals() -> None:
    rng = np.random.default_rng(2)
    base = (rng.random(2000) < 0.8).astype(float)
    better = base.copy()
    better[np.flatnonzero(base == 0)[:30]] = 1
    found = paired_bootstrap(better, base)
    assert found.better
    assert found.p == 0.0
    assert found.mean == pytest.approx(0.015)
    assert not bootstrap(better).low > bootstrap(base).high
    back = paired_bootstrap(base, better)
    assert back.worse
    assert back.p == 1.0


def test_the_same_rival_is_never_better() -> None:
    same = paired_bootstrap([1, 0, 1], [1, 0, 1])
    assert (same.mean, same.low, same.high, same.p, same.better, same.worse) == (0, 0, 0, 1.0, False, False)
    with pytest.raises(ValueError, match="paired rows"):
        paired_bootstrap([1], [1, 2])
