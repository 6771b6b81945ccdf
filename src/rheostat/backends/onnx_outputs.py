"""What an ONNX classifier says, read as distributions over its labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rheostat.backends.reply import SUM_TOLERANCE, as_reply, bad_output
from rheostat.errors import ConfigError, Problem
from rheostat.pool.backend import Reply
from rheostat.types import Prediction

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FLOATS = ("tensor(float)", "tensor(double)", "tensor(float16)")
_NAMES = ("tensor(string)", "tensor(int64)")
_PREFERRED = ("probabilities", "logits", "output_probability", "scores")


class Output:
    """The one output that is read, and how."""

    def __init__(self, name: str, kind: str, width: int | None, label_name: str | None) -> None:
        self.name = name
        self.kind = kind  # matrix | mappings | label
        self.width = width
        self.label_name = label_name


def choose_output(session: Any) -> Output:
    """Choose the output with the distribution: by name (`probabilities`, `logits`, ...), else the last with numbers.

    Raises:
        ConfigError: the model has none that can be read.
    """
    outputs = session.get_outputs()
    label = next((each.name for each in outputs if each.type in _NAMES and len(each.shape) == 1), None)
    for each in outputs:
        if each.type.startswith("seq(map("):
            return Output(each.name, "mappings", None, label)
    floats = [each for each in outputs if each.type in _FLOATS]
    named = [each for name in _PREFERRED for each in floats if each.name == name]
    for each in named or reversed(floats):
        width = each.shape[-1] if len(each.shape) > 1 else 1
        return Output(each.name, "matrix", width if isinstance(width, int) else None, label)
    if label is not None:
        return Output(label, "label", None, label)
    shown = [f"{each.name}: {each.type}" for each in outputs]
    raise ConfigError([Problem("path", None, f"no output can be read as probabilities, logits or a label: {shown}")])


def read_matrix(values: NDArray[Any], labels: Sequence[str], logits: bool) -> list[Reply]:
    """Read an (n, labels) matrix; of a two-label model one column, the second label's, is enough.

    A row that is not finite, or no distribution though `logits` is False, is `bad_output` and leaves its neighbours alone.
    """
    return [_read_line(line, labels, logits) for line in values.reshape(len(values), -1).tolist()]


def _read_line(line: list[float], labels: Sequence[str], logits: bool) -> Reply:
    # Plain Python: for one row, the usual case, NumPy's calls would cost more than the arithmetic.
    if len(line) == 1 and len(labels) == 2:
        line = [0.0 if logits else 1.0 - line[0], line[0]]
    if len(line) != len(labels):
        return bad_output(f"{len(labels)} scores, one a label", f"{len(line)}")
    total = sum(line)
    if not math.isfinite(total):
        return bad_output("finite scores", line)
    if logits:
        line = _softmax(line)
    elif abs(total - 1.0) > SUM_TOLERANCE or min(line) < -1e-6:
        return bad_output("probabilities that sum to 1 (for raw scores set output: logits)", f"a sum of {total:.6g}")
    elif min(line) < 0.0 or max(line) > 1.0:  # rounding
        line = [min(max(each, 0.0), 1.0) for each in line]
    top = max(line)
    return Prediction(labels[line.index(top)], top, dict(zip(labels, line, strict=True)))


def read_mappings(values: Sequence[Any], labels: Sequence[str] | None) -> list[Reply]:
    """Read skl2onnx's ZipMap: one mapping of class to probability a row."""
    return [as_reply({str(key): number for key, number in each.items()}, labels) for each in values]


def _softmax(line: Sequence[float]) -> list[float]:
    top = max(line)
    powers = [math.exp(each - top) for each in line]
    total = math.fsum(powers)
    return [each / total for each in powers]
