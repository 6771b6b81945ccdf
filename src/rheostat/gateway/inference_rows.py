"""From the tensors of an inference request to the rows that the models get."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rheostat.errors import BadRequest
from rheostat.tensors import FLOATS, Tensor
from rheostat.tensors.tensor import count, shown

NAMES = "names"
"""The parameter that names the columns of a matrix: a list, or a text with commas between."""


def rows_of(tensors: Sequence[Tensor], parameters: Mapping[str, Any], most: int) -> list[Any]:
    """Return one row for each place of the tensors' first dimension, at most `most`.

    One BYTES tensor of shape [n] or [n, 1] is n texts. Otherwise a row is an object of features: each tensor of such a shape
    is the feature of its name, and one of shape [n, k] holds the k features that the parameter `names`, its own or the
    request's, names. A float that is NaN is a feature without a value.

    Raises:
        BadRequest: the tensors are no rows, or too many.
    """
    if not tensors:
        raise BadRequest(
            "there is nothing to predict: give texts as a tensor BYTES [n], or features as tensors [n]", "inputs"
        )
    sizes = {tensor.shape[0] if tensor.shape else None for tensor in tensors}
    if None in sizes or len(sizes) != 1:
        shapes = {tensor.name: list(tensor.shape) for tensor in tensors}
        raise BadRequest(
            f"the first dimension of every input is the number of rows, the same for all; got {shapes}", "inputs"
        )
    size = tensors[0].shape[0]
    if not 1 <= size <= most:
        raise BadRequest(f"the inputs have {shown(size)} rows; from 1 to {most} are taken, send more in parts", "inputs")
    if len(tensors) == 1 and tensors[0].datatype == "BYTES" and count(tensors[0].shape) == size:
        return list(tensors[0].values)
    rows: list[dict[str, Any]] = [{} for _ in range(size)]
    known: set[str] = set()
    for tensor in tensors:
        names = _columns(tensor, size, parameters)
        if not known.isdisjoint(names):
            raise BadRequest(f"two inputs name the feature {next(name for name in names if name in known)[:80]!r}", "inputs")
        known.update(names)
        values, width = _values(tensor), len(names)
        for index, row in enumerate(rows):
            row.update(zip(names, values[index * width : (index + 1) * width], strict=True))
    return rows


def _values(tensor: Tensor) -> Sequence[Any]:
    values: Sequence[Any] = tensor.values
    if tensor.datatype in FLOATS and not all(map(math.isfinite, values)):
        if any(map(math.isinf, values)):
            raise BadRequest(f"a number of {tensor.name!r} is not finite", "inputs")
        return [None if math.isnan(value) else value for value in values]
    return values


def _columns(tensor: Tensor, size: int, parameters: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of the features in a row of the tensor."""
    width = len(tensor.values) // size
    if width == 1:
        return (tensor.name,)
    names = _names(tensor.parameters.get(NAMES, parameters.get(NAMES)))
    if not width or len(tensor.shape) != 2 or len(names) != width or len(set(names)) != width:
        raise BadRequest(
            f"{tensor.name!r} has the shape {shown(list(tensor.shape))}: one value a row is [n] or [n, 1]; "
            f'for {width} features a row send [n, {width}] and the parameter `names` ("a,b"), {width} different ones',
            "inputs",
        )
    return names


def _names(given: Any) -> list[str]:
    if isinstance(given, str):
        return [name.strip() for name in given.split(",")]
    return given if isinstance(given, list) and all(isinstance(name, str) for name in given) else []
