"""What a tensor of the protocol is, and the rules that hold in each of its forms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

FLOATS = frozenset({"FP16", "FP32", "FP64"})
RANGES = {
    f"{sign}INT{bits}": (0, (1 << bits) - 1) if sign else (-(1 << bits - 1), (1 << bits - 1) - 1)
    for sign in ("", "U")
    for bits in (8, 16, 32, 64)
}
"""The whole numbers that a datatype holds, from and to."""
INTEGERS = frozenset(RANGES)
DATATYPES = FLOATS | INTEGERS | {"BOOL", "BYTES"}
MAX_DIMENSIONS = 16


class TensorError(ValueError):
    """What came is no tensor of the protocol; the message says why and names the tensor."""


class Tensor(NamedTuple):
    """Values in row-major order: text for BYTES, truth values for BOOL, numbers else (a float may be NaN or infinite)."""

    name: str
    datatype: str
    shape: Sequence[int]
    values: Sequence[Any]
    parameters: Mapping[str, Any] = {}

    @property
    def is_float(self) -> bool:
        """Whether the values are floats."""
        return self.datatype in FLOATS


def checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    """Return the shape as it came.

    Raises:
        TensorError: it is none: no list, too long, or with something else than whole numbers of 0 and more.
    """
    fits = isinstance(shape, list | tuple) and len(shape) <= MAX_DIMENSIONS
    if not fits or not all(type(size) is int and 0 <= size < 1 << 63 for size in shape):
        raise TensorError(f"expected a shape of {name!r} (whole numbers of 0 and more), got {shown(shape)}")
    return tuple(shape)


def checked_datatype(name: str, datatype: Any) -> str:
    """Return the datatype as it came.

    Raises:
        TensorError: it is none that is read here.
    """
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise TensorError(f"expected numbers or text in {name!r} ({', '.join(sorted(DATATYPES))}), got {shown(datatype)}")
    return datatype


def count(shape: Sequence[int]) -> int:
    """Return how many values a tensor of this shape has; no size is too large for the answer."""
    return math.prod(shape)


def shown(value: Any) -> str:
    """Return what came, cut to a readable length."""
    text = repr(value[:20] if isinstance(value, list | tuple | str | bytes) else value)
    return text if len(text) <= 80 else f"{text[:80]}..."
