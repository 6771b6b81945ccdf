"""Which rows are alike enough to go through a model in one call."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any


def shape_of(row: Any) -> Hashable:
    """Return what must be equal for two rows to share a call: a text, or the names of the fields with the length of every
    list, the shape of every array and whether a value is a text. Numbers and missing ones are alike."""
    if type(row) is str:
        return "text"
    if isinstance(row, Mapping):
        return frozenset([(name, shape_of(value)) for name, value in row.items()])
    if isinstance(row, list | tuple):
        return (len(row), shape_of(row[0])) if row else (0, None)
    shape = getattr(row, "shape", None)
    if isinstance(shape, tuple):
        return (shape, str(getattr(row, "dtype", "")))
    return "number" if row is None or isinstance(row, int | float) else type(row).__name__


def any_shape(row: Any) -> Hashable:  # noqa: ARG001
    """For models that make every row the same shape themselves, from named features."""
    return None
