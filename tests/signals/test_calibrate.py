import asyncio
import json
import math
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rheostat.errors import ConfigError, ModelError
from rheostat.pool.backend import Backend, RemoteBackend, Reply
from rheostat.signals.calibrate import (
    choose_calibrator,
    ece,
    fit_isotonic,
    fit_platt,
    fit_quantile,
    fit_temperature,
    load_calibrator,
    save_calibrator,
)
from rheostat.signals.calibrated import calibrated
from rheostat.signals.calibrator import Identity, Isotonic, Platt, Quantile, Temperature
from rheostat.types import Prediction

FITS: list[Callable[..., Any]] = [fit_platt, fit_isotonic, fit_temperature, fit_quantile]
EVERY: list[Callable[..., Any]] = [*FITS, choose_calibrator]


def overconfident(count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Confidences whose log odds are twice too large."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(1.0, 1.0, count)
    correct = rng.random(count) < 1 / (1 + np.exp(-odds))
    return 1 / (1 + np.exp(-2 * odds)), correct


@pytest.mark.parametrize("fit", EVERY)
def test_one_class_or_nothing_is_refused_in_words(fit: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="all 3 answers are right"):
        fit([0.5, 0.6, 0.7], [1, 1, 1])
    with pytest.raises(ValueError, match="all 2 answers are wrong"):
        fit([0.5, 0.6], [0, 0])
    with pytest.raises(ValueError, match="no samples"):
        fit([], [])


@pytest.mark.parametrize("fit", EVERY)
@pytest.mark.parametrize(
    ("confidence", "correct", "word"),
    [
        ([0.5, math.nan], [0, 1], "finite"),
        ([0.5, 1.7], [0, 1], r"in \[0, 1\]"),
        ([0.5, 0.5], [0, 2], "0 or 1"),
        ([0.5], [0, 1], "n truth values"),
    ],
)
def test_what_is_no_sample_is_refused(fit: Callable[..., Any], confidence: object, correct: object, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        fit(confidence, correct)


@pytest.mark.parametrize("fit", EVERY)
@pytest.mark.parametrize("count", [10, 100, 1000])
def test_all_scores_equal_become_the_base_rate(fit: Callable[..., Any], count: int) -> None:
    fitted = fit(np.full(count, 0.7), np.arange(count) % 10 < 6)
    assert fitted.value(0.7) == pytest.approx(0.6, abs=0.05)
    assert all(0.0 <= fitted.value(other) <= 1.0 for other in (0.0, 0.3, 0.69, 0.71, 1.0))


@pytest.mark.parametrize("fit", EVERY)
def test_few_samples_are_a_warning(fit: Callable[..., Any]) -> None:
    fitted = fit([0.1, 0.2, 0.3, 0.6, 0.7, 0.8, 0.9, 0.95], [0, 0, 1, 0, 1, 1, 1, 1])
    assert "only 8 samples" in fitted.warnings[0]
    assert fitted.samples == 8


def test_the_step_function_is_not_chosen_for_few_samples() -> None:
    steps = [0.1] * 20 + [0.9] * 29
    assert not isinstance(
        choose_calibrator(steps, [i % 10 < 1 for i in range(20)] + [i % 5 > 2 for i in range(29)]), Isotonic
    )


@pytest.mark.parametrize("fit", EVERY)
def test_calibration_error_falls_on_fresh_data(fit: Callable[..., Any]) -> None:
    fitted = fit(*overconfident(4000))
    confidence, correct = overconfident(4000, seed=2)
    after = ece([fitted.value(float(each)) for each in confidence], correct)
    assert ece(confidence, correct) > 0.08
    assert after < 0.03
    assert fitted.warnings == ()


def test_the_choice_follows_the_data() -> None:
    assert isinstance(choose_calibrator(*overconfident(2000)), Platt | Temperature)
    rng = np.random.default_rng(3)
    honest = rng.random(2000)
    assert isinstance(choose_calibrator(honest, rng.random(2000) < honest), Identity)
    steps = rng.random(3000)
    truth = rng.random(3000) < np.where(steps < 0.3, 0.5, np.where(steps < 0.8, 0.55, 0.99))
    assert isinstance(choose_calibrator(steps, truth), Isotonic)


def test_the_order_of_rows_does_not_matter() -> None:
    confidence, correct = overconfident(300)
    order = np.random.default_rng(0).permutation(300)
    for fit in EVERY:
        one, other = fit(confidence, correct), fit(confidence[order], correct[order])
        assert type(one) is type(other)
        for at in (0.0, 0.2, 0.5, 0.9, 1.0):
            assert one.value(at) == pytest.approx(other.value(at), abs=1e-6)


def test_confidences_that_say_nothing_keep_their_order_and_are_named() -> None:
    confidence, correct = overconfident(500)
    fitted = fit_platt(confidence, ~correct)
    assert "say nothing" in fitted.warnings[0]
    assert fitted.value(0.9) > fitted.value(0.1)


def test_temperature_on_whole_distributions() -> None:
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 1.5, (3000, 4))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    truth = np.array([rng.choice(4, p=line) for line in chances])
    sharp = chances**3 / (chances**3).sum(axis=1, keepdims=True)
    fitted = fit_temperature(sharp, sharp.argmax(axis=1) == truth)
    assert fitted.t == pytest.approx(3.0, rel=0.1)
    back = fitted.apply(Prediction.from_scores(dict(zip("abcd", sharp[0].tolist(), strict=True))))
    assert back.scores is not None
    assert list(back.scores.values()) == pytest.approx(chances[0], abs=0.05)
    assert isinstance(choose_calibrator(sharp, sharp.argmax(axis=1) == truth), Temperature)


def test_scores_stored_in_single_precision_are_still_the_confidence_s_own() -> None:
    scores = dict(zip("abc", np.array([0.7, 0.2, 0.1], np.float32).tolist(), strict=True))
    fitted = Temperature(t=0.5)
    stored = fitted.apply(Prediction("a", 0.7, scores))
    assert scores["a"] != 0.7
    assert stored.confidence == pytest.approx(0.49 / (0.49 + 0.04 + 0.01), abs=1e-6)
    apart = fitted.apply(Prediction("a", 0.9, scores))
    assert apart.confidence == pytest.approx(fitted.value(0.9))


def test_the_rest_of_the_mass_keeps_its_proportions() -> None:
    fitted = Platt(a=1.0, b=-1.0)
    out = fitted.apply(Prediction("a", 0.8, {"a": 0.8, "b": 0.15, "c": 0.05}, "kept"))
    assert out.confidence == pytest.approx(1 / (1 + 0.25 * math.e))
    assert out.scores is not None
    assert out.scores["a"] == out.confidence
    assert out.scores["b"] == pytest.approx(3 * out.scores["c"])
    assert math.fsum(out.scores.values()) == pytest.approx(1.0)
    assert (out.label, out.output) == ("a", "kept")
    sure = fitted.apply(Prediction("a", 1.0, {"a": 1.0, "b": 0.0, "c": 0.0}))
    assert sure.scores is not None
    assert sure.scores["b"] == sure.scores["c"]
    assert fitted.apply(Prediction("a")) == Prediction("a")


def test_quantiles_onto_another_models_scale() -> None:
    rng = np.random.default_rng(7)
    raw, reference = rng.random(5000), 0.5 + 0.5 * rng.random(5000)
    fitted = fit_quantile(raw, rng.random(5000) < 0.5, reference)
    assert [fitted.value(each) for each in (0.1, 0.5, 0.9)] == pytest.approx([0.55, 0.75, 0.95], abs=0.02)
    assert fit_quantile([0.7] * 10, [1] * 10, [0.2, 0.4]).value(0.7) == pytest.approx(0.3, abs=0.01)


_samples = st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), min_size=2, max_size=80)


