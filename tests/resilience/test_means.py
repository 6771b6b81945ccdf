"""Running means: what they are, how many there can be, and what never enters one."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.resilience.means import LEAST, MAX_LABELS, WINDOW, Mean, Means

SURE = {"x": 1.0, "y": 0.0}
UNSURE = {"x": 0.5, "y": 0.5}


def noted(means: Means, count: int, scores: dict[str, float] = SURE, *, segment: str = "", version: str = "1") -> Means:
    for _ in range(count):
        means.note("m", version, {segment}, scores)
    return means


def test_it_is_the_plain_mean_while_there_are_few() -> None:
    mean = Mean()
    for _ in range(30):
        mean = mean.with_one(SURE).with_one(UNSURE)
    assert mean.scores == pytest.approx({"x": 0.75, "y": 0.25})


def test_it_follows_a_model_that_drifts() -> None:
    mean = Mean()
    for _ in range(10_000):
        mean = mean.with_one({"x": 1.0})
    for _ in range(5 * WINDOW):
        mean = mean.with_one({"y": 1.0})
    assert mean.scores["y"] == pytest.approx(1.0, abs=0.01)


def test_it_needs_enough_answers() -> None:
    assert noted(Means(), LEAST - 1).of("m", "1", ()) == {}
    assert noted(Means(), LEAST).of("m", "1", ()) == {"": pytest.approx(SURE)}


def test_another_version_begins_anew() -> None:
    assert noted(Means(), LEAST, version="1").of("m", "2", ()) == {}


def test_segments_are_apart_and_all_count_for_the_model() -> None:
    means = noted(Means(), LEAST, SURE, segment="site=north")
    noted(means, LEAST, UNSURE, segment="site=south")
    found = means.of("m", "1", {"site=north", "site=east"})
    assert found == {"": pytest.approx({"x": 0.75, "y": 0.25}), "site=north": pytest.approx(SURE)}


@pytest.mark.parametrize("scores", [{"x": nan}, {"x": inf}, {"x": -0.5, "y": 1.5}, {"x": 0.0}, {"x": inf, "y": -inf}])
def test_scores_that_are_none_change_nothing(scores: dict[str, float]) -> None:
    mean = Mean().with_one(SURE)
    assert mean.with_one(scores) == mean


def test_a_mean_that_was_given_out_stays_as_it_was() -> None:
    means = noted(Means(), LEAST)
    given_out = means.of("m", "1", ())[""]
    before = dict(given_out)
    noted(means, 50, UNSURE)
    assert given_out == before


def test_a_client_who_makes_up_segments_fills_no_memory() -> None:
    means = Means(limit=100)
    for number in range(10_000):
        means.note("m", "1", {f"site={number}" + "x" * (number % 3) * 100_000}, SURE)
    assert len(means) == 100
    assert max(len(part) for key in means._means for part in key) <= 64
    assert "" in means.of("m", "1", ()), "what all requests make is used by each, so it stays"


def test_labels_are_bounded_too() -> None:
    mean = Mean()
    for number in range(3 * MAX_LABELS):
        mean = mean.with_one({"x": 0.5, f"y{number}": 0.5})
    assert len(mean.scores) == MAX_LABELS
    assert sum(mean.scores.values()) == pytest.approx(1.0)


def test_a_limit_is_one_or_more() -> None:
    with pytest.raises(ValueError, match="`limit` must be 1 or more"):
        Means(limit=0)


@given(st.lists(st.dictionaries(st.sampled_from("xyz"), st.floats(0.0, 1.0), min_size=1), min_size=1, max_size=60))
def test_a_mean_is_a_distribution(all_scores: list[dict[str, float]]) -> None:
    mean = Mean()
    for scores in all_scores:
        mean = mean.with_one(scores)
    assert mean.count == 0 or sum(mean.scores.values()) == pytest.approx(1.0, abs=1e-9)
    assert all(0.0 <= score <= 1.0 + 1e-12 for score in mean.scores.values())
