"""Estimators against a hand-computed log, a synthetic log of known truth, and every log that cannot answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.lab.ope import ESTIMATORS, Log, OpeRefused, check_overlap, evaluate, overlap
from rheostat.lab.ope.estimators import contributions
from rheostat.lab.ope.regression import Predicted, cross_fitted, folds


def synthetic(n: int, seed: int, **changes: Any) -> tuple[Log, float]:
    """A log of a softmax policy over four actions, and the true value of the opposite softmax on the same contexts."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    slope = np.random.default_rng(1).normal(size=(3, 4)) * 0.5
    mean = 1.0 / (1.0 + np.exp(-x @ slope))
    logging, target = (np.exp(sign * 0.8 * x @ slope) for sign in (1.0, -1.0))
    logging /= logging.sum(axis=1, keepdims=True)
    target /= target.sum(axis=1, keepdims=True)
    action = (logging.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1).astype(np.int32)
    rows = np.arange(n)
    fields: dict[str, Any] = {
        "action": action,
        "reward": (rng.random(n) < mean[rows, action]).astype(float),
        "propensity": logging[rows, action],
        "target": target,
        "actions": ("a", "b", "c", "d"),
        "features": x,
    }
    return Log(**(fields | changes)), float((mean * target).sum(axis=1).mean())


def small(**changes: Any) -> Log:
    fields: dict[str, Any] = {
        "action": np.array([0, 0, 1, 1], np.int32),
        "reward": np.array([1.0, 0.0, 1.0, 1.0]),
        "propensity": np.array([0.5, 0.5, 0.25, 0.5]),
        "target": np.array([[0.25, 0.75], [0.5, 0.5], [0.5, 0.5], [1.0, 0.0]]),
        "actions": ("a", "b"),
    }
    return Log(**(fields | changes))


def test_every_estimator_on_four_rows_by_hand() -> None:
    log = small()
    assert log.weights.tolist() == [0.5, 1.0, 2.0, 0.0]
    model = Predicted(np.array([0.5, 0.5, 0.6, 0.4]), np.array([0.6, 0.4, 0.5, 0.9]), "by hand")
    columns = contributions(log, model, 1.0)
    assert columns["ips"].mean() == pytest.approx((0.5 + 2.0) / 4)
    assert columns["ips"].sum() / columns["weight"].sum() == pytest.approx(2.5 / 3.5)
    assert columns["dm"].mean() == pytest.approx(0.5)
    assert columns["dr"].tolist() == pytest.approx([0.5 + 0.5 * 0.4, 0.5 - 0.4, 0.6 + 2.0 * 0.5, 0.4])
    assert columns["switch-dr"].tolist() == pytest.approx([0.7, 0.1, 0.6, 0.4])
    found = overlap(log)
    assert found.ess == pytest.approx(3.5**2 / 5.25)
    assert found.max_weight == 2.0


@pytest.mark.parametrize("method", ["ridge", "boosted"])
def test_the_truth_lies_within_the_interval_and_far_from_what_was_logged(method: str) -> None:
    log, truth = synthetic(4000, 3)
    found = evaluate(log, method=method, draws=500)
    for name in ("ips", "snips", "dr", "switch-dr"):
        assert found.values[name].low < truth < found.values[name].high, name
    assert found.lifts["dr"].worse
    assert found.values["dr"].high - found.values["dr"].low < found.values["ips"].high - found.values["ips"].low
    assert found == evaluate(log, method=method, draws=500)


def test_a_policy_judged_on_its_own_log_earns_what_was_logged() -> None:
    log, _ = synthetic(3000, 4)
    own = np.exp(0.8 * log.features @ np.random.default_rng(1).normal(size=(3, 4)) * 0.5)  # type: ignore[operator]
    own /= own.sum(axis=1, keepdims=True)
    found = evaluate(Log(log.action, log.reward, log.propensity, own, log.actions, log.features), draws=300)
    assert found.overlap.ess == pytest.approx(3000)
    assert found.values["ips"].mean == pytest.approx(found.logged.mean)
    assert found.values["dr"].mean == pytest.approx(found.logged.mean, abs=0.01)


