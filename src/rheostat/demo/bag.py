"""The fast model: a linear classifier over word pieces and pairs of neighbours, written as one small ONNX file.

Pieces come from the tokenizer that the large model uses too, pairs are hashed into buckets. A feature counts with its
inverse document frequency, the whole vector has length 1 (tf-idf), and the file does all of it from token ids, so what is
served is what was trained. A tf-idf pipeline exported as string operators needs a locale, splits some words otherwise than
scikit-learn does, and is slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

BUCKETS = 1 << 17
_LEFT, _RIGHT, _SHIFT = 31, 7919, 104_729  # primes: a pair's bucket is (left * 31 + right * 7919 + 104729) mod BUCKETS
_MIN_ROWS = 2  # a feature seen in one training text only says nothing about others
_EPSILON = 1e-9
_OPSET = 17


class Bag:
    """Turns token ids into tf-idf features; what it learns from the training texts is how rare each feature is."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.rarity: Floats | None = None

    @property
    def width(self) -> int:
        """The number of features."""
        return self.vocabulary + BUCKETS

    def fit(self, texts: Sequence[Sequence[int]]) -> Any:
        """Learn inverse document frequencies from the training texts' token ids; return their features."""
        import numpy as np

        counts = self._counts(texts)
        rows = np.bincount(counts.indices, minlength=self.width)
        rarity = np.log((1 + len(texts)) / (1 + rows)) + 1
        self.rarity = np.where(rows >= _MIN_ROWS, rarity, 0.0)
        return self._weigh(counts)

    def features(self, texts: Sequence[Sequence[int]]) -> Any:
        """Return a sparse (texts, width) matrix; a text without any known feature is a row of zeros."""
        return self._weigh(self._counts(texts))

    def _counts(self, texts: Sequence[Sequence[int]]) -> Any:
        import numpy as np
        from scipy.sparse import csr_matrix

        parts = [self._features_of(np.asarray(ids, dtype=np.int64)) for ids in texts]
        ends = np.cumsum([0, *(len(part) for part in parts)])
        columns = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        counts = csr_matrix((np.ones(len(columns)), columns, ends), shape=(len(parts), self.width))
        counts.sum_duplicates()
        return counts

    def _features_of(self, ids: Ints) -> Ints:
        import numpy as np

        pairs = self.vocabulary + (ids[:-1] * _LEFT + ids[1:] * _RIGHT + _SHIFT) % BUCKETS
        return np.concatenate([ids, pairs])

    def _weigh(self, counts: Any) -> Any:
        import numpy as np
        from scipy.sparse import diags

        if self.rarity is None:
            raise ValueError("fit the bag on the training texts first")
        length = np.sqrt(np.maximum(counts @ self.rarity**2, _EPSILON))
        return (diags(1.0 / length) @ counts @ diags(self.rarity)).tocsr()


def write_onnx(bag: Bag, weights: Floats, bias: Floats, labels: Sequence[str], path: Path) -> None:
    """Write bag and linear model as one ONNX file: `input_ids` and `attention_mask` in, `probabilities` out.

    Args:
        weights: (labels, width) coefficients of a multinomial logistic model.
        bias: one a label.
        labels: in the order of the coefficients; they are kept in the file's metadata.
    """
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    if bag.rarity is None:
        raise ValueError("fit the bag on the training texts first")
    # One look-up a feature: its share of every label's score, and of the squared length of the vector.
    table = np.concatenate([weights.T * bag.rarity[:, None], bag.rarity[:, None] ** 2], axis=1)
    constants: dict[str, Any] = {
        "table": table.astype(np.float32),
        "bias": np.asarray(bias, dtype=np.float32),
        "epsilon": np.array(_EPSILON, dtype=np.float32),
    }
    integers = {"left_prime": _LEFT, "right_prime": _RIGHT, "shift": _SHIFT, "buckets": BUCKETS, "offset": bag.vocabulary}
    integers |= {"zero": 0, "one": 1, "minus_one": -1, "two": 2, "labels": len(labels), "far": np.iinfo(np.int64).max}
    constants |= {name: np.array([value], dtype=np.int64) for name, value in integers.items()}
    graph = helper.make_graph(
        _nodes(),
        "bag of word pieces and pairs",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"]) for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", len(labels)])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
    helper.set_model_props(model, {"labels": msgspec.json.encode(list(labels)).decode()})
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def _nodes() -> list[Any]:
    from onnx import helper

    lines: list[tuple[str, tuple[str, ...], str, dict[str, Any]]] = [
        ("Slice", ("input_ids", "zero", "minus_one", "one"), "left", {}),
        ("Slice", ("input_ids", "one", "far", "one"), "right", {}),
        ("Slice", ("attention_mask", "one", "far", "one"), "pair_mask", {}),
        ("Mul", ("left", "left_prime"), "left_part", {}),
        ("Mul", ("right", "right_prime"), "right_part", {}),
        ("Add", ("left_part", "right_part"), "both", {}),
        ("Add", ("both", "shift"), "hash", {}),
        ("Mod", ("hash", "buckets"), "bucket", {}),
        ("Add", ("bucket", "offset"), "pair", {}),
        ("Concat", ("input_ids", "pair"), "features", {"axis": 1}),
        ("Concat", ("attention_mask", "pair_mask"), "mask", {"axis": 1}),
        ("Cast", ("mask",), "real", {"to": 1}),
        ("Unsqueeze", ("real", "two"), "real_column", {}),
        ("Gather", ("table", "features"), "looked_up", {"axis": 0}),
        ("Mul", ("looked_up", "real_column"), "counted", {}),
        ("ReduceSum", ("counted", "one"), "summed", {"keepdims": 0}),
        ("Slice", ("summed", "zero", "labels", "one"), "scores", {}),
        ("Slice", ("summed", "labels", "far", "one"), "square", {}),
        ("Max", ("square", "epsilon"), "positive", {}),
        ("Sqrt", ("positive",), "length", {}),
        ("Div", ("scores", "length"), "scaled", {}),
        ("Add", ("scaled", "bias"), "logits", {}),
        ("Softmax", ("logits",), "probabilities", {"axis": 1}),
    ]
    return [helper.make_node(kind, inputs, [output], **attributes) for kind, inputs, output, attributes in lines]
