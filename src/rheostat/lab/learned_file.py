"""Writes and reads the files that the `learned` scorer serves: an ONNX model with a card."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from rheostat.pool.onnx_session import open_session
from rheostat.signals.learned import CARD_KEY, LearnedCard, card_of

OPSET: Final = 17
"""The ONNX opset that conversions ask for."""


def from_sklearn(estimator: Any, width: int) -> Any:
    """Convert a fitted scikit-learn regressor, binary classifier or pipeline to an ONNX model (`onnx.ModelProto`).

    Its input is `x`, float32 (n, width). Its output is what the regressor predicts, (n, outputs), or the probability of the
    classifier's last class, (n, 1).

    Raises:
        ValueError: the classifier knows more than two classes.
    """
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.base import is_classifier

    options: dict[str, Any] = {"zipmap": False} if is_classifier(estimator) else {}
    if is_classifier(estimator) and len(estimator.classes_) > 2:
        raise ValueError(f"expected a classifier of two classes, got {len(estimator.classes_)}: fit one regressor an output")
    model = to_onnx(
        estimator,
        initial_types=[("x", FloatTensorType([None, width]))],
        options={id(estimator): options} if options else None,
        target_opset={"": OPSET, "ai.onnx.ml": 3},
    )
    return _last_column(model) if is_classifier(estimator) else model


def side_by_side(models: Sequence[Any]) -> Any:
    """Return one ONNX model whose output is the models' outputs side by side; all take the same input `x`."""
    return _joined(models, lambda helper, names: helper.make_node("Concat", names, ["joined"], axis=1))


def mean_of(models: Sequence[Any]) -> Any:
    """Return one ONNX model whose output is the mean of the models' outputs; all take the same input `x`."""
    return _joined(models, lambda helper, names: helper.make_node("Mean", names, ["joined"]))


def write_learned(
    model: Any, card: LearnedCard, path: str | os.PathLike[str], more: Mapping[str, str] | None = None
) -> LearnedCard:
    """Write the model with its card, whole or not at all, and return the card as it can be read back.

    Args:
        model: an `onnx.ModelProto` or its bytes, with one float32 input `x` of shape (n, features + embedding) and one
            float32 output of shape (n, outputs).
        more: further metadata properties of the file, by name.

    Raises:
        ConfigError: the model has another shape than the card says, or cannot be run.
        OSError: it cannot be written.
    """
    import onnx

    found = onnx.load_model_from_string(model) if isinstance(model, bytes) else model
    onnx.helper.set_model_props(found, {**(more or {}), CARD_KEY: msgspec.json.encode(card).decode()})
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(found.SerializeToString())
        read = read_card(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return read


def read_card(path: str | os.PathLike[str]) -> LearnedCard:
    """Return the card of a learned file.

    Raises:
        ConfigError: there is no such file, or it is no learned file; the message says why.
    """
    return card_of(open_session(Path(path), 1, "path"), Path(path).name)


def predict_learned(path: str | os.PathLike[str], x: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return what a learned file says on rows of numbers, shape (n, outputs).

    Args:
        x: (n, features + embedding).

    Raises:
        ConfigError: it is no learned file.
    """
    session = open_session(Path(path), 1, "path")
    card_of(session, Path(path).name)
    (values,) = session.run(None, {"x": np.asarray(x, dtype=np.float32)})
    said: npt.NDArray[np.float32] = values
    return said


def _last_column(model: Any) -> Any:
    """Leave of a classifier's label and probabilities only the last class's probability."""
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    chances = graph.output[-1].name
    graph.initializer.extend(
        [numpy_helper.from_array(np.array([value], dtype=np.int64), f"last_{key}") for key, value in _LAST.items()]
    )
    graph.node.append(helper.make_node("Slice", [chances, *(f"last_{key}" for key in _LAST)], ["last"]))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("last", TensorProto.FLOAT, [None, 1]))
    return model


_LAST: Final = {"starts": 1, "ends": 2, "axes": 1}


def _joined(models: Sequence[Any], join: Any) -> Any:
    from onnx import TensorProto, compose, helper

    if len(models) == 1:
        return models[0]
    parts = [
        compose.add_prefix(model, f"m{place}_", rename_inputs=False, rename_outputs=True)
        for place, model in enumerate(models)
    ]
    names = [part.graph.output[0].name for part in parts]
    opsets = {each.domain: each.version for part in parts for each in part.opset_import}
    graph = helper.make_graph(
        [node for part in parts for node in part.graph.node] + [join(helper, names)],
        "joined",
        [parts[0].graph.input[0]],
        [helper.make_tensor_value_info("joined", TensorProto.FLOAT, [None, None])],
        [each for part in parts for each in part.graph.initializer],
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=min(part.ir_version for part in parts))