@given(_samples, st.lists(st.floats(0.0, 1.0), min_size=2, max_size=20), st.sampled_from(EVERY))
@settings(max_examples=80, deadline=None)
def test_every_fit_rises_and_stays_in_its_range(samples: Any, at: list[float], fit: Callable[..., Any]) -> None:
    confidence, correct = zip(*samples, strict=True)
    assume(len(set(correct)) == 2)
    fitted = fit(confidence, correct)
    values = [fitted.value(each) for each in sorted(at)]
    assert all(0.0 <= value <= 1.0 for value in values)
    assert values == sorted(values)
    for each in at:
        out = fitted.apply(Prediction("a", each, {"a": each, "b": 1.0 - each}))
        assert out.scores is not None
        assert math.fsum(out.scores.values()) == pytest.approx(1.0)
        assert out.confidence is not None
        assert 0.0 <= out.confidence <= 1.0


@pytest.mark.parametrize("fit", EVERY)
def test_a_calibrator_survives_its_file(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fitted = fit(*overconfident(200))
    path = str(tmp_path / "c.json")
    save_calibrator(fitted, path)
    assert load_calibrator(path) == fitted
    assert [each.name for each in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        pickle.dumps(Platt(a=1.0, b=0.0)),
        json.dumps({"method": "platt", "a": -1.0, "b": 0.0}).encode(),
        json.dumps({"method": "platt", "a": 1.0, "b": 0.0, "c": 1}).encode(),
        json.dumps({"method": "temperature", "t": 0}).encode(),
        json.dumps({"method": "isotonic", "x": [0.5, 0.4], "y": [0.1, 0.2]}).encode(),
        json.dumps({"method": "isotonic", "x": [], "y": []}).encode(),
        json.dumps({"method": "quantile", "x": [0.1, 0.2], "y": [0.5, 0.4]}).encode(),
        json.dumps({"method": "quantile", "x": [0.1], "y": [1.5]}).encode(),
        json.dumps({"method": "magic"}).encode(),
    ],
)
def test_a_file_that_is_no_calibrator_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"c\.json is no calibrator"):
        load_calibrator(str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_calibrator(str(tmp_path / "absent.json"))


def test_calibration_error_of_known_data() -> None:
    assert ece([0.9] * 10, [1] * 9 + [0]) == pytest.approx(0.0)
    assert ece([1.0, 1.0], [0, 0]) == pytest.approx(1.0)
    assert ece([0.25, 0.75], [1, 1]) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no samples"):
        ece([], [])


class Local:
    labels = ("a", "b")

    def __init__(self) -> None:
        self.closed = 0

    def predict(self, rows: Sequence[Any]) -> Sequence[Reply]:
        return [ModelError("crashed", "x") if row is None else Prediction("a", row) for row in rows]

    def close(self) -> None:
        self.closed += 1


class Remote:
    labels = None

    async def apredict(self, rows: Sequence[Any], timeout_s: float) -> Sequence[Reply]:
        return [Prediction("a", timeout_s) for _ in rows]

    async def aclose(self) -> None:
        self.closed = True


def test_a_calibrated_backend_is_a_backend_of_the_same_kind() -> None:
    half = Quantile(x=(0.0, 1.0), y=(0.0, 0.5))
    local = Local()
    wrapped = calibrated(local, half)
    assert isinstance(wrapped, Backend)
    assert not isinstance(wrapped, RemoteBackend)
    first, failed = wrapped.predict([0.8, None])
    assert first == Prediction("a", pytest.approx(0.4))
    assert isinstance(failed, ModelError)
    assert wrapped.labels == ("a", "b")
    wrapped.close()
    assert local.closed == 1
    remote = Remote()
    elsewhere = calibrated(remote, half)
    assert isinstance(elsewhere, RemoteBackend)
    assert not isinstance(elsewhere, Backend)
    assert asyncio.run(elsewhere.apredict([1, 2], 0.6)) == [Prediction("a", pytest.approx(0.3))] * 2
    asyncio.run(elsewhere.aclose())
    assert remote.closed
