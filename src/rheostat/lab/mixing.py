"""What a mix of models would have said, for many rows at once; the same rule as `rheostat.combine.combine`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from rheostat.lab.outcomes import Floats, Ints, ModelColumns

_CELLS: Final = 4_000_000  # score cells mixed at a time, to bound memory


def mixed_labels(parts: Sequence[ModelColumns], weights: Sequence[float | Floats], labels: int) -> Ints:
    """Return, per row, the label of the weighted mean of the models' score distributions.

    A model without a distribution on a row puts its confidence (1 when it has none) on its label. Equal means go to the
    label that is met first: in the order of the models, then of the labels.

    Args:
        parts: the models' columns, each with a prediction on every row.
        weights: one weight per model, for all rows or one per row; per row they sum to more than 0.
        labels: number of labels.
    """
    n = len(parts[0].label)
    table = [np.broadcast_to(np.asarray(weight, dtype=np.float64), (n,)) for weight in weights]
    total = np.sum(table, axis=0)
    found = np.empty(n, np.int32)
    step = max(1, _CELLS // max(labels, 1))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        shares = [weight[rows] / total[rows] for weight in table]
        found[rows] = _chunk([part.take(np.arange(n)[rows]) for part in parts], shares, labels)
    return found


def _chunk(parts: Sequence[ModelColumns], shares: Sequence[Floats], labels: int) -> Ints:
    n = len(parts[0].label)
    rows = np.arange(n)
    mix = np.zeros((n, labels))
    bare = [_without_scores(part) for part in parts]
    for part, share, lacking in zip(parts, shares, bare, strict=True):
        if part.scores is not None:
            mix += share[:, None] * np.where(lacking[:, None], 0.0, part.scores.astype(np.float64))
        if lacking.any():
            sure = np.where(np.isnan(part.confidence), 1.0, part.confidence)
            mix[rows[lacking], part.label[lacking]] += (share * sure)[lacking]
    first = mix.argmax(axis=1).astype(np.int32)
    top = mix[rows, first]
    found = first
    for part, lacking in zip(reversed(parts), reversed(bare), strict=True):
        own = np.where(mix[rows, part.label] == top, part.label, found)
        found = np.where(lacking, own, first)
    codes: Ints = found.astype(np.int32)
    return codes


def _without_scores(part: ModelColumns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if part.scores is None or not part.scores.shape[1]:
        return np.ones(len(part.label), dtype=bool)
    return np.isnan(part.scores[:, 0])
