"""Groups of rows: by a field of their meta, or by how sure a model was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from rheostat.lab.outcomes import Ints, OutcomesTable
from rheostat.lab.reliability import CONFIDENCE_CUTS

MOST: Final = 12
"""So many values of a field are groups of their own; beyond it the rest is one group, and numbers are cut into quarters."""
FEWEST: Final = 30
"""With fewer independent units (rows, or users when rows are clustered) a group is too small to say anything about."""
NO_VALUE: Final = "(none)"


class Segments(NamedTuple):
    """Which group each row belongs to: `code` indexes `labels`."""

    name: str
    labels: tuple[str, ...]
    code: Ints

    def rows(self, index: int) -> npt.NDArray[np.int64]:
        """Return the rows of one group."""
        return np.flatnonzero(self.code == index)


def meta_values(table: OutcomesTable, field: str) -> list[Any]:
    """Return each row's value of one meta field, None where it has none. A leading `meta.` is left away.

    Raises:
        ValueError: the table kept no meta, or no row has the field; the message lists the fields there are.
    """
    name = field.removeprefix("meta.")
    if table.meta is None:
        raise ValueError(f"meta.{name}: the table kept no meta; evaluate rows that have it, with inputs kept")
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    known: set[str] = set()
    values: list[Any] = []
    for text in table.meta:
        found = decode(text) if text else {}
        value = found.get(name)
        known |= found.keys()
        values.append(None if isinstance(value, float) and value != value else value)  # noqa: PLR0124  NaN
    if len(table) and name not in known:
        raise ValueError(f"no row has meta.{name}; fields there are: {', '.join(sorted(known)) or 'none'}")
    return values


def coded(values: Iterable[Any]) -> Ints:
    """Return a code per value that is equal where the values are equal; -1 for None."""
    place: dict[Any, int] = {}
    codes = [
        -1 if value is None else place.setdefault(value if isinstance(value, str | int) else _words(value), len(place))
        for value in values
    ]
    return np.array(codes, dtype=np.int32)


def by_meta(table: OutcomesTable, field: str) -> Segments:
    """Group the rows by a meta field: one group a value, or, for a number of many values, one a quarter of the rows.

    Raises:
        ValueError: as `meta_values`.
    """
    name = f"meta.{field.removeprefix('meta.')}"
    values = meta_values(table, field)
    given = [value for value in values if value is not None]
    numeric = bool(given) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in given)
    if numeric and len(set(given)) > MOST:
        return _quarters(name, values)
    shown = [NO_VALUE if value is None else _words(value) for value in values]
    counts = Counter(shown)
    largest = [word for word, _ in counts.most_common(MOST)]
    labels = sorted(largest, key=lambda word: (word == NO_VALUE, _place(word)))
    place = {word: index for index, word in enumerate(labels)}
    if len(counts) > MOST:
        labels.append(f"({len(counts) - MOST} smaller groups)")
    return Segments(name, tuple(labels), np.array([place.get(word, MOST) for word in shown], dtype=np.int32))


def by_confidence(table: OutcomesTable, model: str) -> Segments:
    """Group the rows by how sure one model was; the bands are those of the confidence-error table."""
    confidence = table.model(model).confidence
    cuts = np.array(CONFIDENCE_CUTS)
    labels = tuple(f"{low:g}-{high:g}" for low, high in pairwise([0.0, *CONFIDENCE_CUTS, 1.0]))
    code = np.searchsorted(cuts, confidence, side="right")
    if np.isnan(confidence).any():
        labels, code = (*labels, NO_VALUE), np.where(np.isnan(confidence), len(labels), code)
    return Segments(f"confidence of {model}", labels, code.astype(np.int32))


def _quarters(name: str, values: list[Any]) -> Segments:
    numbers = np.array([np.nan if value is None else float(value) for value in values])
    edges = np.unique(np.nanquantile(numbers, [0.0, 0.25, 0.5, 0.75, 1.0]))
    code = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(edges) - 2)
    labels = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(edges.tolist())]
    lacking = np.isnan(numbers)
    if lacking.any():
        labels.append(NO_VALUE)
    return Segments(name, tuple(labels), np.where(lacking, len(labels) - 1, code).astype(np.int32))


def _words(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def _place(word: str) -> tuple[int, float, str]:
    """Numbers in their own order, then words."""
    try:
        return (0, float(word), word)
    except ValueError:
        return (1, 0.0, word)
