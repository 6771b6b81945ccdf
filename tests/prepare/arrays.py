"""Models over arrays, small enough to be known by heart."""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers


def shade(rows: Sequence[Any]) -> list[tuple[str, float]]:
    """Says whether an image is light."""
    assert all(isinstance(row, np.ndarray) and row.shape == (1, 4, 4) for row in rows)
    return [("light" if row.mean() > 0.5 else "dark", 0.75) for row in rows]


def nonsense(rows: Sequence[Any]) -> list[str]:
    """Answers with a label that it does not have."""
    return ["grey" for _ in rows]


def decoded(text: str) -> bytes:
    """The file in a row."""
    return b64decode(text)


def write_net(path: Path) -> None:
    """Logits (0, 4 * mean - 2) of an image of any size."""
    four, two = (
        numpy_helper.from_array(np.array([[value]], np.float32), name) for value, name in ((4.0, "four"), (2.0, "two"))
    )
    zero = numpy_helper.from_array(np.array([[0.0]], np.float32), "zero")
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["mean"]),
        helper.make_node("Mul", ["mean", "four"], ["scaled"]),
        helper.make_node("Sub", ["scaled", "two"], ["light"]),
        helper.make_node("Mul", ["mean", "zero"], ["dark"]),
        helper.make_node("Concat", ["dark", "light"], ["logits"], axis=1),
    ]
    _save(path, nodes, [("image", TensorProto.FLOAT, ["n", 1, "h", "w"])], [four, two, zero])


def net_answers(means: Sequence[float]) -> list[float]:
    """The confidences that the net has."""
    light = [1.0 / (1.0 + math.exp(2.0 - 4.0 * mean)) for mean in means]
    return [max(each, 1.0 - each) for each in light]


def write_text_net(folder: Path) -> None:
    """Logits (bad, good): how often each word stands in a text."""
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "good": 2, "bad": 3}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    table = numpy_helper.from_array(np.array([[0, 0], [0, 0], [0, 1], [1, 0]], np.float32), "table")
    axes = numpy_helper.from_array(np.array([1], np.int64), "axes")
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["seen"]),
        helper.make_node("ReduceSum", ["seen", "axes"], ["logits"], keepdims=0),
    ]
    _save(folder / "text.onnx", nodes, [("input_ids", TensorProto.INT64, ["n", "tokens"])], [table, axes])


def _save(path: Path, nodes: list[Any], inputs: list[tuple[str, Any, list[Any]]], weights: list[Any]) -> None:
    given = [helper.make_tensor_value_info(*each) for each in inputs]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 2])
    graph = helper.make_graph(nodes, "net", given, [logits], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def torch_net() -> Any:
    """The net of `write_net` as a module."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(1, 2)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            line: torch.Tensor = self.line(image.mean(dim=(1, 2, 3))[:, None])
            return line

    return Net()


def write_torch_weights(path: Path) -> None:
    """Logits (0, 4 * mean - 2)."""
    from safetensors.numpy import save_file

    weights = {"line.weight": np.array([[0.0], [4.0]], np.float32), "line.bias": np.array([0.0, -2.0], np.float32)}
    save_file(weights, str(path))


def write_sklearn(path: Path) -> str:
    """A classifier over four numbers; returns the hash of its file."""
    import hashlib

    import joblib  # type: ignore[import-untyped]
    from sklearn.linear_model import LogisticRegression

    x = np.array([[0.0] * 4, [0.1] * 4, [0.9] * 4, [1.0] * 4])
    joblib.dump(LogisticRegression().fit(x, ["dark", "dark", "light", "light"]), path)
    return hashlib.sha256(path.read_bytes()).hexdigest()
