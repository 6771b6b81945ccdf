import json
import pickle
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from rheostat.backends.onnx import OnnxModel
from rheostat.errors import ConfigError, ContractError, ModelError
from rheostat.pool.backend import Backend, Reply
from rheostat.types import Prediction

TEXTS = ["good film", "very good", "bad film", "very bad", "film about a dog", "a cat"]
ANSWERS = ["pos", "pos", "neg", "neg", "neutral", "neutral"]
LABELS = ("neg", "neutral", "pos")


@pytest.fixture(scope="module")
def pipeline() -> object:
    return make_pipeline(TfidfVectorizer(), LogisticRegression(C=100)).fit(TEXTS, ANSWERS)


def export(model: object, path: Path, *, zipmap: bool = False) -> None:
    kind = [("text", StringTensorType([None, 1]))]
    options = {TfidfVectorizer: {"locale": "C.UTF-8"}, LogisticRegression: {"zipmap": zipmap}}
    path.write_bytes(to_onnx(model, initial_types=kind, options=options).SerializeToString())


def small(
    path: Path, nodes: list[object], inputs: list[object], outputs: list[object], weights: dict[str, np.ndarray]
) -> None:
    """Write a hand-made graph."""
    initialisers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initialisers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))


def tensor(name: str, shape: list[object], kind: int = TensorProto.FLOAT) -> object:
    return helper.make_tensor_value_info(name, kind, shape)


def identity(path: Path, width: int) -> None:
    """A model whose output is its input: any score can be sent through it."""
    node = helper.make_node("Identity", ["x"], ["probabilities"])
    small(path, [node], [tensor("x", [None, width])], [tensor("probabilities", [None, width])], {})


def sure(reply: Reply) -> Prediction:
    assert isinstance(reply, Prediction), reply
    return reply


@pytest.mark.parametrize("zipmap", [False, True])
def test_a_text_pipeline_equals_scikit_learn(tmp_path: Path, pipeline: object, zipmap: bool) -> None:
    export(pipeline, tmp_path / "m.onnx", zipmap=zipmap)
    backend = OnnxModel(path="m.onnx", labels=LABELS).open(str(tmp_path))
    assert isinstance(backend, Backend)
    rows = [*TEXTS, {"text": "good"}]
    expected = pipeline.predict_proba([*TEXTS, "good"])  # type: ignore[attr-defined]
    for reply, line in zip(backend.predict(rows), expected, strict=True):
        prediction = sure(reply)
        assert prediction.scores is not None
        assert [prediction.scores[label] for label in LABELS] == pytest.approx(line, abs=1e-5)
        assert prediction.label == LABELS[int(line.argmax())]
        assert prediction.confidence == max(prediction.scores.values())


def test_hard_text_never_crashes_and_wrong_rows_fail_alone(tmp_path: Path, pipeline: object) -> None:
    export(pipeline, tmp_path / "m.onnx")
    backend = OnnxModel(path="m.onnx", labels=LABELS).open(str(tmp_path))
    replies = backend.predict(["good", 5, "a\ud800b", "nul\x00", "", None, "😀" * 1000])  # type: ignore[union-attr]
    kinds = [reply.kind if isinstance(reply, ModelError) else "ok" for reply in replies]
    assert kinds == ["ok", "input_refused", "ok", "ok", "ok", "input_refused", "ok"]


def test_labels_by_sidecar_by_metadata_and_in_conflict(tmp_path: Path, pipeline: object) -> None:
    path = tmp_path / "m.onnx"
    export(pipeline, path)
    with pytest.raises(ConfigError, match="labels: the file names none"):
        OnnxModel(path="m.onnx").open(str(tmp_path))
    with pytest.raises(ContractError, match="2 named, the model has 3"):
        OnnxModel(path="m.onnx", labels=("a", "b")).open(str(tmp_path))
    with pytest.raises(ContractError, match="not in the order"):
        OnnxModel(path="m.onnx", labels=("pos", "neutral", "neg")).open(str(tmp_path))

    (tmp_path / "m.onnx.json").write_text(json.dumps({"labels": LABELS}))
    backend = OnnxModel(path="m.onnx", labels=("pos", "neg", "neutral")).open(str(tmp_path))
    assert backend.labels == LABELS
    assert sure(backend.predict(["good"])[0]).label == "pos"  # type: ignore[union-attr]
    with pytest.raises(ContractError, match="junk"):
        OnnxModel(path="m.onnx", labels=("pos", "neg", "junk")).open(str(tmp_path))

    (tmp_path / "m.onnx.json").write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        OnnxModel(path="m.onnx").open(str(tmp_path))
    (tmp_path / "m.onnx.json").unlink()
    model = onnx.load(str(path))
    helper.set_model_props(model, {"labels": json.dumps(LABELS)})
    onnx.save(model, str(path))
    assert OnnxModel(path="m.onnx").open(str(tmp_path)).labels == LABELS


