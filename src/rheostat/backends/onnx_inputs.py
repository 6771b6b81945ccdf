"""Rows turned into the tensors an ONNX model takes: text, named features or plain vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from rheostat.errors import ConfigError, ModelError, Problem
from rheostat.pool.rows import feature_vector, text_in

_NUMBERS = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(int64)": "int64"}


class Input(Protocol):
    """Prepares rows one by one, so that a wrong one fails alone, and feeds several at once."""

    probes: tuple[Any, ...] | None  # rows for the contract check; None: any text will do

    def prepare(self, row: Any) -> Any:
        """Return the row in the model's terms; raises ModelError `input_refused` when it has another shape."""

    def size(self, prepared: Any) -> int:
        """How much room the row takes; rows of like size share a batch."""

    def feed(self, prepared: Sequence[Any]) -> dict[str, Any]:
        """Return the tensors by input name."""


class TextInput:
    """A string tensor [n, 1] or [n], as skl2onnx makes for text pipelines."""

    probes: tuple[Any, ...] | None = None

    def __init__(self, name: str, rank: int) -> None:
        self._name = name
        self._rank = rank

    def prepare(self, row: Any) -> str:
        return text_in(row).replace("\x00", " ")

    def size(self, prepared: Any) -> int:  # noqa: ARG002
        return 1

    def feed(self, prepared: Sequence[Any]) -> dict[str, Any]:
        column = np.array(prepared, dtype=object)
        return {self._name: column.reshape(-1, 1) if self._rank == 2 else column}


class FeatureInput:
    """Named features as one float matrix, or as one column an input where the model has an input for each."""

    def __init__(self, inputs: Sequence[Any], features: Sequence[str]) -> None:
        self._features = tuple(features)
        self._inputs = [(each.name, _NUMBERS[each.type]) for each in inputs]
        self.probes: tuple[Any, ...] | None = tuple(dict.fromkeys(features, value) for value in (0.0, 1.0, -1.0, 1000.0))

    def prepare(self, row: Any) -> list[float]:
        return feature_vector(row, self._features)

    def size(self, prepared: Any) -> int:  # noqa: ARG002
        return 1

    def feed(self, prepared: Sequence[Any]) -> dict[str, Any]:
        matrix = np.array(prepared, dtype=np.float64)
        if len(self._inputs) == 1:
            return {self._inputs[0][0]: matrix.astype(self._inputs[0][1])}
        columns = {name: matrix[:, i : i + 1] for i, name in enumerate(self._features)}
        return {name: columns[name].astype(dtype) for name, dtype in self._inputs}


class VectorInput:
    """A list of numbers as it is; null is NaN."""

    def __init__(self, name: str, kind: str, width: int | None) -> None:
        self._name = name
        self._dtype = _NUMBERS[kind]
        self._width = width
        self.probes: tuple[Any, ...] | None = tuple([value] * width for value in (0.0, 1.0, -1.0)) if width else ()

    def prepare(self, row: Any) -> list[float]:
        if isinstance(row, np.ndarray) and row.ndim == 1:
            row = row.tolist()
        if not isinstance(row, Sequence) or isinstance(row, str | bytes) or self._width not in (None, len(row)):
            raise ModelError("input_refused", f"expected a list of {self._width or 'some'} numbers, got {row!r:.80}")
        try:
            return [float("nan") if value is None else float(value) for value in row]
        except (TypeError, ValueError, OverflowError):
            raise ModelError("input_refused", f"expected numbers only, got {row!r:.80}") from None

    def size(self, prepared: Any) -> int:
        return len(prepared)

    def feed(self, prepared: Sequence[Any]) -> dict[str, Any]:
        return {self._name: np.array(prepared, dtype=self._dtype)}


class ArrayInput:
    """An array of numbers, such as an image, as it is; lists in lists are taken for one. `shape` is a row's; None: any."""

    probes: tuple[Any, ...] | None

    def __init__(self, name: str, kind: str, shape: Sequence[int | None] | None) -> None:
        self._name = name
        self._dtype = _NUMBERS[kind]
        self._shape = None if shape is None else tuple(shape)
        some = [size or 32 for size in shape or ()]
        self.probes = tuple(np.full(some, value, self._dtype) for value in (0.0, 1.0, -1.0)) if some else ()

    def prepare(self, row: Any) -> np.ndarray[Any, Any]:
        try:
            array = np.asarray(row, dtype=self._dtype)
        except (TypeError, ValueError, OverflowError):
            raise ModelError("input_refused", f"expected an array of numbers, got {type(row).__name__}") from None
        shape = self._shape
        if shape is not None and not (len(shape) == array.ndim and all(map(_fits, shape, array.shape))):
            wanted = " x ".join("any" if size is None else str(size) for size in shape)
            raise ModelError("input_refused", f"expected an array of {wanted} numbers, got {array.shape}")
        return array

    def size(self, prepared: Any) -> int:
        return int(prepared.size)

    def feed(self, prepared: Sequence[Any]) -> dict[str, Any]:
        return {self._name: np.stack(prepared)}


def _fits(wanted: int | None, given: int) -> bool:
    return wanted is None or wanted == given


def plain_input(session: Any, features: Sequence[str]) -> Input:
    """Choose by what the model takes: text, named features or a vector.

    Raises:
        ConfigError: its inputs are of another kind; the message names them.
    """
    inputs = session.get_inputs()
    names, kinds = [each.name for each in inputs], {each.type for each in inputs}
    if kinds == {"tensor(string)"} and len(inputs) == 1:
        return TextInput(names[0], len(inputs[0].shape))
    if not kinds <= set(_NUMBERS):
        raise ConfigError([Problem("path", None, f"inputs {names} of types {sorted(kinds)} are not supported")])
    if {"input_ids", "attention_mask"} & set(names):
        raise ConfigError([Problem("tokenizer", None, f"the model takes {names}: name its tokenizer.json")])
    width = inputs[0].shape[-1] if len(inputs[0].shape) == 2 else None
    width = width if isinstance(width, int) else None
    if features:
        if len(inputs) > 1 and set(names) != set(features):
            raise ConfigError([Problem("features", None, f"the model takes {names}, features are {list(features)}")])
        if len(inputs) == 1 and width not in (None, len(features)):
            raise ConfigError([Problem("features", None, f"{len(features)} named, the model takes {width}")])
        return FeatureInput(inputs, features)
    if len(inputs) > 1:
        raise ConfigError([Problem("features", None, f"the model takes {names}: list them as features")])
    if len(inputs[0].shape) > 2:
        shape = [size if isinstance(size, int) else None for size in inputs[0].shape[1:]]
        return ArrayInput(names[0], inputs[0].type, shape)
    return VectorInput(names[0], inputs[0].type, width)
