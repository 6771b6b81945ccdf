"""Two cuts on the weight of the strong model: weak alone, both mixed, strong alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rheostat.lab.mixing import mixed_labels
from rheostat.lab.outcomes import Floats, OutcomesTable


@dataclass(frozen=True)
class TernaryGrid:
    """Quality, share and cost at every pair of cuts (`low[i]`, `high[j]`); NaN where low > high.

    The weight of the strong model is a given one, else 1 - confidence of the weak one (none usable: 1). Below `low` the weak
    model answers alone, above `high` the strong one, in between their mix by the weight. The weak model is counted as
    called always, as it is when its answer gives the weight.
    """

    weak: str
    strong: str
    rows: npt.NDArray[np.int64]
    left_out: Mapping[str, int]
    weight: Floats
    correct: Floats  # rows x (weak, mixed, strong)
    low: Floats
    high: Floats
    quality: Floats
    share: Floats
    cost: Floats
    latency_s: Floats

    def taken(self, low: float, high: float) -> Floats:
        """Return each row's quality at one pair of cuts."""
        side = np.where(self.weight > high, 2, 1)
        side[(self.weight < low) | (self.weight == 0.0)] = 0
        side[(self.weight == 1.0) & (self.weight >= low)] = 2
        return self.correct[np.arange(len(side)), side]


def ternary_grid(
    table: OutcomesTable, weak: str, strong: str, *, cuts: int = 100, weight: Floats | None = None
) -> TernaryGrid:
    """Work out the grid of two cuts from one sort and prefix sums.

    Args:
        cuts: at most this many candidates per cut, spread evenly over the rows; all are weights that occur in the data.
        weight: of the strong model, in [0, 1], one a row of the table; by default 1 - confidence of the weak one.

    Raises:
        ValueError: no row can be used, or a weight lies outside [0, 1].
    """
    names = (weak, strong)
    rows = np.flatnonzero(table.complete(names))
    if not len(rows):
        raise ValueError(f"no row can be used: {table.left_out(names) or 'the table is empty'}")
    part = table.subset(rows)
    columns = [part.model(name) for name in names]
    if weight is None:
        confidence = columns[0].confidence
        weight = np.where(np.isnan(confidence), 1.0, 1.0 - confidence)
    elif not ((weight >= 0.0) & (weight <= 1.0)).all():
        raise ValueError("a weight is NaN or outside [0, 1]")
    else:
        weight = weight[rows]
    mixed = mixed_labels(columns, (1.0 - weight, weight), len(table.labels)) == part.truth
    mixed = np.where(weight == 0.0, part.correct(weak), np.where(weight == 1.0, part.correct(strong), mixed))
    correct = np.stack([part.correct(weak), mixed, part.correct(strong)], axis=1).astype(np.float64)
    order = np.argsort(weight, kind="stable")
    distinct = np.unique(np.clip(weight, 0.0, 1.0))
    some = distinct[np.unique(np.linspace(0, len(distinct) - 1, min(cuts, len(distinct))).astype(int))]
    low, high = np.unique(np.append(some, 0.0)), np.unique(np.append(some, 1.0))
    n = len(rows)
    sums = np.concatenate([np.zeros((1, 3)), np.cumsum(correct[order], axis=0)])
    ordered = weight[order]
    below = np.searchsorted(ordered, low, side="left")  # rows with weight < low
    upto = np.searchsorted(ordered, high, side="right")  # rows with weight <= high
    quality = sums[below, 0][:, None] + sums[upto, 1][None] - sums[below, 1][:, None] + (sums[n, 2] - sums[upto, 2])[None]
    allowed = low[:, None] <= high[None]
    calls = 1.0 - np.maximum(below, np.count_nonzero(weight == 0.0)) / n
    extra = np.concatenate([[0.0], np.cumsum(columns[1].cost[order])])
    longer = np.concatenate([[0.0], np.cumsum(columns[1].latency_s[order])])
    from_row = np.maximum(below, np.count_nonzero(weight == 0.0))
    cost = (columns[0].cost.sum() + extra[n] - extra[from_row]) / n
    latency = (columns[0].latency_s.sum() + longer[n] - longer[from_row]) / n
    wide = np.ones_like(high)[None]
    return TernaryGrid(
        weak=weak,
        strong=strong,
        rows=rows,
        left_out=table.left_out(names),
        weight=weight,
        correct=correct,
        low=low,
        high=high,
        quality=np.where(allowed, quality / n, np.nan),
        share=np.where(allowed, calls[:, None] * wide, np.nan),
        cost=np.where(allowed, cost[:, None] * wide, np.nan),
        latency_s=np.where(allowed, latency[:, None] * wide, np.nan),
    )
