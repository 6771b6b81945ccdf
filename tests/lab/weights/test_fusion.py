"""The mix of scores and the plain ways to weigh it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.lab.weights.fusion import FusionData, by_margin, checked, fixed_blend, losses, mixed, stack

RNG = np.random.default_rng(0)


def data(n: int = 300, models: int = 3, labels: int = 4, seed: int = 0) -> FusionData:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, labels, n)
    odds = rng.normal(size=(n, models, labels))
    odds[np.arange(n), :, truth] += rng.uniform(0.0, 2.0, models)
    scores = np.exp(odds) / np.exp(odds).sum(axis=2, keepdims=True)
    return FusionData(rng.normal(size=(n, 2)), scores, truth)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 50))
def test_the_fixed_blend_is_no_worse_than_any_other(seed: int) -> None:
    some = data(80, seed=seed)
    best = losses(mixed(some.scores, fixed_blend(some)), some.truth).mean()
    for weights in np.random.default_rng(seed).dirichlet(np.ones(3), 20):
        assert best <= losses(mixed(some.scores, weights), some.truth).mean() + 1e-6
    for corner in np.eye(3):
        assert best <= losses(mixed(some.scores, corner), some.truth).mean() + 1e-6


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 50), st.integers(2, 4), st.integers(2, 5))
def test_every_way_gives_a_distribution(seed: int, models: int, labels: int) -> None:
    some = data(40, models, labels, seed)
    weights = by_margin(some.scores)
    assert weights.min() >= 0.0
    assert weights.sum(axis=1) == pytest.approx(1.0)
    for said in (mixed(some.scores, weights), mixed(some.scores, fixed_blend(some)), stack(some).mixed(some.scores)):
        assert said.min() >= 0.0
        assert said.sum(axis=1) == pytest.approx(1.0)


def test_the_stack_is_logistic_regression_on_the_log_odds_for_two_labels() -> None:
    from sklearn.linear_model import LogisticRegression

    some = data(2000, 2, 2)
    odds = np.log(some.scores[:, :, 1] / some.scores[:, :, 0])
    other = LogisticRegression(C=1e6).fit(odds, some.truth)
    found = stack(some)
    assert found.slopes == pytest.approx(other.coef_[0], abs=0.02)
    assert found.mixed(some.scores)[:, 1] == pytest.approx(other.predict_proba(odds)[:, 1], abs=0.01)


def test_data_that_cannot_be_learned_from_is_refused() -> None:
    some = data(30)
    twins = some.scores.copy()
    twins[:, 2] = twins[:, 0]
    hole = some.scores.copy()
    hole[3, 0, 0] = np.nan
    for wrong, said in (
        (some._replace(x=some.x[:5]), "as many rows"),
        (some._replace(scores=some.scores[:, :1]), "two models or more"),
        (some._replace(scores=hole), "NaN or outside"),
        (some._replace(truth=np.zeros(30, np.int64)), "nothing to learn"),
        (some._replace(truth=some.truth + 1), "outside 0 to 3"),
        (some._replace(scores=twins), "models 0 and 2 say the same"),
        (FusionData(some.x[:0], some.scores[:0], some.truth[:0]), "as many rows"),
    ):
        with pytest.raises(ValueError, match=said):
            checked(wrong, "train")
