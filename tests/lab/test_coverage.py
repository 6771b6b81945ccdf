"""Answers left to a person: counted apart, and what another floor would have left."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_tables import columns, table

from rheostat.lab.coverage import coverage
from rheostat.lab.figures import figures
from rheostat.lab.replay import replay
from rheostat.policies import Review, Use


def test_hand_computed() -> None:
    made = table([0, 0, 0, 0], {"one": columns([0, 1, 0, 1], [0.9, 0.4, 0.3, 0.8]), "two": columns([0, 0, 0, 0])})
    for label in (None, "unsure"):
        played = replay(Review(policy=Use("one"), below=0.5, label=label), made)
        assert played.review.tolist() == [False, True, True, False]
        assert played.guess.tolist() == [0, 1, 0, 1]
        found = coverage(played, (0.0, 0.5, 0.85, 1.0))
        assert [each.coverage for each in found] == [1.0, 0.5, 0.25, 0.0]
        assert [each.error for each in found[:3]] == [0.5, 0.5, 0.0]
        assert [each.left_error for each in found[1:]] == [0.5, pytest.approx(2 / 3), 0.5]
        assert math.isnan(found[0].left_error)
        assert math.isnan(found[3].error)
        told, _ = figures(Review(policy=Use("one"), below=0.5, label=label), made, ("one", "two"))
        assert (told.n, told.reviewed, told.unanswered) == (2, 2, 0)
        assert told.coverage[0].error == 0.5


def test_without_a_review_there_is_no_table() -> None:
    made = table([0], {"one": columns([0], [0.9]), "two": columns([0])})
    assert figures(Use("one"), made, ("one", "two"))[0].coverage == ()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), min_size=1, max_size=40))
def test_what_stands_and_what_is_left_add_up(rows: list[tuple[int, float]]) -> None:
    said, sure = zip(*rows, strict=True)
    made = table([0] * len(rows), {"one": columns(list(said), list(sure)), "two": columns([0] * len(rows))})
    found = coverage(replay(Use("one"), made))
    assert [each.coverage for each in found] == sorted((each.coverage for each in found), reverse=True)
    for each in found:
        parts = (each.coverage * each.error, (1.0 - each.coverage) * each.left_error)
        assert np.nansum(parts) == pytest.approx(np.mean(np.array(said) != 0))
