"""Choosing among any number of models, by example and by law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rheostat.lab.many import pick
from rheostat.policies import Cheapest, models_of, parse_policy, signals_of
from rheostat.policies.cheapest import reservation
from rheostat.types import Answer, Call, Context, Decline, Failure, ModelView, Outcome, Prediction, Request

COST = {"s": 1.0, "m": 4.0, "l": 20.0}


def ctx(quality: dict[str, float], down: tuple[str, ...] = (), awaited: dict[str, tuple[str, ...]] | None = None) -> Context:
    pool = {name: ModelView(name, cost=cost, available=name not in down) for name, cost in COST.items()}
    signals = {f"q.{name}": value for name, value in quality.items()}
    return Context(Request(id="1", data="a", text="a"), signals, pool, {}, awaited=awaited or {})


def ok(model: str, confidence: float | None) -> Outcome:
    return Outcome(model, Prediction("a", confidence), served_by=model)


def bad(model: str) -> Outcome:
    return Outcome(model, failure=Failure("timeout"), served_by=model)


def policy(**more: object) -> Cheapest:
    made = parse_policy({"cheapest": {"of": ["s", "m", "l"], "quality": "q", **more}})
    assert isinstance(made, Cheapest)
    return made


def asked(made: Cheapest, context: Context, *history: Outcome) -> str:
    decision = made.decide(context, history)
    assert isinstance(decision, Call), decision
    (model,) = decision.models
    return model


QUALITY = {"s": 0.6, "m": 0.8, "l": 0.9}


@pytest.mark.parametrize(("bar", "model"), [(0.5, "s"), (0.6, "s"), (0.61, "m"), (0.9, "l"), (0.95, "l")])
def test_the_cheapest_that_reaches_the_bar(bar: float, model: str) -> None:
    assert asked(policy(bar=bar), ctx(QUALITY)) == model


@pytest.mark.parametrize(("trade", "model"), [(0.0, "l"), (0.005, "l"), (0.007, "m"), (0.06, "m"), (0.07, "s")])
def test_what_a_unit_of_cost_has_to_bring(trade: float, model: str) -> None:
    # l over m: .1 for 16, that is .00625 a unit; m over s: .2 for 3, that is .0667
    assert asked(policy(trade=trade), ctx(QUALITY)) == model


def test_a_budget_moves_the_bar() -> None:
    made = policy(bar="spend.day")
    assert "spend.day" in signals_of(made)
    for bar, model in ((0.1, "s"), (0.7, "m"), (0.85, "l")):
        context = ctx(QUALITY)
        assert asked(made, structs.replace(context, signals={**context.signals, "spend.day": bar})) == model


def test_the_guard_leaves_the_best_model_only_for_a_margin() -> None:
    near = {"s": 0.6, "m": 0.84, "l": 0.8}
    assert asked(policy(best="l", margin=0.05), ctx(near)) == "l"
    assert asked(policy(best="l", margin=0.03), ctx(near)) == "m"
    assert asked(policy(best="l", margin=0.05, bar=0.5), ctx(near)) == "l"
    assert asked(policy(best="l", margin=-0.3, trade=0.1), ctx(near)) == "s"


def test_what_is_down_or_failed_is_passed_over() -> None:
    assert asked(policy(bar=0.5), ctx(QUALITY, down=("s",))) == "m"
    assert asked(policy(bar=0.5), ctx(QUALITY, down=("s", "m", "l"))) == "s"  # none is up: try all the same
    assert asked(policy(bar=0.5), ctx(QUALITY), bad("s")) == "m"
    assert policy().decide(ctx(QUALITY), (bad("l"), bad("m"), ok("s", 0.1))).weights == {"s": 1.0}  # type: ignore[union-attr]
    assert policy().decide(ctx(QUALITY), (bad("l"), bad("m"), bad("s"))) == Decline("every model failed", failed=True)
    assert asked(policy(best="l", margin=0.0, trade=0.1), ctx(QUALITY), bad("l")) == "s"  # the guard's own model failed


def test_the_bar_again_after_each_answer() -> None:
    made = policy(bar=0.7, asks=2)
    assert asked(made, ctx(QUALITY)) == "m"
    assert made.decide(ctx(QUALITY), (ok("m", 0.75),)).weights == {"m": 1.0}  # type: ignore[union-attr]
    assert asked(made, ctx(QUALITY), ok("m", 0.4)) == "l"
    end = made.decide(ctx(QUALITY), (ok("m", 0.4), ok("l", 0.3)))
    assert isinstance(end, Answer)
    assert end.weights == {"m": 1.0}  # the better of the two in hand


def test_another_is_asked_while_that_pays() -> None:
    made = policy(trade=0.01, asks=3, reveal=0.5)
    # index: mean + half of what is missing - price / mean; s .7833, m .85, l .7278
    assert asked(made, ctx(QUALITY)) == "m"
    assert isinstance(made.decide(ctx(QUALITY), (ok("m", 0.79),)), Answer)
    assert asked(made, ctx(QUALITY), ok("m", 0.75)) == "s"
    assert asked(made, ctx(QUALITY), ok("m", 0.6), ok("s", 0.7)) == "l"
    end = made.decide(ctx(QUALITY), (ok("m", 0.6), ok("s", 0.74)))
    assert isinstance(end, Answer)
    assert end.weights == {"s": 1.0}
    # an answer far under its prediction drags the others down when surprises are shared
    assert asked(made, ctx(QUALITY), ok("m", 0.77)) == "s"
    assert isinstance(policy(trade=0.01, asks=3, reveal=0.5, carry=1.0).decide(ctx(QUALITY), (ok("m", 0.77),)), Answer)


def test_an_answer_without_confidence_counts_as_predicted() -> None:
    assert isinstance(policy(bar=0.7, asks=2).decide(ctx(QUALITY), (ok("m", None),)), Answer)


def test_a_confidence_made_from_answers_is_waited_for() -> None:
    made = policy(bar=0.7, asks=2, confidence="c")
    assert set(signals_of(made)) == {f"{kind}.{model}" for kind in "qc" for model in COST}
    assert models_of(made) == ("s", "m", "l")
    waiting = ctx(QUALITY, awaited={"c.m": ("m", "l")})
    assert asked(made, waiting, ok("m", 0.9)) == "l"


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"of": ["s"]}, "at least two"),
        ({"of": ["s", "s"]}, "twice"),
        ({"bar": 0.5, "trade": 0.1}, "exclude"),
        ({"trade": -0.1}, "0 or more"),
        ({"best": "l"}, "go together"),
        ({"best": "x", "margin": 0.1}, "one of the models"),
        ({"reveal": 0.1}, "need `asks` above 1"),
        ({"asks": 0}, "1 or more"),
        ({"carry": 2.0, "asks": 2}, "carry"),
        ({"bar": math.nan}, "bar"),
    ],
)
def test_mistakes_are_refused(fields: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        policy(**fields)


TINY = {"allow_subnormal": False}


@given(st.floats(0, 1, **TINY), st.floats(0, 1, **TINY), st.floats(0, 2, **TINY))
def test_the_index_is_where_asking_just_pays(mean: float, reveal: float, price: float) -> None:
    index = reservation(mean, reveal, price)
    high, low = mean + reveal * (1 - mean), mean - reveal * mean
    assert mean * max(high - index, 0.0) + (1 - mean) * max(low - index, 0.0) == pytest.approx(price, abs=1e-6)
    assert index <= 1.0


ROWS = st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=1, max_size=8)


@given(ROWS, st.sampled_from([0.0, 0.01, 0.1]), st.sampled_from([None, 0.0, 0.1, -0.2]))
def test_the_lab_picks_what_is_served(rows: list[tuple[float, ...]], trade: float, margin: float | None) -> None:
    guard = {} if margin is None else {"best": "l", "margin": margin}
    made = policy(trade=trade, **guard)
    picks = pick(np.array(rows), np.array(list(COST.values())), trade, None if margin is None else 2, margin)
    for row, at in zip(rows, picks.tolist(), strict=True):
        assert asked(made, ctx(dict(zip(COST, row, strict=True)))) == list(COST)[at]
