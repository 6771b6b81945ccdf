from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeRegressor

from rheostat.errors import ConfigError
from rheostat.lab.learned_file import from_sklearn, mean_of, predict_learned, read_card, side_by_side, write_learned
from rheostat.signals import FeatureLine, LearnedCard, Scorer, ScorerError
from rheostat.signals.learned import LearnedScorerSettings
from rheostat.types import Request

X = np.array([[1.0, 0.0], [4.0, 1.0], [9.0, 0.0], [16.0, 1.0]], dtype=np.float32)
NAMES = ("length", "meta.kind=a")


def request(text: str = "", meta: dict[str, Any] | None = None, data: Any = None) -> Request:
    return Request(id="1", data=text if data is None else data, text=text, meta=meta or {})


def card(**change: Any) -> LearnedCard:
    return LearnedCard(**{"meaning": "gain", "features": NAMES, "data_hash": "h", "rows": 4, **change})


def test_a_line_reads_texts_numbers_and_categories() -> None:
    line = FeatureLine(("length", "meta.n", "meta.kind=a", "data.on=true", "meta.a=b=c", "data.on"))
    read = line.read(request("abc", {"n": 2, "kind": "a", "a": "b=c"}, {"on": True}))
    assert read == [3.0, 2.0, 1.0, 1.0, 1.0, 1.0]
    assert np.isnan(FeatureLine(("meta.n",)).read(request(meta={"n": "2"}))[0])
    assert FeatureLine(("meta.n=1", "meta.n=None")).read(request(meta={"n": 1})) == [1.0, 0.0]
    assert FeatureLine(("meta.n=None",)).read(request()) == [0.0]
    with pytest.raises(ConfigError, match="did you mean 'length'"):
        FeatureLine(("lenght",))


def test_a_regressor_is_served_as_it_was_fitted(tmp_path: Path) -> None:
    model = Ridge(alpha=0.1).fit(X, [0.0, 0.3, 0.2, 0.9])
    assert write_learned(from_sklearn(model, 2), card(), tmp_path / "g.onnx") == card() == read_card(tmp_path / "g.onnx")
    scorer = LearnedScorerSettings(path="g.onnx").open("gain", str(tmp_path))
    assert isinstance(scorer, Scorer)
    assert scorer.names == ("gain",)
    expected = float(model.predict(np.array([[5.0, 1.0]]))[0])
    assert scorer.score(request("hello", {"kind": "a"})) == {"gain": pytest.approx(expected, abs=1e-5)}
    assert list(tmp_path.iterdir()) == [tmp_path / "g.onnx"]


def test_a_classifier_says_the_chance_of_its_last_class(tmp_path: Path) -> None:
    model = LogisticRegression().fit(X, [0, 0, 1, 1])
    write_learned(from_sklearn(model, 2), card(meaning="probability"), tmp_path / "p.onnx")
    assert predict_learned(tmp_path / "p.onnx", X)[:, 0] == pytest.approx(model.predict_proba(X)[:, 1], abs=1e-5)
    with pytest.raises(ValueError, match="two classes, got 3"):
        from_sklearn(LogisticRegression().fit(X, [0, 1, 2, 0]), 2)


def test_several_models_become_one_file_with_several_signals(tmp_path: Path) -> None:
    members = [Ridge().fit(X, [0, 1, 0, 1]), DecisionTreeRegressor(max_depth=1).fit(X, [1.0, 2.0, 3.0, 4.0])]
    parts = [from_sklearn(member, 2) for member in members]
    write_learned(side_by_side(parts), card(meaning="quality", outputs=("fast", "large")), tmp_path / "q.onnx")
    said = np.column_stack([member.predict(X) for member in members])
    assert predict_learned(tmp_path / "q.onnx", X) == pytest.approx(said, abs=1e-5)
    settings = LearnedScorerSettings(path="q.onnx", outputs=("fast", "large"))
    assert settings.signals("quality") == ("quality.fast", "quality.large")
    scorer = settings.open("quality", str(tmp_path))
    found = scorer.score(request("abcd", {"kind": "a"}))
    assert found == {"quality.fast": pytest.approx(said[1, 0], abs=1e-5), "quality.large": pytest.approx(said[1, 1])}
    for wrong in ((), ("fast",), ("large", "fast")):
        with pytest.raises(ConfigError, match=r"needs outputs: \[fast, large\]"):
            LearnedScorerSettings(path="q.onnx", outputs=wrong).open("quality", str(tmp_path))
    write_learned(mean_of(parts), card(), tmp_path / "m.onnx")
    assert predict_learned(tmp_path / "m.onnx", X)[:, 0] == pytest.approx(said.mean(axis=1), abs=1e-5)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    model = from_sklearn(Ridge().fit(X, [0, 1, 0, 1]), 2)
    plain = model.SerializeToString()
    (tmp_path / "plain.onnx").write_bytes(plain)
    with pytest.raises(ConfigError, match="carries no card"):
        LearnedScorerSettings(path="plain.onnx").open("s", str(tmp_path))
    with pytest.raises(ConfigError, match="its card says float32 x of 3"):
        write_learned(plain, card(features=(*NAMES, "words")), tmp_path / "wide.onnx")
    assert not (tmp_path / "wide.onnx").exists()
    write_learned(plain, card(features=("length",), embedding=1), tmp_path / "e.onnx")
    with pytest.raises(ConfigError, match="takes an embedding: name the folder"):
        LearnedScorerSettings(path="e.onnx").open("s", str(tmp_path))
    write_learned(plain, card(), tmp_path / "g.onnx")
    with pytest.raises(ConfigError, match="takes no embedding; remove `encoder`"):
        LearnedScorerSettings(path="g.onnx", encoder=".").open("s", str(tmp_path))
    with pytest.raises(ConfigError, match="no outputs"):
        LearnedScorerSettings(path="g.onnx", outputs=("a",)).open("s", str(tmp_path))
    write_learned(plain, card(features=("meta.a", "meta.b")), tmp_path / "n.onnx")
    with pytest.raises(ScorerError, match="expected finite numbers"):
        LearnedScorerSettings(path="n.onnx").open("s", str(tmp_path)).score(request())
    for change in ({"features": ()}, {"outputs": ()}, {"outputs": ("a", "a")}, {"outputs": ("", "a")}):
        with pytest.raises(ValueError, match=r"outputs|features"):
            card(**change)
    later = onnx.load_model_from_string(plain)
    onnx.helper.set_model_props(later, {"rheostat": '{"meaning": "gain", "features": ["length", "words"], "format": 9}'})
    (tmp_path / "later.onnx").write_bytes(later.SerializeToString())
    with pytest.raises(ConfigError, match="has format 9, this version reads 1"):
        read_card(tmp_path / "later.onnx")
