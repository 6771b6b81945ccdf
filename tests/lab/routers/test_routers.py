"""Learned routers: judged out of fold, honest where there is no signal, served as they were fitted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.lab.learned_file import predict_learned
from rheostat.lab.metrics import apgr, call_performance_curve
from rheostat.lab.outcomes import ModelColumns, OutcomesTable
from rheostat.lab.routers import (
    LEARNERS,
    RoutingData,
    against,
    config_lines,
    fitted,
    from_table,
    importance,
    judge,
    out_of_fold,
    save_router,
    threshold_for_quality,
    threshold_for_share,
)
from rheostat.lab.routers.data import folds, same_prompts
from rheostat.lab.routers.judge import apgr_draws
from rheostat.lab.routers.trees import Rules
from rheostat.policies import Binary, Use
from rheostat.signals.learned import LearnedScorerSettings
from rheostat.types import Context, Request

WIDTH = 6


def rows(n: int = 240, seed: int = 0, signal: float = 1.0) -> RoutingData:
    """Long texts and kind b need the strong model; of the embedding, the first number counts."""
    rng = np.random.default_rng(seed)
    length, kind = rng.integers(1, 400, n).astype(float), rng.random(n) < 0.4
    embedding = rng.normal(size=(n, WIDTH))
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    need = 0.3 + signal * (0.25 * (length > 200) + 0.2 * kind + 0.15 * embedding[:, 0])
    weak, strong = rng.random(n) > need, rng.random(n) < 0.85
    x = np.column_stack([length, ~kind, kind, embedding]).astype(np.float32)
    names = ("length", "meta.kind=a", "meta.kind=b")
    return RoutingData(names, x, weak.astype(float), strong.astype(float), np.arange(n, dtype=np.int32), WIDTH)


@pytest.mark.parametrize("name", LEARNERS)
def test_every_kind_is_served_as_it_was_fitted(name: str, tmp_path: Path) -> None:
    data = rows()
    router, setting = fitted(data, LEARNERS[name])
    assert name in ("mean", "ridge+knn") or setting in LEARNERS[name].grid
    card = save_router(router, LEARNERS[name], data, tmp_path / "r.onnx", fitted_on="train")
    assert (card.features, card.embedding, card.rows) == (data.features, WIDTH, len(data))
    fresh = rows(300, 7).x
    served, offline = predict_learned(tmp_path / "r.onnx", fresh)[:, 0], router.predict(fresh)
    assert np.ptp(offline) > 0
    assert np.abs(served - offline).max() < 2e-3  # of trees: a number on a threshold may fall to the other side in float32
    assert np.median(np.abs(served - offline)) < 1e-5


def test_the_served_signal_decides_as_the_offline_score(tmp_path: Path) -> None:
    data = rows()
    named = RoutingData(data.features, data.x[:, :3], data.weak, data.strong, data.same)
    router, _ = fitted(named, LEARNERS["ridge"])
    save_router(router, LEARNERS["ridge"], named, tmp_path / "r.onnx", fitted_on="train")
    scorer = LearnedScorerSettings(path="r.onnx").open("gain", str(tmp_path))
    score = router.predict(named.x)
    cut = float(np.median(score)) + 1e-4
    policy = Binary(signal="gain", threshold=cut, weak=Use("weak"), strong=Use("strong"))
    for row in range(40):
        length, _, kind = named.x[row]
        text = "x" * int(length)
        request = Request(id="1", data=text, text=text, meta={"kind": "b" if kind else "a"})
        signals = scorer.score(request)  # type: ignore[union-attr, call-arg]
        assert signals["gain"] == pytest.approx(score[row], abs=1e-5)
        decision = policy.decide(Context(request=request, pool={}, signals=signals), ())
        assert decision.models == (("strong",) if score[row] >= cut else ("weak",))  # type: ignore[union-attr]
    assert config_lines("r.onnx", named, cut)[1] == "  gain: {scorer: learned, path: r.onnx}"


def test_a_signal_is_found_and_its_source_named() -> None:
    data = rows(600)
    made = out_of_fold(data, LEARNERS["ridge"], count=3)
    found = judge(data, made.score, draws=300)
    assert found.signal
    assert found.apgr.mean == pytest.approx(apgr(call_performance_curve(data.weak, data.strong, made.score)))
    lost = importance(data, made)
    assert set(lost) == {"length", "meta.kind", "embedding"}
    assert next(iter(lost)) in ("length", "meta.kind")
    gap = against(data, made.score, np.zeros(len(data)), draws=300)
    assert gap.better
    assert gap.mean == pytest.approx(found.apgr.mean - 0.5)


@pytest.mark.parametrize("name", ["ridge", "tree", "logistic"])
def test_without_a_signal_none_is_claimed(name: str) -> None:
    data = rows(400, 3, signal=0.0)
    assert not judge(data, out_of_fold(data, LEARNERS[name], count=3).score, draws=300).signal


def test_rules_can_be_read() -> None:
    router, _ = fitted(rows(600), LEARNERS["tree"])
    assert isinstance(router, Rules)
    lines = router.lines()
    assert len(lines) >= 3
    assert all(line.startswith("if ") and "rows)" in line for line in lines)
    assert any("length >" in line for line in lines)


def test_duplicates_stay_together() -> None:
    same = same_prompts(["A  b", "a b", "c", "D", "c "])
    assert same.tolist() == [0, 0, 1, 2, 1]
    part = folds(same, 3, 0)
    assert part[0] == part[1]
    assert part[2] == part[4]
    with pytest.raises(ValueError, match="as many distinct prompts"):
        folds(same, 4, 0)


def test_traps_are_named() -> None:
    data = rows(60)
    good, bad = np.ones(60), np.zeros(60)
    make = lambda weak, strong, n=60: RoutingData(data.features, data.x[:n], weak[:n], strong[:n], data.same[:n], WIDTH)  # noqa: E731
    with pytest.raises(ValueError, match="is no better than"):
        out_of_fold(make(good, good), LEARNERS["ridge"])
    with pytest.raises(ValueError, match="too few"):
        out_of_fold(make(bad, good, 10), LEARNERS["ridge"])
    with pytest.raises(ValueError, match="NaN or infinite"):
        make(bad, np.full(60, np.nan))
    with pytest.raises(ValueError, match="better on every row"):
        LEARNERS["logistic"].fit(make(bad, good), {"text": 0.1, "strength": 1.0})
    with pytest.raises(ValueError, match="must come after"):
        RoutingData(("meta.a=1", "length"), data.x[:, :2], bad, good, data.same)
    with pytest.raises(ValueError, match="needs a group"):
        fitted(RoutingData(("length",), data.x[:, :1], data.weak, data.strong, data.same), LEARNERS["group"])
    with pytest.raises(ValueError, match="named features"):
        fitted(RoutingData((), data.x[:, 3:], data.weak, data.strong, data.same, WIDTH), LEARNERS["tree"])
    assert not judge(make(bad, good), np.zeros(60), draws=50).signal  # a constant score is exactly random
    missing = data.x.copy()
    missing[::3, 0] = np.nan
    gappy = RoutingData(data.features, missing, data.weak, data.strong, data.same, WIDTH)
    for name, learner in LEARNERS.items():
        assert np.isfinite(fitted(gappy, learner)[0].predict(missing)).all(), name


def test_a_table_is_read() -> None:
    n = 12
    said = {"weak": [0, 1] * 6, "strong": [1] * n}
    found = OutcomesTable(
        ids=np.array([f"r{i}" for i in range(n)], dtype=object),
        split=np.zeros(n, np.int8),
        truth=np.ones(n, np.int32),
        labels=("no", "yes"),
        columns={
            name: ModelColumns(np.array(label, np.int32), np.full(n, np.nan), np.zeros(n), np.ones(n), np.zeros(n, np.int8))
            for name, label in said.items()
        },
        inputs=np.array([f'"{"x" * (i + 1)}"' for i in range(n)], dtype=object),
    )
    found.columns["strong"].failure[0] = 1
    data = from_table(found, "weak", "strong", features=("length",), embed=lambda text: np.full((1, 2), len(text)))
    assert data.x.tolist() == [[i + 1.0] * 3 for i in range(1, n)]
    assert data.gain.tolist() == [0.0, 1.0] * 5 + [0.0]
    assert sum(data.left_out.values()) == 1
    with pytest.raises(ValueError, match="no value of meta"):
        from_table(found, "weak", "strong", group="meta.kind")
    with pytest.raises(ValueError, match="the group is a field"):
        from_table(found, "weak", "strong", group="kind")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 4)), min_size=8, max_size=60), st.floats(0.0, 1.0))
def test_thresholds_keep_what_they_promise(given_rows: list[tuple[bool, bool, int]], target: float) -> None:
    weak, strong, score = (np.array(column, dtype=float) for column in zip(*given_rows, strict=True))
    n = len(score)
    data = RoutingData(("length",), np.ones((n, 1), np.float32), weak, strong, np.arange(n, dtype=np.int32))
    cut = threshold_for_share(data, score, target)
    sent = score >= cut.threshold
    assert sent.mean() == pytest.approx(cut.share)
    assert cut.share <= target + 1e-9
    assert np.where(sent, strong, weak).mean() == pytest.approx(cut.quality)
    plain, sure = threshold_for_quality(data, score, target, sure=False), threshold_for_quality(data, score, target)
    assert plain.share <= sure.share
    assert plain.quality >= target * strong.mean() - 1e-9 or plain.share == 1.0
    if strong.mean() > weak.mean():
        fixed = apgr_draws(data, [[score], [score]], 5, 0)
        assert (fixed[:, 0] == fixed[:, 1]).all()


def test_the_guide_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "guides" / "learned-routers.md").read_text(encoding="utf-8")
    (body,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    subprocess.run([sys.executable, "-c", body], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "router.onnx").exists()
    assert {f"`{name}`" for name in LEARNERS} <= set(re.findall(r"`[\w+]+`", page))
