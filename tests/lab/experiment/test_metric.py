"""What an experiment measures, against hand-computed cases and scikit-learn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_tables import columns, table

from experiment.traffic import ranked, scored, served, with_meta
from rheostat.lab.experiment import (
    Accuracy,
    Auc,
    Custom,
    LogLoss,
    Metric,
    Reward,
    Served,
    TopK,
    Traffic,
    Units,
    parse_metric,
)


def value(metric: Metric, found: Served) -> float:
    return float(units(metric, found).values.mean())


def units(metric: Metric, found: Served) -> Units:
    return metric.units(metric.raw(found), np.arange(len(found.table)), found.traffic)


def test_accuracy_is_the_share_of_right_labels() -> None:
    assert value(Accuracy(), served(ranked([1, 0, 1, 1], [0.9, 0.2, 0.3, 0.8]), "ranker")) == 0.75


def test_log_loss_is_that_of_the_served_mix() -> None:
    made = table([1, 0], {"a": scored([0.9, 0.4]), "b": scored([0.5, 0.8])})
    mixed = served(made, {"blend": {"weights": {"a": 0.75, "b": 0.25}}})
    first, second = 0.75 * 0.9 + 0.25 * 0.5, 0.75 * 0.6 + 0.25 * 0.2
    assert value(LogLoss(), mixed) == pytest.approx(-(math.log(first) + math.log(second)) / 2)
    assert value(LogLoss(), served(made, "a")) == pytest.approx(-(math.log(0.9) + math.log(0.6)) / 2)


def test_a_model_without_scores_spreads_the_rest_of_its_confidence_evenly() -> None:
    labels = ("x", "y", "z")
    made = table([0, 1], {"bare": columns([0, 0], [0.8, 0.8])}, labels=labels)
    assert value(LogLoss(), served(made, "bare")) == pytest.approx(-(math.log(0.8) + math.log(0.1)) / 2)


def test_log_loss_of_a_certain_mistake_stays_finite() -> None:
    assert value(LogLoss(), served(ranked([1], [0.0]), "ranker")) == pytest.approx(-math.log(1e-7))


def test_without_a_probability_the_metric_says_which_model_lacks_it() -> None:
    made = table([0, 1], {"mute": columns([0, 1])})
    with pytest.raises(ValueError, match="mute has neither scores nor a confidence on 2 rows"):
        value(LogLoss(), served(made, "mute"))


def test_auc_by_hand() -> None:
    # liked .9 and .4, others .4 and .1: pairs .9>.4, .9>.1, .4=.4, .4>.1 give 3.5 of 4
    found = served(ranked([1, 1, 0, 0], [0.9, 0.4, 0.4, 0.1]), "ranker")
    assert value(Auc("yes"), found) == pytest.approx(3.5 / 4)
    assert value(Auc(), found) == pytest.approx(3.5 / 4)
    assert value(Auc("no"), found) == pytest.approx(3.5 / 4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=40))
def test_auc_is_that_of_scikit_learn_and_its_spread_that_of_delong(rows: list[tuple[bool, int]]) -> None:
    from sklearn.metrics import roc_auc_score

    liked, score = np.array([like for like, _ in rows]), np.array([place / 6 for _, place in rows])
    if liked.all() or not liked.any():
        return
    made = ranked(liked.astype(int).tolist(), score.tolist())
    found = Auc("yes").units(score, np.arange(len(rows)), Traffic(made)).values
    assert found.mean() == pytest.approx(roc_auc_score(liked, score))
    pairs = (score[liked][:, None] > score[~liked]) + 0.5 * (score[liked][:, None] == score[~liked])
    delong = pairs.mean(axis=1).var() / liked.sum() + pairs.mean(axis=0).var() / (~liked).sum()
    assert found.var() / len(rows) == pytest.approx(delong, abs=1e-12)


def test_auc_of_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="right label of all 2 rows is 'yes'"):
        value(Auc("yes"), served(ranked([1, 1], [0.2, 0.9]), "ranker"))


def test_a_constant_score_is_random() -> None:
    found = served(ranked([1, 0, 0, 0] * 3, [0.5] * 12, ["a"] * 4 + ["b"] * 4 + ["c"] * 4), "blind")
    assert value(Auc("yes"), found) == 0.5
    assert value(TopK(2, "user", "yes"), found) == pytest.approx(0.25)


def test_top_k_by_hand() -> None:
    # user a: .9 liked, .8 not, .1 liked -> 1 of 2; user b: .7 not, .6 liked, .6 not -> half a hit of 2; c has one row
    truth, score = [1, 0, 1, 0, 1, 0, 1], [0.9, 0.8, 0.1, 0.7, 0.6, 0.6, 0.9]
    found = served(ranked(truth, score, ["a", "a", "a", "b", "b", "b", "c"]), "ranker")
    got = units(TopK(2, "user", "yes"), found)
    assert got.values.tolist() == [0.5, 0.25]
    assert [found.traffic.values("user")[row] for row in got.rows] == ["a", "b"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 3)), min_size=1, max_size=24),
    st.integers(1, 4),
)
def test_top_k_with_ties_is_the_mean_over_all_orders(rows: list[tuple[int, bool, int]], k: int) -> None:
    """In each user's rows, k are taken in order of score; a tied row is taken with the share of places left."""
    made = ranked([int(like) for _, like, _ in rows], [s / 3 for *_, s in rows], [f"u{user}" for user, *_ in rows])
    score = np.array([s / 3 for *_, s in rows])
    expected = []
    for user in range(4):
        own = [(s, like) for u, like, s in rows if u == user]
        if len(own) < k:
            continue
        cut = sorted((s for s, _ in own), reverse=True)[k - 1]
        above, tied = [like for s, like in own if s > cut], [like for s, like in own if s == cut]
        expected.append((sum(above) + (k - len(above)) * sum(tied) / len(tied)) / k)
    metric = TopK(k, "user", "yes")
    if not expected:
        with pytest.raises(ValueError, match=f"no top {k}"):
            metric.units(score, np.arange(len(rows)), Traffic(made))
        return
    found = metric.units(score, np.arange(len(rows)), Traffic(made)).values
    assert sorted(found.tolist()) == pytest.approx(sorted(expected))