def test_clusters_stay_in_one_fold_and_widen_the_interval() -> None:
    log, _ = synthetic(400, 5)
    cluster = np.repeat(np.arange(400), 5).astype(np.int32)
    again = Log(
        np.repeat(log.action, 5), np.repeat(log.reward, 5), np.repeat(log.propensity, 5), np.repeat(log.target, 5, axis=0),
        log.actions, cluster=cluster,
    )  # fmt: skip
    dealt = folds(again.clusters, 0)
    assert (dealt.reshape(-1, 5) == dealt.reshape(-1, 5)[:, :1]).all()
    alone = Log(again.action, again.reward, again.propensity, again.target, again.actions)
    wide, narrow = (evaluate(each, draws=500).values["ips"] for each in (again, alone))
    assert wide.mean == pytest.approx(narrow.mean)
    assert wide.high - wide.low > 1.7 * (narrow.high - narrow.low)


@settings(max_examples=20, deadline=None)
@given(st.integers(20, 200), st.integers(0, 10_000), st.floats(-3, 3), st.floats(0.1, 5))
def test_estimates_move_with_the_reward(n: int, seed: int, shift: float, scale: float) -> None:
    log, _ = synthetic(n, seed)
    model = Predicted(np.full(n, 0.4), np.full(n, 0.5), "given")
    moved = Log(log.action, shift + scale * log.reward, log.propensity, log.target, log.actions)
    after = Predicted(shift + scale * model.value, shift + scale * model.logged, "given")
    one, two = contributions(log, model, 1.0), contributions(moved, after, 1.0)
    for name in ("dm", "dr", "switch-dr"):
        assert two[name] == pytest.approx(shift + scale * one[name])


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"propensity": np.array([0.5, 0.0, 0.5, 0.5])}, r"`propensity` must lie in \(0, 1\]"),
        ({"propensity": np.array([0.5, 1.5, 0.5, 0.5])}, "such as 1.5"),
        ({"propensity": np.array([0.5, np.nan, 0.5, 0.5])}, "`propensity`: 1 rows are NaN"),
        ({"reward": np.array([0.5, np.nan, np.inf, 0.5])}, "`reward`: 2 rows are NaN"),
        ({"reward": np.zeros(3)}, "`reward` has 3 rows"),
        ({"target": np.full((4, 2), 0.3)}, "sum to 1"),
        ({"action": np.array([0, 1, 2, 0], np.int32)}, r"outside 0\.\.1"),
        ({"action": np.zeros(0, np.int32)}, "the log is empty"),
    ],
)
def test_a_broken_log_is_refused_with_its_field(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        small(**changes)


def test_a_log_without_chance_overlap_or_differences_is_refused_with_what_to_do() -> None:
    log, _ = synthetic(1000, 6)
    n = len(log)
    with pytest.raises(OpeRefused, match=r"every logged choice was certain.*split.*bandit"):
        evaluate(Log(log.action, log.reward, np.ones(n), log.target, log.actions))
    five = np.column_stack([log.target * 0.9, np.full(n, 0.1)])
    with pytest.raises(OpeRefused, match=r"'e' for 10\.0% .* never chose it"):
        evaluate(Log(log.action, log.reward, log.propensity, five, (*log.actions, "e")))
    half = np.where(np.arange(n) % 2, 1.0, log.propensity)
    with pytest.raises(OpeRefused, match="certain of another choice"):
        evaluate(Log(log.action, log.reward, half, log.target, log.actions))
    with pytest.raises(OpeRefused, match="every reward is 1"):
        evaluate(Log(log.action, np.ones(n), log.propensity, log.target, log.actions))
    few, _ = synthetic(40, 6)
    with pytest.raises(OpeRefused, match=r"too little overlap: 40 rows count like .* collect about"):
        evaluate(few)


def test_propensities_that_are_not_those_of_the_choices_are_noticed() -> None:
    log, _ = synthetic(5000, 7)
    wrong = Log(log.action, log.reward, np.full(5000, 0.25), log.target, log.actions, log.features)
    found = evaluate(wrong, draws=200)
    assert found.overlap.misfit
    assert any("mean weight" in warning for warning in found.warnings)


def test_regression_without_features_is_a_level_per_action_and_needs_enough_clusters() -> None:
    log, _ = synthetic(4000, 8, features=None)
    found = cross_fitted(log)
    for code in range(4):
        mine = log.action == code
        assert found.logged[mine].mean() == pytest.approx(log.reward[mine].mean(), abs=0.03)
    with pytest.raises(ValueError, match="at least 5 independent"):
        cross_fitted(small())
    with pytest.raises(ValueError, match="ridge or boosted"):
        cross_fitted(log, "oracle")


def test_enough_overlap_passes() -> None:
    assert check_overlap(synthetic(1000, 9)[0]).ess > 50
    assert len(ESTIMATORS) == 5