def test_named_features_missing_is_nan_and_number_labels(tmp_path: Path) -> None:
    model = LogisticRegression(C=100).fit(np.array([[0.0, 1.0], [1.0, 0.0], [0.1, 1.0]], dtype=np.float32), [0, 1, 0])
    raw = to_onnx(model, initial_types=[("x", FloatTensorType([None, 2]))], options={"zipmap": False}).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(raw)
    settings = OnnxModel(path="m.onnx", labels=("0", "1"), features=("a", "b"))
    backend = settings.open(str(tmp_path))
    first, second, text, broken = backend.predict([{"b": 1, "a": 0}, {"a": True, "b": 0.0}, "text", {"a": "1", "b": 0}])  # type: ignore[union-attr]
    assert [sure(first).label, sure(second).label] == ["0", "1"]
    assert isinstance(text, ModelError)
    assert text.kind == "input_refused"
    assert isinstance(broken, ModelError)
    assert "'a'" in str(broken)
    (missing,) = backend.predict([{"a": 1}])  # type: ignore[union-attr]
    assert isinstance(missing, ModelError)
    assert missing.kind == "bad_output"
    with pytest.raises(ConfigError, match="3 named, the model takes 2"):
        OnnxModel(path="m.onnx", labels=("0", "1"), features=("a", "b", "c")).open(str(tmp_path))


def test_a_row_that_is_no_distribution_fails_alone(tmp_path: Path) -> None:
    identity(tmp_path / "m.onnx", 2)
    backend = OnnxModel(path="m.onnx", labels=("a", "b")).open(str(tmp_path))
    nan, inf = float("nan"), float("inf")
    replies = backend.predict([[0.25, 0.75], [nan, 1], [inf, 0], [2, 3], [-1, 2], [1, 0], [1], "x"])  # type: ignore[union-attr]
    assert sure(replies[0]) == Prediction("b", 0.75, {"a": 0.25, "b": 0.75})
    assert sure(replies[5]) == Prediction("a", 1.0, {"a": 1.0, "b": 0.0})
    kinds = [reply.kind for reply in replies if isinstance(reply, ModelError)]
    assert kinds == ["bad_output"] * 4 + ["input_refused"] * 2
    assert "logits" in str(replies[3])


def test_logits_and_one_column(tmp_path: Path) -> None:
    identity(tmp_path / "two.onnx", 2)
    identity(tmp_path / "one.onnx", 1)
    two = OnnxModel(path="two.onnx", labels=("a", "b"), output="logits").open(str(tmp_path))
    high, odd = two.predict([[1000.0, 999.0], [float("nan"), 0.0]])  # type: ignore[union-attr]
    assert sure(high).confidence == pytest.approx(1 / (1 + np.exp(-1)))
    assert isinstance(odd, ModelError)
    one = OnnxModel(path="one.onnx", labels=("a", "b"), output="logits").open(str(tmp_path))
    assert sure(one.predict([[2.0]])[0]).scores == pytest.approx({"a": 1 / (1 + np.exp(2)), "b": 1 / (1 + np.exp(-2))})  # type: ignore[union-attr]
    share = OnnxModel(path="one.onnx", labels=("a", "b")).open(str(tmp_path))
    assert sure(share.predict([[0.2]])[0]) == Prediction(
        "a", pytest.approx(0.8), {"a": pytest.approx(0.8), "b": pytest.approx(0.2)}
    )  # type: ignore[union-attr, arg-type]


class Planted:
    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (open, (self.target, "w"))


@pytest.mark.parametrize("content", ["pickle", b"", b"not a model", b"\x00" * 100, b"\x08\x09"])
def test_what_is_no_onnx_file_is_refused_and_runs_nothing(tmp_path: Path, content: object) -> None:
    target = tmp_path / "planted"
    raw = pickle.dumps(Planted(str(target))) if content == "pickle" else content
    (tmp_path / "m.onnx").write_bytes(raw)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"m\.onnx"):
        OnnxModel(path="m.onnx", labels=("a", "b")).open(str(tmp_path))
    assert not target.exists()
    with pytest.raises(ConfigError, match="not there"):
        OnnxModel(path="absent.onnx").open(str(tmp_path))
    with pytest.raises(ConfigError, match="threads"):
        OnnxModel(path="m.onnx", threads=0).open(str(tmp_path))


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """A tokenizer, an encoder (token id -> row of a table, in external data) and a linear head on top."""
    words = {"[PAD]": 0, "[UNK]": 1, "good": 2, "bad": 3, "film": 4}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    table = np.array([[9, 9], [0.1, 0.1], [1, 0], [0, 1], [0.5, 0.5]], dtype=np.float32)
    table = np.concatenate([table, np.zeros((300, 2), np.float32)])  # large enough to be stored outside
    ids = [tensor(name, ["n", "t"], TensorProto.INT64) for name in ("input_ids", "attention_mask")]
    node = helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    small(tmp_path / "trunk.onnx", [node], ids, [tensor("last_hidden_state", ["n", "t", 2])], {"table": table})
    model = onnx.load(str(tmp_path / "trunk.onnx"))
    onnx.save(model, str(tmp_path / "trunk.onnx"), save_as_external_data=True, location="trunk.bin", size_threshold=0)
    head = helper.make_node("MatMul", ["embedding", "w"], ["logits"])
    weights = {"w": np.array([[0, 5], [5, 0]], np.float32)}
    small(tmp_path / "head.onnx", [head], [tensor("embedding", [None, 2])], [tensor("logits", [None, 2])], weights)
    (tmp_path / "head.onnx.json").write_text('{"labels": ["neg", "pos"]}')
    return tmp_path


