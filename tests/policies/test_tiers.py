from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.policies import models_of, parse_policy, signals_of
from rheostat.testing import check_policy
from rheostat.types import Answer, Call, Context, Outcome, Prediction, Request

THREE = {"signal": "d", "cuts": [0.3, 0.7], "use": ["s", "m", "l"]}


def asked(node: dict[str, object], value: float, held: str | None = None) -> str:
    context = Context(Request(id="1", data="a", text="a"), {"d": value}, {}, {"tiers": held} if held else {})
    decision = parse_policy({"tiers": node}).decide(context, ())
    assert isinstance(decision, Call)
    return decision.models[0]


@pytest.mark.parametrize(
    ("value", "model"), [(-9, "s"), (0.2999, "s"), (0.3, "m"), (0.6999, "m"), (0.7, "l"), (9, "l"), (float("inf"), "l")]
)
def test_a_cut_belongs_to_the_harder_tier(value: float, model: str) -> None:
    assert asked(THREE, value) == model


@pytest.mark.parametrize(
    ("value", "held", "model"),
    [
        (0.34, "0", "s"),  # within .05 of the border: stays
        (0.35, "0", "m"),  # the margin's own end moves up
        (0.25, "1", "m"),  # and down it stays
        (0.24, "1", "s"),
        (0.72, "0", "l"),  # two tiers away
        (0.66, "2", "l"),
        (0.5, "9", "m"),  # a memory of other cuts is no use
        (0.34, None, "m"),
    ],
)
def test_hysteresis(value: float, held: str | None, model: str) -> None:
    assert asked(THREE | {"hysteresis": 0.05}, value, held) == model


def test_an_answer_is_held_and_tiers_nest() -> None:
    policy = parse_policy({"tiers": THREE | {"use": ["s", {"cascade": {"stages": ["m", "l"], "threshold": 0.8}}, "l"],
                                             "hysteresis": 0.1}})  # fmt: skip
    assert models_of(policy) == ("s", "m", "l")
    assert signals_of(policy) == ("d",)
    context = Context(Request(id="1", data="a", text="a"), {"d": 0.5}, {}, {})
    answer = policy.decide(context, (Outcome("m", Prediction("a", 0.9), served_by="m"),))
    assert isinstance(answer, Answer)
    assert answer.hold == ("tiers", "1")


def test_bucket_hides_a_trifle() -> None:
    assert asked(THREE | {"bucket": 0.2}, 0.39) == asked(THREE | {"bucket": 0.2}, 0.21) == "s"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cuts": []}, "1 to 4"),
        ({"cuts": [0.1, 0.2, 0.3, 0.4, 0.5]}, "1 to 4"),
        ({"cuts": [0.7, 0.3]}, "must rise"),
        ({"cuts": [0.3, 0.3]}, "must rise"),
        ({"cuts": [0.3, float("nan")]}, "finite"),
        ({"use": ["s", "m"]}, "one entry more"),
        ({"hysteresis": 0.0}, "above 0"),
        ({"bucket": -1}, "0 \\(off\\) or more"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_policy({"tiers": THREE | change})


@given(st.floats(allow_nan=False), st.floats(0.01, 1))
def test_a_tremble_smaller_than_the_margin_never_moves_a_held_tier(value: float, margin: float) -> None:
    node = THREE | {"hysteresis": margin}
    tier = str("sml".index(asked(node, value)))
    for moved in (value - 0.4 * margin, value + 0.4 * margin):
        assert asked(node, moved, tier) == asked(node, value)


def test_the_laws() -> None:
    context = Context(Request(id="1", data="a", text="a"), {"d": 0.5}, {}, {})
    outcomes = {model: Outcome(model, Prediction("a", 0.9), served_by=model) for model in "sml"}
    assert check_policy(parse_policy({"tiers": THREE | {"hysteresis": 0.1}}), context, outcomes) == ["m"]
