import hashlib
import pickle
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from rheostat.backends.sklearn import SklearnModel
from rheostat.errors import ConfigError, ContractError, ModelError
from rheostat.pool.backend import Backend
from rheostat.types import Prediction

TEXTS = ["good film", "very good", "bad film", "very bad"]
ANSWERS = ["pos", "pos", "neg", "neg"]


class Planted:
    """Creates a file when it is unpickled."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (open, (self.target, "w"))


def saved(folder: Path, model: object) -> SklearnModel:
    joblib.dump(model, folder / "m.joblib")
    digest = hashlib.sha256((folder / "m.joblib").read_bytes()).hexdigest()
    return SklearnModel(path="m.joblib", trusted=True, sha256=digest)


def test_a_trusted_pipeline_answers_by_label_name(tmp_path: Path) -> None:
    settings = saved(tmp_path, make_pipeline(CountVectorizer(), LogisticRegression()).fit(TEXTS, ANSWERS))
    backend = settings.open(str(tmp_path))
    assert isinstance(backend, Backend)
    assert backend.labels == ("neg", "pos")
    good, bad, mapped = backend.predict(["good", "bad", {"text": "good"}])
    assert isinstance(good, Prediction)
    assert good.label == "pos"
    assert good.scores is not None
    assert good.confidence == good.scores["pos"] > 0.5
    assert isinstance(bad, Prediction)
    assert bad.label == "neg"
    assert mapped == good


def test_a_bad_row_fails_alone(tmp_path: Path) -> None:
    backend = saved(tmp_path, make_pipeline(CountVectorizer(), LogisticRegression()).fit(TEXTS, ANSWERS)).open(str(tmp_path))
    good, bad = backend.predict(["good", 5])  # type: ignore[union-attr]
    assert isinstance(good, Prediction)
    assert isinstance(bad, ModelError)
    assert bad.kind == "crashed"


def test_feature_rows_and_number_classes(tmp_path: Path) -> None:
    model = LogisticRegression().fit(np.array([[0.0, 1.0], [1.0, 0.0]]), [0, 1])
    joblib.dump(model, tmp_path / "m.joblib")
    digest = hashlib.sha256((tmp_path / "m.joblib").read_bytes()).hexdigest()
    backend = SklearnModel(path="m.joblib", trusted=True, sha256=digest, features=("a", "b")).open(str(tmp_path))
    assert isinstance(backend, Backend)
    first, second, broken, missing = backend.predict([{"a": 0, "b": 1}, {"b": 0, "a": 1}, {"a": "x", "b": 1}, {"a": 1}])
    assert [first.label, second.label] == ["0", "1"]  # type: ignore[union-attr]
    assert isinstance(broken, ModelError)
    assert broken.kind == "input_refused"
    assert isinstance(missing, ModelError)  # this model takes no NaN


def test_without_probabilities_there_is_no_confidence(tmp_path: Path) -> None:
    backend = saved(tmp_path, make_pipeline(CountVectorizer(), LinearSVC()).fit(TEXTS, ANSWERS)).open(str(tmp_path))
    assert backend.predict(["good"]) == [Prediction("pos", None)]  # type: ignore[union-attr]


@pytest.mark.parametrize("trust", [{}, {"trusted": True}, {"trusted": True, "sha256": "0" * 64}, {"sha256": "RIGHT"}])
def test_an_untrusted_pickle_is_refused_and_runs_nothing(tmp_path: Path, trust: dict[str, object]) -> None:
    target = tmp_path / "planted"
    blob = pickle.dumps(Planted(str(target)))
    (tmp_path / "m.pkl").write_bytes(blob)
    digest = hashlib.sha256(blob).hexdigest()
    if trust.get("sha256") == "RIGHT":
        trust = {"sha256": digest}
    with pytest.raises(ConfigError, match=digest) as caught:
        SklearnModel(path="m.pkl", **trust).open(str(tmp_path))  # type: ignore[arg-type]
    assert not target.exists()
    if not trust:
        assert "skl2onnx" in str(caught.value)


def test_what_is_no_classifier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="dict"):
        saved(tmp_path, {"a": 1}).open(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot be read"):
        SklearnModel(path="absent.pkl").open(str(tmp_path))