def test_an_encoder_and_a_head_batch_without_padding_leaking_in(encoder: Path) -> None:
    settings = OnnxModel(path="trunk.onnx", tokenizer="tokenizer.json", head="head.onnx", output="logits")
    backend = settings.open(str(encoder))
    assert isinstance(backend, Backend)
    assert backend.labels == ("neg", "pos")
    rows = ["good", "bad film " * 20, "good film", "", "\ud800", "bad"] * 30
    together = [sure(reply) for reply in backend.predict(rows)]
    alone = [sure(backend.predict([row])[0]) for row in rows]
    assert [each.label for each in together] == [each.label for each in alone]
    assert together[0].label == "pos"
    assert together[1].label == "neg"
    assert [each.confidence for each in together] == pytest.approx([each.confidence for each in alone], abs=1e-5)


def mapped(folder: Path) -> bool:
    return "trunk.bin" in "".join(line for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line)


def test_weights_beside_the_file_may_be_shared(encoder: Path) -> None:
    given = {"path": "trunk.onnx", "tokenizer": "tokenizer.json", "head": "head.onnx", "output": "logits"}
    rows = ["good", "bad film", "film good bad"]
    apart = OnnxModel(**given).open(str(encoder)).predict(rows)  # type: ignore[union-attr,arg-type]
    assert not mapped(encoder)
    backend = OnnxModel(**given, share=True).open(str(encoder))  # type: ignore[arg-type]
    assert mapped(encoder)
    assert backend.predict(rows) == apart  # type: ignore[union-attr]
    backend.close()  # type: ignore[union-attr]
    assert not mapped(encoder)


def test_there_has_to_be_something_to_share(tmp_path: Path) -> None:
    identity(tmp_path / "m.onnx", 2)
    with pytest.raises(ConfigError, match=r"share: the weights of m\.onnx stand in it; save it with external data"):
        OnnxModel(path="m.onnx", labels=("a", "b"), share=True).open(str(tmp_path))


def test_text_is_cut_at_max_length(encoder: Path) -> None:
    settings = OnnxModel(path="trunk.onnx", tokenizer="tokenizer.json", head="head.onnx", output="logits", max_length=4)
    cut = settings.open(str(encoder)).predict(["good good good good " + "bad " * 50])[0]  # type: ignore[union-attr]
    assert sure(cut).label == "pos"


def test_what_an_encoder_lacks_is_named(encoder: Path) -> None:
    with pytest.raises(ConfigError, match="tokenizer"):
        OnnxModel(path="trunk.onnx", head="head.onnx").open(str(encoder))
    with pytest.raises(ConfigError, match="name a head"):
        OnnxModel(path="trunk.onnx", tokenizer="tokenizer.json", labels=("a", "b")).open(str(encoder))
    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        OnnxModel(path="trunk.onnx", tokenizer="trunk.bin", head="head.onnx").open(str(encoder))


def test_a_closed_model_says_so(tmp_path: Path) -> None:
    identity(tmp_path / "m.onnx", 2)
    backend = OnnxModel(path="m.onnx", labels=("a", "b")).open(str(tmp_path))
    backend.close()  # type: ignore[union-attr]
    (reply,) = backend.predict([[0.5, 0.5]])  # type: ignore[union-attr]
    assert isinstance(reply, ModelError)
    assert reply.kind == "unavailable"


def test_a_locale_that_is_not_there_is_explained(tmp_path: Path) -> None:
    node = helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER", locale="xx_XX.none")
    kind = TensorProto.STRING
    small(tmp_path / "m.onnx", [node], [tensor("x", [1], kind)], [tensor("y", [1], kind)], {})
    with pytest.raises(ConfigError, match="locale this machine lacks"):
        OnnxModel(path="m.onnx").open(str(tmp_path))
