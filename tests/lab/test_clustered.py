"""Means resampled together: against hand-computed cases, and by how often the interval holds the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.lab.bootstrap import bootstrap
from rheostat.lab.clustered import Sample, joint_draws


def each(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32)


def test_with_every_row_its_own_cluster_it_is_the_plain_bootstrap() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    drawn = joint_draws([Sample(values, each(400))], 400, 4000, 0)[:, 0]
    plain = bootstrap(values, 4000)
    assert drawn.mean() == pytest.approx(values.mean(), abs=0.01)
    assert np.quantile(drawn, [0.025, 0.975]) == pytest.approx([plain.low, plain.high], abs=0.03)


def test_two_clusters_can_give_three_means_only() -> None:
    # cluster 0: 1, 1, 1; cluster 1: 0. Drawn (0,0): 1; (1,1): 0; one of each: 3/4. Chances 1/4, 1/4, 1/2.
    sample = Sample(np.array([1.0, 1.0, 1.0, 0.0]), np.array([0, 0, 0, 1], np.int32))
    values, counts = np.unique(joint_draws([sample], 2, 20_000, 3)[:, 0], return_counts=True)
    assert values.tolist() == [0.0, 0.75, 1.0]
    assert counts / 20_000 == pytest.approx([0.25, 0.5, 0.25], abs=0.02)


def test_all_samples_are_drawn_with_the_same_clusters() -> None:
    values = np.random.default_rng(2).random(300)
    drawn = joint_draws([Sample(values, each(300)), Sample(values + 1.0, each(300))], 300, 500, 0)
    assert drawn[:, 1] - drawn[:, 0] == pytest.approx(np.ones(500))


def test_a_draw_without_a_unit_of_a_sample_says_nothing_about_it() -> None:
    few = Sample(np.array([5.0]), np.array([0], np.int32))
    drawn = joint_draws([few, Sample(np.arange(3.0), each(3))], 3, 400, 0)
    assert (drawn[:, 0] == 5.0).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30), st.integers(0, 50), st.floats(-3, 3), st.floats(0.1, 4))
def test_the_draws_follow_the_values_linearly(values: list[float], seed: int, shift: float, scale: float) -> None:
    array = np.array(values)
    first = joint_draws([Sample(array, each(len(array)))], len(array), 50, seed)
    again = joint_draws([Sample(array * scale + shift, each(len(array)))], len(array), 50, seed)
    assert again == pytest.approx(first * scale + shift, abs=1e-9)


def test_beyond_20_000_clusters_the_normal_limit_says_the_same() -> None:
    rng = np.random.default_rng(4)
    sizes = rng.integers(1, 4, 20_000)
    level = np.repeat(rng.normal(0.0, 1.0, 20_000), sizes)
    cluster = np.repeat(each(20_000), sizes)
    a, b = level + rng.normal(0.0, 1.0, len(level)), level + rng.normal(0.1, 1.0, len(level))
    few = joint_draws([Sample(a, cluster), Sample(b, cluster)], 20_000, 400, 0)
    extra = [Sample(np.append(one, one.mean()), np.append(cluster, 20_000).astype(np.int32)) for one in (a, b)]
    many = joint_draws(extra, 20_001, 4000, 0)
    assert many.mean(axis=0) == pytest.approx([a.mean(), b.mean()], abs=0.002)
    assert (many[:, 1] - many[:, 0]).std() == pytest.approx((few[:, 1] - few[:, 0]).std(), rel=0.15)


@pytest.mark.parametrize("clusters", [0, 1])
def test_one_independent_unit_has_no_interval(clusters: int) -> None:
    with pytest.raises(ValueError, match="at least two independent units"):
        joint_draws([Sample(np.ones(3), np.zeros(3, np.int32))], clusters, 10, 0)


def test_an_empty_sample_has_no_mean() -> None:
    with pytest.raises(ValueError, match="no mean"):
        joint_draws([Sample(np.ones(0), np.zeros(0, np.int32))], 3, 10, 0)


def test_the_interval_over_users_holds_the_truth_and_the_one_over_rows_does_not() -> None:
    """40 users with 25 rows each; users differ, so rows of one user say nearly the same thing."""
    rng = np.random.default_rng(5)
    cluster = np.repeat(each(40), 25)
    held = {"users": 0, "rows": 0}
    runs = 200
    for run in range(runs):
        values = np.repeat(rng.normal(0.0, 1.0, 40), 25) + rng.normal(0.0, 1.0, 1000)
        drawn = joint_draws([Sample(values, cluster)], 40, 300, run)
        low, high = np.quantile(drawn, [0.025, 0.975])
        held["users"] += bool(low <= 0.0 <= high)
        plain = bootstrap(values, 300, run)
        held["rows"] += bool(plain.low <= 0.0 <= plain.high)
    assert held["users"] / runs > 0.88  # 95 % nominal; percentile intervals of 40 clusters are a little narrow
    assert held["rows"] / runs < 0.60
