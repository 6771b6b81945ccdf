"""A tensor as a JSON object: `{name, datatype, shape, data}`."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rheostat.tensors.tensor import FLOATS, RANGES, Tensor, TensorError, checked_datatype, checked_shape, count, shown


def from_json(given: Any) -> Tensor:
    """Read a tensor with its data in JSON. Nested data are read like flat ones, their nesting must be what the shape says.

    Raises:
        TensorError: it is none.
    """
    name, datatype, shape, parameters = head(given)
    data = given.get("data")
    if not isinstance(data, list):
        raise TensorError(f"expected data of {name!r} as a list, got {shown(data)}")
    values = _flat(data, shape)
    if values is None or len(values) != count(shape):
        raise TensorError(f"expected data of {name!r} in the shape {list(shape)}, got {shown(data)}")
    _check(name, datatype, values)
    return Tensor(name, datatype, shape, values, parameters)


def head(given: Any) -> tuple[str, str, tuple[int, ...], Mapping[str, Any]]:
    """Return what a tensor's object says beside its data: name, datatype, shape and parameters.

    Raises:
        TensorError: one of them is wrong.
    """
    if not isinstance(given, Mapping):
        raise TensorError(f"expected a tensor as an object, got {shown(given)}")
    name, parameters = given.get("name"), given.get("parameters")
    if not isinstance(name, str) or not name:
        raise TensorError(f"expected the name of a tensor, got {shown(name)}")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise TensorError(f"expected the parameters of {name!r} as an object, got {shown(parameters)}")
    shape = checked_shape(name, given.get("shape"))
    return name, checked_datatype(name, given.get("datatype")), shape, parameters or {}


def to_json(tensor: Tensor) -> dict[str, Any]:
    """Return the tensor as an object; a float that is not finite becomes null, as JSON has no other form for it."""
    return {
        "name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape), "data": list(tensor.values),
    }  # fmt: skip


def _flat(data: list[Any], shape: Sequence[int]) -> list[Any] | None:
    """Return the values of flat data, or of data nested as `shape` says; None when the nesting is another."""
    if list not in set(map(type, data)):
        return data
    rows: list[Any] = [data]
    for size in shape:
        if not all(isinstance(row, list) and len(row) == size for row in rows):
            return None
        rows = [value for row in rows for value in row]
    return rows


def _check(name: str, datatype: str, values: Sequence[Any]) -> None:
    if datatype == "BYTES":
        if not all(isinstance(value, str) for value in values):
            raise TensorError(f"expected text in {name!r}, got {shown(values)}")
    elif datatype == "BOOL":
        if not all(isinstance(value, bool) for value in values):
            raise TensorError(f"expected true or false in {name!r}, got {shown(values)}")
    elif datatype in FLOATS:
        plain = set(map(type, values)) == {float}
        if not all(map(math.isfinite if plain else _finite, values)):
            raise TensorError(f"expected finite numbers in {name!r}, got {shown(values)}")
    else:
        low, high = RANGES[datatype]
        if not all(type(value) is int and low <= value <= high for value in values):
            raise TensorError(f"expected finite numbers in {name!r}, whole and from {low} to {high}, got {shown(values)}")


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
