"""What each model brought: against tables worked out by hand, and the laws of the Shapley value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_tables import columns, synthetic, table

from rheostat.lab.contribution import Contribution, contribution
from rheostat.lab.outcomes import FAILURE_KINDS, ModelInfo, OutcomesTable
from rheostat.lab.segments import by_confidence
from rheostat.policies import Blend, Cascade, Review, Use

CRASHED = 1 + FAILURE_KINDS.index("crashed")
CASCADE = Cascade(stages=("a", "b"), threshold=0.5)


def four() -> OutcomesTable:
    """Rows: both right; only a; only b; nobody. a is sure of the first two only, so the cascade is right on three."""
    a = columns([1, 1, 0, 0], [0.9, 0.9, 0.1, 0.1], cost=1.0)
    return table([1] * 4, {"a": a, "b": columns([1, 0, 1, 0], [0.8] * 4, cost=9.0)}, info={"b": ModelInfo(cost=9.0)})


def of(found: Contribution, model: str) -> tuple[float, float, int, int, int]:
    one = next(one for one in found.models if one.model == model)
    return one.shapley.mean, one.without, one.only, one.fixed, one.broke


def test_a_cascade_by_hand() -> None:
    # v(a) = 2/4, v(b) = 2/4, v(ab) = 3/4; each adds 2/4 when first and 1/4 when second: (2 + 1) / 8
    found = contribution("cascade", CASCADE, four(), draws=100)
    assert (found.rows, found.accuracy, found.all_right, found.none_right) == (4, 0.75, 1, 1)
    assert of(found, "a") == (0.375, 0.5, 1, 1, 0)
    assert of(found, "b") == (0.375, 0.5, 1, 1, 0)
    assert [one.weight for one in found.models] == [0.5, 0.5]


def test_a_policy_that_breaks_what_a_model_had_right() -> None:
    # the blend follows b on every row, so that a brings nothing but what it adds when b is down
    found = contribution("blend", Blend(weights={"a": 0.1, "b": 0.9}), four(), draws=100)
    assert found.accuracy == 0.5
    assert of(found, "a") == (0.25, 0.5, 1, 1, 1)
    assert of(found, "b") == (0.25, 0.5, 1, 0, 0)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(*[st.tuples(st.booleans(), st.sampled_from([0.2, 0.6, 0.9]))] * 3), min_size=2, max_size=15))
def test_what_the_models_brought_adds_up_to_the_accuracy(rows: list[tuple[tuple[bool, float], ...]]) -> None:
    models = {
        name: columns([int(row[at][0]) for row in rows], [row[at][1] for row in rows], cost=1.0 + at)
        for at, name in enumerate("abc")
    }
    made = table([1] * len(rows), models)
    for policy in (Cascade(stages=("a", "b", "c"), threshold=0.5), Blend(weights={"a": 1.0, "b": 1.0, "c": 1.0})):
        found = contribution("it", policy, made, draws=20)
        assert sum(one.shapley.mean for one in found.models) == pytest.approx(found.accuracy)
        assert sum(one.weight for one in found.models) == pytest.approx(1.0)


def test_two_models_that_say_the_same_share_what_they_bring() -> None:
    right = np.random.default_rng(0).random(60) < 0.7
    same = columns(right.astype(int).tolist(), [0.9] * 60)
    found = contribution("blend", Blend(weights={"a": 1.0, "b": 1.0}), table([1] * 60, {"a": same, "b": same}), draws=100)
    first, second = (one.shapley.mean for one in found.models)
    assert first == pytest.approx(second) == pytest.approx(right.mean() / 2)
    assert [one.only for one in found.models] == [0, 0]


def test_where_it_helped_and_where_it_hurt() -> None:
    """a is right when sure; b is right when a is not, and wrong when a is sure."""
    sure = np.arange(200) < 100
    a = columns(sure.astype(int).tolist(), np.where(sure, 0.96, 0.3).tolist(), cost=1.0)
    b = columns((~sure).astype(int).tolist(), [0.8] * 200, cost=9.0)
    made = table([1] * 200, {"a": a, "b": b})
    found = contribution("cascade", CASCADE, made, segments=[by_confidence(made, "a")], draws=200)
    where = {one.segment: one for one in found.where["confidence of a"]}
    assert found.best == "a"
    assert (where["0-0.5"].rows, where["0-0.5"].mean, where["0-0.5"].said) == (100, 1.0, "helped")
    assert where["0.95-0.99"].said == "no difference shown"
    against = contribution("b first", Cascade(stages=("b", "a"), threshold=0.9), made, segments=[by_confidence(made, "a")])
    assert against.accuracy == 0.5
    part = made.subset(np.arange(75, 110))
    few = contribution("cascade", CASCADE, part, segments=[by_confidence(part, "a")], draws=50)
    assert [one.said for one in few.where["confidence of a"]] == ["too small to say", "too small to say"]


def test_rows_without_an_answer_of_one_model_are_left_out() -> None:
    made = four()
    b = columns([1, 0, 1, 0], [0.8] * 4, failure=[0, 0, CRASHED, 0])
    found = contribution("cascade", CASCADE, table([1] * 4, {"a": made.columns["a"], "b": b}), draws=20)
    assert found.rows == 3


def test_a_row_left_to_a_person_is_not_the_policys() -> None:
    found = contribution("asks", Review(policy=CASCADE, below=0.85), four(), draws=20)
    assert found.accuracy == 0.5  # the two rows that a is sure of


def test_what_cannot_be_taken_apart_is_refused() -> None:
    with pytest.raises(ValueError, match="2 to 6 models, the policy has 1"):
        contribution("one", Use("a"), four())
    many = {f"m{at}": columns([1, 0], [0.5, 0.5]) for at in range(7)}
    with pytest.raises(ValueError, match="2 to 6 models, the policy has 7"):
        contribution("many", Blend(weights=dict.fromkeys(many, 1.0)), table([1, 1], many))
    with pytest.raises(ValueError, match="confidence of a groups 4 rows, the table has 2"):
        contribution("it", CASCADE, four().subset(np.arange(2)), segments=[by_confidence(four(), "a")])
    with pytest.raises(ValueError, match=r"no row can be used: {'no right label given': 2}"):
        contribution("it", CASCADE, table([-1, -1], {"a": columns([1, 0]), "b": columns([1, 0])}))
    with pytest.raises(ValueError, match="no row can be used: the table is empty"):
        contribution("it", CASCADE, four().subset(np.zeros(0, int)))


def test_the_interval_is_that_of_the_rows() -> None:
    made = synthetic(600)
    found = contribution("cascade", Cascade(stages=("small", "large"), threshold=0.8), made, draws=300)
    for one in found.models:
        assert one.shapley.low < one.shapley.mean < one.shapley.high
        assert one.shapley.n == 600
