import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from rheostat.errors import ConfigError
from rheostat.signals import SCORERS, Scorer, ScorerError
from rheostat.signals.onnx_scorer import OnnxScorerSettings
from rheostat.signals.python_scorer import PythonScorerSettings
from rheostat.types import Request


def request(text: str = "", meta: dict[str, Any] | None = None, data: Any = None) -> Request:
    return Request(id="1", data=text if data is None else data, text=text, meta=meta or {})


@pytest.mark.parametrize("zipmap", [False, True])
def test_a_model_over_features_decides_as_it_was_trained(tmp_path: Path, zipmap: bool) -> None:
    rows = np.array([[3.0, 0.0], [5.0, 1.0], [400.0, 0.0], [600.0, 1.0]], dtype=np.float32)
    model = LogisticRegression(C=10).fit(rows, [0, 0, 1, 1])
    exported = to_onnx(model, initial_types=[("x", FloatTensorType([None, 2]))], options={"zipmap": zipmap})
    (tmp_path / "r.onnx").write_bytes(exported.SerializeToString())
    scorer = OnnxScorerSettings(path="r.onnx", features=("length", "meta.vip")).open("hard", str(tmp_path))
    assert isinstance(scorer, Scorer)
    assert scorer.names == ("hard",)
    for text, vip in (("abc", False), ("x" * 500, True)):
        expected = model.predict_proba(np.array([[len(text), vip]], dtype=np.float32))[0, 1]
        assert scorer.score(request(text, {"vip": vip})) == {"hard": pytest.approx(expected, abs=1e-5)}


def test_a_model_over_text_and_its_positive_class(tmp_path: Path) -> None:
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(["a hard one", "an easy one"], ["hard", "easy"])
    kinds = {TfidfVectorizer: {"locale": "C.UTF-8"}, LogisticRegression: {"zipmap": False}}
    raw = to_onnx(model, initial_types=[("t", StringTensorType([None, 1]))], options=kinds).SerializeToString()
    (tmp_path / "r.onnx").write_bytes(raw)
    (tmp_path / "r.onnx.json").write_text('{"labels": ["easy", "hard"]}')
    hard = OnnxScorerSettings(path="r.onnx", positive="hard").open("s", str(tmp_path))
    easy = OnnxScorerSettings(path="r.onnx", positive="easy").open("s", str(tmp_path))
    assert hard.score(request("hard"))["s"] > 0.5 > easy.score(request("hard"))["s"]
    assert math.isfinite(hard.score(request("\ud800\x00"))["s"])
    with pytest.raises(ConfigError, match="'medium' is none of"):
        OnnxScorerSettings(path="r.onnx", positive="medium").open("s", str(tmp_path))


def test_data_fields_missing_values_and_what_is_not_finite(tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    shape = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])
    graph = helper.make_graph([node], "g", [shape], [out])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(tmp_path / "i.onnx"))
    scorer = OnnxScorerSettings(path="i.onnx", features=("data.age",)).open("s", str(tmp_path))
    assert scorer.score(request(data={"age": 3})) == {"s": 3.0}
    for data in ({}, {"age": "3"}, {"age": None}, "text", {"age": math.inf}, {"age": 10**400}):
        with pytest.raises(ScorerError, match="finite"):
            scorer.score(request(data=data))
    with pytest.raises(ConfigError, match="2 named, the model takes 1"):
        OnnxScorerSettings(path="i.onnx", features=("length", "words")).open("s", str(tmp_path))
    with pytest.raises(ConfigError, match="name the features"):
        OnnxScorerSettings(path="i.onnx").open("s", str(tmp_path))
    with pytest.raises(ConfigError, match=r"'lenght'; did you mean 'length'\?, or meta.lenght"):
        OnnxScorerSettings(path="i.onnx", features=("lenght",)).open("s", str(tmp_path))
    with pytest.raises(ConfigError, match="not there"):
        OnnxScorerSettings(path="absent.onnx").open("s", str(tmp_path))


def test_python_callables(tmp_path: Path) -> None:
    (tmp_path / "my_signals.py").write_text(
        "def size(request): return len(request.text)\n"
        "def odd(request): return float('nan')\n"
        "def broken(request): return request.meta['x']\n"
        "async def later(request): return 1\n"
        "class Scaled:\n"
        "    def __init__(self, by=1): self.by = by\n"
        "    def __call__(self, request): return len(request.text) * self.by\n"
    )

    def opened(name: str, **args: object) -> Scorer:
        return PythonScorerSettings(callable=f"my_signals:{name}", args=args).open("s", str(tmp_path))

    assert opened("size").score(request("abc")) == {"s": 3.0}
    assert opened("Scaled", by=2).score(request("abc")) == {"s": 6.0}
    with pytest.raises(ScorerError, match="finite"):
        opened("odd").score(request())
    with pytest.raises(ScorerError, match="KeyError"):
        opened("broken").score(request())
    for name, args, word in (("later", {}, "plain function"), ("size", {"by": 1}, "no args"), ("Scaled", {"to": 1}, "made")):
        with pytest.raises(ConfigError, match=word):
            opened(name, **args)


def test_the_registry_reads_each_kind_by_its_name() -> None:
    for name, kind in SCORERS.items():
        assert kind.__struct_config__.tag == name
    settings = msgspec.convert({"scorer": "onnx", "path": "x.onnx"}, OnnxScorerSettings | PythonScorerSettings)
    assert settings == OnnxScorerSettings(path="x.onnx")


def test_importing_the_signals_loads_nothing_heavy() -> None:
    code = "import sys, rheostat.signals; print([m for m in ('numpy', 'onnxruntime', 'sklearn') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
