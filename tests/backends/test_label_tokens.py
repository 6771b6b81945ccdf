"""The distribution over labels from the chances of their tokens."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.backends.label_tokens import TokenChances, label_scores
from rheostat.backends.token_confidence import confidence_of
from rheostat.errors import ModelError


def position(token: int, chance: float | None, **others: float) -> dict[str, Any]:
    top = [{"id": int(name[1:]), "logprob": value} for name, value in others.items()]
    return {"id": token, "logprob": chance, "top_logprobs": top}


def test_a_chance_is_that_of_all_tokens_one_after_another() -> None:
    known = TokenChances()
    known.learn((), position(7, -1.0, t8=-2.0))
    known.learn((7,), position(9, -0.5))
    assert (known.of((7,)), known.of((8,)), known.of((7, 9)), known.of((8, 9))) == (-1.0, -2.0, -1.5, None)


@pytest.mark.parametrize("broken", [None, math.nan, "x", 0.5])
def test_a_chance_that_is_none_is_bad_output(broken: Any) -> None:
    with pytest.raises(ModelError) as caught:
        TokenChances().learn((), position(7, broken))
    assert caught.value.kind == "bad_output"


def test_a_label_that_another_goes_on_from_has_only_its_own_share() -> None:
    written = ((1,), (1, 2), (1, 2, 3), (4,))
    scores = label_scores(("a", "ab", "abc", "d"), written, [math.log(each) for each in (0.4, 0.3, 0.1, 0.2)])
    assert scores == pytest.approx({"a": 0.1 / 0.6, "ab": 0.2 / 0.6, "abc": 0.1 / 0.6, "d": 0.2 / 0.6})


def test_chances_too_small_for_a_float_are_still_compared() -> None:
    assert label_scores(("a", "b"), ((1,), (2,)), (-2000.0, -2001.0)) == pytest.approx({"a": 0.731, "b": 0.269}, abs=1e-3)


@given(tree=st.recursive(st.just({}), lambda inner: st.dictionaries(st.integers(0, 3), inner, min_size=1, max_size=3)),
       seed=st.integers(0, 99))  # fmt: skip
def test_the_scores_are_those_of_the_whole_answers(tree: dict[int, Any], seed: int) -> None:
    """Answers are drawn token by token from a tree; each node is a label, and may be where the answer ends."""
    ends: dict[tuple[int, ...], float] = {}
    begins: dict[tuple[int, ...], float] = {}

    def walk(node: dict[int, Any], path: tuple[int, ...], mass: float) -> None:
        begins[path] = mass
        weights = [1.0 + (seed * 7 + sum(path) * 3 + each) % 5 for each in (9, *node)]
        ends[path] = mass * weights[0] / sum(weights)
        for (token, child), weight in zip(node.items(), weights[1:], strict=True):
            walk(child, (*path, token), mass * weight / sum(weights))

    walk({0: {}, **tree}, (), 1.0)
    written = tuple(path for path in begins if path)
    names = tuple(str(path) for path in written)
    scores = label_scores(names, written, [math.log(begins[path]) for path in written])
    total = sum(ends[path] for path in written)
    assert scores == pytest.approx({name: ends[path] / total for name, path in zip(names, written, strict=True)}, abs=1e-9)


def test_how_sure_a_text_is() -> None:
    tokens = [position(1, math.log(0.8), t1=math.log(0.8), t2=math.log(0.1)), position(2, math.log(0.2), t2=math.log(0.2))]
    assert confidence_of(tokens, "mean_logprob") == pytest.approx(0.4)
    assert confidence_of(tokens, "margin") is None  # one alternative alone tells no distance
    tokens[1] = position(2, math.log(0.2), t2=math.log(0.25), t3=math.log(0.05))
    assert confidence_of(tokens, "margin") == pytest.approx((0.7 + 0.2) / 2)
    assert confidence_of([position(3, math.log(0.1), t1=math.log(0.5), t2=math.log(0.4))], "margin") == pytest.approx(0.1)
    assert confidence_of([], "mean_logprob") is None
    assert confidence_of([position(1, None)], "mean_logprob") is None
