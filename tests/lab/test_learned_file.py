"""Files of learned signals: written whole or not at all, joined, converted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rheostat.errors import ConfigError
from rheostat.lab.learned_file import from_sklearn, mean_of, predict_learned, read_card, side_by_side, write_learned
from rheostat.signals import LearnedCard

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = X[:, 0] - 0.5 * X[:, 1]
CARD = LearnedCard(meaning="gain", features=("length", "words", "meta.kind=a"), rows=60)


@pytest.mark.parametrize(
    "model", [Ridge(), make_pipeline(StandardScaler(), Ridge()), ExtraTreesRegressor(5, min_samples_leaf=5, random_state=0)]
)
def test_a_fitted_regressor_says_the_same_from_its_file(model: Ridge, tmp_path: Path) -> None:
    write_learned(from_sklearn(model.fit(X, Y), 3), CARD, tmp_path / "a.onnx")
    assert predict_learned(tmp_path / "a.onnx", X)[:, 0] == pytest.approx(model.predict(X), abs=1e-5)


def test_a_pipeline_that_ends_in_a_classifier_says_a_chance(tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y > 0)
    write_learned(from_sklearn(model, 3), CARD, tmp_path / "a.onnx")
    assert predict_learned(tmp_path / "a.onnx", X)[:, 0] == pytest.approx(model.predict_proba(X)[:, 1], abs=1e-5)


def test_one_model_joined_is_itself_and_more_are_joined_again() -> None:
    parts = [from_sklearn(Ridge(alpha).fit(X, Y), 3) for alpha in (1.0, 10.0)]
    assert side_by_side(parts[:1]) is parts[0]
    assert mean_of(parts[:1]) is parts[0]
    assert [value.name for value in mean_of([mean_of(parts), parts[0]]).graph.input] == ["x"]


def test_a_file_that_is_refused_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    model = from_sklearn(Ridge().fit(X, Y), 3)
    write_learned(model, CARD, path)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="its card says"):
        write_learned(model, LearnedCard(meaning="gain", features=("length",)), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert read_card(path) == CARD


def test_what_is_no_learned_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("not a model")
    for name in ("absent.onnx", "text.onnx"):
        with pytest.raises(ConfigError, match=name):
            read_card(tmp_path / name)