def test_a_reward_is_earned_by_the_right_label_or_by_each_as_the_row_says() -> None:
    made = table([1, 1, 0], {"m": columns([1, 0, 0], [0.9, 0.9, 0.9])})
    rows = [{"value": 3.0, "pays": {"yes": 2}}, {"value": 5, "pays": {"no": 0.5}}, {"value": 1.0, "pays": {"yes": 9}}]
    found = served(with_meta(made, rows), "m")
    assert value(Reward("meta.value"), found) == pytest.approx((3 + 0 + 1) / 3)
    texts = served(with_meta(made, [{"value": "3.5"}, {"value": "5"}, {"value": "1"}]), "m")  # as a CSV file has it
    assert value(Reward("value"), texts) == pytest.approx(4.5 / 3)
    assert value(Reward("pays"), found) == pytest.approx((2 + 0.5 + 0) / 3)


@pytest.mark.parametrize("bad", ["much", True, None])
def test_a_reward_that_is_no_number_is_named(bad: Any) -> None:
    made = with_meta(table([1], {"m": columns([1], [0.9])}), [{"value": bad}])
    with pytest.raises(ValueError, match=r"meta\.value: expected a number"):
        value(Reward("value"), served(made, "m"))


def test_a_metric_of_ones_own_must_be_finite() -> None:
    found = served(ranked([1, 0], [0.9, 0.1]), "ranker")
    waiting = Custom("waiting", lambda one: one.latency_s * 1000, lower_is_better=True)
    assert value(waiting, found) == pytest.approx(10.0)
    with pytest.raises(ValueError, match="1 values are NaN"):
        value(Custom("broken", lambda _: np.array([1.0, math.nan])), found)


def test_a_preset_counts_as_sure_of_what_it_said() -> None:
    made = table([1, 0], {"m": columns([0, 0], [0.7, 0.7])})
    one = served(made, "m")
    preset = Served(
        one.traffic, np.array([1, 1], np.int32), np.array([np.nan, 0.6]), np.zeros((2, 1), np.float32), one.called,
        one.cost, one.latency_s,
    )  # fmt: skip
    assert preset.probability(np.array([1, 1], np.int32)).tolist() == [1.0, 0.6]
    assert preset.probability(np.array([0, 0], np.int32)).tolist() == [0.0, 0.0]


def test_metrics_are_written_as_words() -> None:
    assert parse_metric("accuracy") == Accuracy()
    assert parse_metric("log-loss") == LogLoss()
    assert parse_metric("auc", positive="yes") == Auc("yes")
    assert parse_metric("top@3", positive="yes", by="meta.user") == TopK(3, "meta.user", "yes")
    assert parse_metric("reward:meta.value") == Reward("meta.value")


@pytest.mark.parametrize(
    ("text", "given", "told"),
    [
        ("f1", {}, "unknown metric 'f1'; known: accuracy"),
        ("top@x", {}, "unknown metric"),
        ("reward:", {}, "unknown metric"),
        ("top@3", {}, "needs the label that counts as a hit"),
        ("top@3", {"positive": "yes"}, "name the meta field"),
        ("top@0", {"positive": "yes", "by": "user"}, "must be 1 or more"),
    ],
)
def test_a_metric_that_is_none_says_what_there_is(text: str, given: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_metric(text, **given)


def test_a_label_that_nobody_says_is_named() -> None:
    with pytest.raises(ValueError, match="no label 'maybe' in the table; labels: no, yes"):
        value(Auc("maybe"), served(ranked([1, 0], [0.9, 0.1]), "ranker"))
    three = table([0, 1], {"m": columns([0, 1], [0.5, 0.5])}, labels=("a", "b", "c"))
    with pytest.raises(ValueError, match="AUC needs the label that counts as a hit; labels: a, b, c"):
        value(Auc(), served(three, "m"))
