"""A tensor of the Open Inference Protocol as JSON, read strictly: what does not fit is a fault, never a wrong number."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rheostat.backends.reply import bad_output
from rheostat.errors import ModelError

_FLOATS = frozenset({"FP16", "FP32", "FP64"})
_NUMBERS = _FLOATS | {"INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"}


class Tensor(NamedTuple):
    """One output: its values in row-major order, text for BYTES and finite numbers else."""

    name: str
    datatype: str
    values: Sequence[Any]

    @property
    def is_float(self) -> bool:
        """Whether the values are floats."""
        return self.datatype in _FLOATS


def tensor_named(name: str, answer: Any) -> Tensor | ModelError:
    """Return the output `name` of an inference response, or a ModelError (`bad_output`) that says what came instead.

    Nested data are read like flat ones. The number of values must be what the shape says, the nesting as well.
    """
    outputs = answer.get("outputs") if isinstance(answer, Mapping) else None
    if not isinstance(outputs, list):
        return bad_output("an inference response with outputs", answer)
    found = [output for output in outputs if isinstance(output, Mapping) and output.get("name") == name]
    if len(found) != 1:
        came = [output.get("name") if isinstance(output, Mapping) else output for output in outputs]
        return bad_output(f"one output named {name!r}", came)
    return _tensor(name, found[0])


def _tensor(name: str, output: Mapping[str, Any]) -> Tensor | ModelError:
    shape, datatype, data = output.get("shape"), output.get("datatype"), output.get("data")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        return bad_output(f"a shape of {name!r}", shape)
    if not isinstance(data, list):
        return bad_output(f"data of {name!r} as a list", data)
    values = _flat(data, shape)
    if values is None or len(values) != math.prod(shape):
        return bad_output(f"data of {name!r} in the shape {shape}", data)
    if datatype == "BYTES":
        if not all(isinstance(value, str) for value in values):
            return bad_output(f"text in {name!r}", values)
        return Tensor(name, datatype, values)
    if not isinstance(datatype, str) or datatype not in _NUMBERS:
        return bad_output(f"numbers or text in {name!r}", datatype)
    if not all(_finite(value) for value in values):
        return bad_output(f"finite numbers in {name!r}", values)
    return Tensor(name, datatype, values)


def _flat(data: list[Any], shape: Sequence[int]) -> list[Any] | None:
    """Return the values of flat data, or of data nested as `shape` says; None when the nesting is another."""
    if not any(isinstance(value, list) for value in data):
        return data
    rows: list[Any] = [data]
    for size in shape:
        if not all(isinstance(row, list) and len(row) == size for row in rows):
            return None
        rows = [value for row in rows for value in row]
    return rows


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
