"""Any number of models: predicted out of fold, chosen behind a guard, served as fitted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_tables import columns, table

from rheostat.lab.learned_file import predict_learned, read_card
from rheostat.lab.many import (
    METHODS,
    ManyData,
    choose,
    fitted,
    guarded,
    judge,
    many_from_table,
    out_of_fold,
    pick,
    quality_gap,
    quality_lines,
    save_quality,
    sweep,
)
from rheostat.lab.metrics import zero_router_aiq
from rheostat.policies import Cheapest, parse_policy
from rheostat.signals.learned import LearnedScorerSettings
from rheostat.types import Call, Context, ModelView, Request

MODELS = ("small", "coder", "large")


def rows(n: int = 300, seed: int = 0, signal: float = 1.0) -> ManyData:
    """Short texts suit the small model, kind b suits the coder; the large one is .8 everywhere."""
    rng = np.random.default_rng(seed)
    length, kind = rng.integers(1, 400, n).astype(float), rng.random(n) < 0.4
    embedding = rng.normal(size=(n, 6))
    chance = np.stack(
        [0.55 - signal * 0.4 * np.sign(length - 200), 0.55 + signal * 0.4 * (2 * kind - 1), np.full(n, 0.8)], 1
    )
    x = np.column_stack([length, ~kind, kind, embedding]).astype(np.float32)
    quality = (rng.random((n, 3)) < chance).astype(float)
    features = ("length", "meta.kind=a", "meta.kind=b")
    return ManyData(MODELS, features, x, quality, np.tile([1.0, 5.0, 20.0], (n, 1)), np.arange(n, dtype=np.int32), 6)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_served_as_it_was_fitted(name: str, tmp_path: Path) -> None:
    data = rows(120)
    predictor = METHODS[name].fit(data, {**METHODS[name].grid[0], "trees": 20})
    save_quality(predictor, data, tmp_path / "q.onnx", fitted_on="train")
    card = read_card(tmp_path / "q.onnx")
    assert (card.meaning, card.outputs, card.features, card.rows) == ("quality", MODELS, data.features, 120)
    fresh = rows(80, 7).x
    served, offline = predict_learned(tmp_path / "q.onnx", fresh), predictor.predict(fresh)
    assert served.shape == offline.shape == (80, 3)
    assert np.ptp(offline) > 0
    assert np.median(np.abs(served - offline)) < 1e-5


def test_the_served_policy_picks_what_the_lab_picks(tmp_path: Path) -> None:
    data = rows(120)
    named = ManyData(MODELS, data.features, data.x[:, :3], data.quality, data.cost, data.same)
    predictor, _ = fitted(named, METHODS["ridge"])
    save_quality(predictor, named, tmp_path / "q.onnx", fitted_on="train")
    scorer = LearnedScorerSettings(path="q.onnx", outputs=MODELS).open("q", str(tmp_path))
    policy = Cheapest(of=MODELS, quality="q", trade=0.01)
    pool = {name: ModelView(name, cost=cost) for name, cost in zip(MODELS, (1.0, 5.0, 20.0), strict=True)}
    picks = pick(predictor.predict(named.x), named.cost.mean(axis=0), 0.01)
    for row in range(40):
        text, kind = "x" * int(named.x[row, 0]), "b" if named.x[row, 2] else "a"
        request = Request(id="1", data=text, text=text, meta={"kind": kind})
        decision = policy.decide(Context(request, scorer.score(request), pool), ())  # type: ignore[union-attr, call-arg]
        assert isinstance(decision, Call)
        assert decision.models == (MODELS[picks[row]],)


def test_the_guides_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "guides" / "many-models.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(code, {})
    assert "cheapest" in capsys.readouterr().out


def test_routing_is_found_chosen_and_held() -> None:
    data = rows()
    unseen = out_of_fold(data, METHODS["means"])
    with_length = out_of_fold(data, METHODS["ridge"])
    judged = judge(data, {"means": sweep(data, unseen.predicted), "ridge": sweep(data, with_length.predicted)}, draws=100)
    assert judged["ridge"].above.better
    assert judged["ridge"].aiq.mean > judged["means"].aiq.mean
    assert judged["ridge"].match < 0.8
    best = choose(data, with_length.predicted)
    assert best.routes
    assert best.bound > 0
    cheap = choose(data, with_length.predicted, "match")
    assert cheap.routes
    assert cheap.cost < best.cost
    assert cheap.gap >= -0.002
    made = parse_policy(cheap.policy(MODELS, "quality"))
    assert isinstance(made, Cheapest)
    picks, chosen = guarded(data, with_length)
    assert all(one.routes for one in chosen)
    assert quality_gap(data, picks, draws=100).mean > 0.02


def test_a_budget_is_kept_and_one_that_nobody_keeps_is_refused() -> None:
    data = rows()
    predicted = out_of_fold(data, METHODS["ridge"]).predicted
    found = choose(data, predicted, "budget", budget=6.0)
    assert found.routes
    assert found.cost <= 6.0
    assert found.best in {"coder", "small"}
    with pytest.raises(ValueError, match="the cheapest costs 1"):
        choose(data, predicted, "budget", budget=0.5)
    with pytest.raises(ValueError, match="needs a budget"):
        choose(data, predicted, "budget")


def test_without_a_signal_one_model_answers() -> None:
    data = rows(signal=0.0)
    found = choose(data, out_of_fold(data, METHODS["ridge"]).predicted)
    assert not found.routes
    assert found.policy(MODELS, "quality") == "large"
    assert quality_lines("q.onnx", data, found) == ["routes:", "  default:", '    policy: "large"']


def test_a_dear_model_that_is_worse_is_never_taken() -> None:
    data = rows(signal=0.0)
    worse = ManyData(
        MODELS, data.features, data.x, data.quality[:, ::-1].copy(), data.cost, data.same, data.embedding
    )  # fmt: skip
    unseen = out_of_fold(worse, METHODS["ridge"])
    picks, chosen = guarded(worse, unseen)
    assert not any(one.routes for one in chosen)
    assert (picks == 0).all()
    assert zero_router_aiq(worse.singles) == pytest.approx(worse.quality[:, 0].mean())


def test_duplicates_share_a_fold() -> None:
    data = rows(90)
    twice = ManyData(
        MODELS, data.features, np.concatenate([data.x, data.x]), np.tile(data.quality, (2, 1)), np.tile(data.cost, (2, 1)),
        np.tile(data.same, 2), data.embedding,
    )  # fmt: skip
    fold = out_of_fold(twice, METHODS["means"]).fold
    assert (fold[:90] == fold[90:]).all()


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([-0.3, 0.0, 0.1]))
def test_a_higher_trade_never_costs_more(seed: int, margin: float) -> None:
    rng = np.random.default_rng(seed)
    predicted, prices = rng.random((20, 3)), np.array([1.0, 5.0, 20.0])
    costs = [prices[pick(predicted, prices, trade)].mean() for trade in (0.0, 0.01, 0.1, 1.0)]
    assert costs == sorted(costs, reverse=True)
    held = pick(predicted, prices, 0.05, 2, margin)
    other = held != 2
    assert (predicted[other, held[other]] >= predicted[other, 2] + margin).all()


def test_rows_of_an_outcomes_table() -> None:
    made = table(
        [1, 1, 0, -1],
        {"a": columns([1, 0, 0, 1], cost=1.0), "b": columns([1, 1, 1, 1], cost=3.0), "c": columns([0, 1, 0, 1], cost=9.0)},
        inputs=['"x"', '"yy"', '"x"', '"z"'],
    )
    data = many_from_table(made, ("a", "b", "c"), features=("length",))
    assert data.quality.tolist() == [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    assert data.cost[0].tolist() == [1.0, 3.0, 9.0]
    assert data.same.tolist() == [0, 1, 0]
    assert data.left_out == {"no right label given": 1}
    with pytest.raises(ValueError, match="at least two"):
        many_from_table(made, ("a",))


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("quality", np.full((300, 3), np.nan), "quality of small holds NaN"),
        ("cost", np.full((300, 3), -1.0), "negative"),
        ("quality", np.zeros((300, 2)), "a column a model"),
        ("models", ("one",), "at least two"),
    ],
)
def test_traps_are_named(field: str, value: object, word: str) -> None:
    data = rows()
    fields = {name: getattr(data, name) for name in ("models", "features", "x", "quality", "cost", "same", "embedding")}
    with pytest.raises(ValueError, match=word):
        ManyData(**{**fields, field: value})
    with pytest.raises(ValueError, match="too few"):
        out_of_fold(data.take(np.arange(20)), METHODS["ridge"])


def test_constant_qualities_and_prices_do_no_harm() -> None:
    data = rows(60)
    flat = ManyData(
        MODELS, data.features, data.x, np.ones((60, 3)), np.zeros((60, 3)), data.same, data.embedding
    )  # fmt: skip
    predictor, _ = fitted(flat, METHODS["ridge"])
    assert np.allclose(predictor.predict(flat.x), 1.0)
    assert not choose(flat, predictor.predict(flat.x)).routes
