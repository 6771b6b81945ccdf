"""Quality, share of large calls, cost and latency at every threshold that makes a difference on the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rheostat.lab.mixing import mixed_labels
from rheostat.lab.outcomes import Bools, Floats, OutcomesTable

ESCALATE_ALL: Final = float("inf")
"""The threshold that no confidence reaches: every request goes to the last stage."""


class Point(NamedTuple):
    """One setting of a policy on one set of rows. `share` is the share of requests that called the last model.

    `coverage` is the share answered by the first model alone, `precision` its accuracy on those (NaN when there are none).
    Cost per request in the pool's unit, latency in seconds.
    """

    threshold: float
    quality: float
    share: float
    cost: float
    latency_s: float
    coverage: float
    precision: float


@dataclass(frozen=True)
class ThresholdCurve:
    """A cascade with one threshold for all its stages, at every distinct threshold, from `ESCALATE_ALL` downwards.

    `confidence >= threshold` accepts, as in the policy; a missing confidence never does. All rows of equal confidence
    change sides together, and only values that occur in the data are candidates. The last candidate accepts every row
    that has a confidence.
    """

    stages: tuple[str, ...]
    blend: float
    rows: npt.NDArray[np.int64]
    left_out: Mapping[str, int]
    reach: Floats  # rows x (stages - 1): the highest confidence up to each stage, -inf where none is usable
    correct: Floats  # rows x stages: quality when the row stops there
    alone: Floats  # rows: the last stage's own quality, without what the blend adds
    spent: Floats  # rows x stages: cost so far
    waited: Floats  # rows x stages: seconds so far
    threshold: Floats
    _order: npt.NDArray[np.int64]
    _ends: npt.NDArray[np.int64]
    quality: Floats
    share: Floats
    cost: Floats
    latency_s: Floats
    coverage: Floats
    precision: Floats

    def __len__(self) -> int:
        return len(self.threshold)

    @property
    def n(self) -> int:
        """The number of rows behind every point."""
        return len(self.rows)

    def sweep(self, values: Floats) -> Floats:
        """Return, for every threshold, the mean over rows of `values[row, stage the row stops at]`.

        Args:
            values: rows x stages.
        """
        return _sweep(values, self._order, self._ends)

    def index(self, threshold: float) -> int:
        """Return the candidate that decides every row as `threshold` does: the lowest one at or above it."""
        return int(np.searchsorted(-self.threshold, -threshold, side="right")) - 1

    def point(self, index: int) -> Point:
        """Return one candidate with its figures."""
        columns = (self.threshold, self.quality, self.share, self.cost, self.latency_s, self.coverage, self.precision)
        return Point(*(float(column[index]) for column in columns))

    def stops(self, index: int) -> npt.NDArray[np.int64]:
        """Return the stage at which each row stops, at one candidate."""
        passed: npt.NDArray[np.int64] = (self.reach < self.threshold[index]).sum(axis=1)
        return passed

    def taken(self, index: int, values: Floats) -> Floats:
        """Return `values[row, stage the row stops at]` at one candidate."""
        return values[np.arange(self.n), self.stops(index)]

    def latency_quantiles(self, index: int, quantiles: Sequence[float] = (0.5, 0.95, 0.99)) -> tuple[float, ...]:
        """Return exact latency quantiles, in seconds, at one candidate; they never fall as the threshold rises."""
        return tuple(np.quantile(self.taken(index, self.waited), quantiles, method="higher").tolist())


def cascade_curve(table: OutcomesTable, stages: Sequence[str], *, blend: float = 0.0) -> ThresholdCurve:
    """Work out every point of a cascade over `stages` with one shared threshold, by one sort and cumulative sums.

    Rows without a right label, or on which a stage has no prediction, are left out and counted.

    Args:
        stages: model names, cheapest first; each answers or passes on, the last always answers.
        blend: the weight, in [0, 1), that the answer passed over last keeps beside the last stage's.

    Raises:
        ValueError: fewer than two stages, or no row is left.
        KeyError: the table has no such model.
    """
    names = tuple(stages)
    if len(names) < 2:
        raise ValueError(f"a cascade needs at least two models, got {', '.join(names) or 'none'}")
    rows = np.flatnonzero(table.complete(names))
    left_out = table.left_out(names)
    if not len(rows):
        raise ValueError(f"no row can be used: {left_out or 'the table is empty'}")
    part = table if len(rows) == len(table) else table.subset(rows)
    columns = [part.model(name) for name in names]
    confidence = np.stack([np.where(np.isnan(c.confidence), -np.inf, c.confidence) for c in columns[:-1]], axis=1)
    correct = np.stack([part.correct(name) for name in names], axis=1).astype(np.float64)
    alone = correct[:, -1].copy()
    if blend > 0.0:
        mixed = mixed_labels(columns[-2:], (blend, 1.0 - blend), len(table.labels))
        correct[:, -1] = mixed == part.truth
    reach = np.maximum.accumulate(confidence, axis=1)
    spent = np.cumsum(np.stack([c.cost for c in columns], axis=1), axis=1)
    waited = np.cumsum(np.stack([c.latency_s for c in columns], axis=1), axis=1)
    keys = reach.T.reshape(-1)  # stage by stage, as `_sweep` expects
    order = np.argsort(-keys, kind="stable")
    order = order[: int(np.count_nonzero(keys > -np.inf))]
    ordered = keys[order]
    steps = np.flatnonzero(np.diff(ordered)) + 1
    ends = np.concatenate([[0], steps, [len(order)]]) if len(order) else np.array([0])
    threshold = np.concatenate([[ESCALATE_ALL], ordered[ends[1:] - 1]])
    first, last = np.zeros_like(correct), np.zeros_like(correct)
    first[:, 0] = 1.0
    last[:, -1] = 1.0
    coverage = _sweep(first, order, ends)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = _sweep(first * correct, order, ends) / coverage
    return ThresholdCurve(
        stages=names,
        blend=blend,
        rows=rows,
        left_out=left_out,
        reach=reach,
        correct=correct,
        alone=alone,
        spent=spent,
        waited=waited,
        threshold=threshold,
        _order=order,
        _ends=ends,
        quality=_sweep(correct, order, ends),
        share=_sweep(last, order, ends),
        cost=_sweep(spent, order, ends),
        latency_s=_sweep(waited, order, ends),
        coverage=coverage,
        precision=precision,
    )


def _sweep(values: Floats, order: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Floats:
    """Means at every threshold: start with all rows at the last stage, then move rows back as the threshold falls.

    A row moves from stage j + 1 to j when the threshold reaches its highest confidence up to j; moves at one threshold
    add up, so a stage that is skipped cancels out.
    """
    moves = (values[:, :-1] - values[:, 1:]).T.reshape(-1)[order]
    moved = np.concatenate([[0.0], np.cumsum(moves)])[ends]
    means: Floats = (values[:, -1].sum() + moved) / len(values)
    return means


@dataclass(frozen=True)
class WeightCurve:
    """Fixed blends of the same models, one point per set of weights; a model of weight 0 is not called."""

    models: tuple[str, ...]
    weights: Floats  # points x models
    rows: npt.NDArray[np.int64]
    left_out: Mapping[str, int]
    correct: Bools  # points x rows
    quality: Floats
    cost: Floats
    latency_s: Floats


def blend_curve(table: OutcomesTable, models: Sequence[str], weights: npt.ArrayLike | None = None) -> WeightCurve:
    """Work out fixed blends: the weighted mean of the score distributions, at every set of weights.

    Args:
        models: two or more.
        weights: points x models, non-negative; by default an even grid on the simplex (21 points for two models).

    Raises:
        ValueError: no row can be used, or the weights do not fit the models.
    """
    names = tuple(models)
    grid = simplex(len(names)) if weights is None else np.asarray(weights, dtype=np.float64)
    if grid.ndim != 2 or grid.shape[1] != len(names) or (grid < 0).any() or not (grid.sum(axis=1) > 0).all():
        raise ValueError(f"weights: expected rows of {len(names)} non-negative numbers, not all 0")
    rows = np.flatnonzero(table.complete(names))
    if not len(rows):
        raise ValueError(f"no row can be used: {table.left_out(names) or 'the table is empty'}")
    part = table.subset(rows)
    columns = [part.model(name) for name in names]
    correct = np.empty((len(grid), len(rows)), dtype=bool)
    cost, latency = np.zeros(len(grid)), np.zeros(len(grid))
    for at, point in enumerate(grid):
        used = [index for index, weight in enumerate(point) if weight > 0.0]
        label = mixed_labels([columns[i] for i in used], [float(point[i]) for i in used], len(table.labels))
        if len(used) == 1:
            label = columns[used[0]].label
        correct[at] = label == part.truth
        cost[at] = np.sum([columns[i].cost for i in used], axis=0).mean()
        latency[at] = np.max([columns[i].latency_s for i in used], axis=0).mean()
    return WeightCurve(names, grid, rows, table.left_out(names), correct, correct.mean(axis=1), cost, latency)


def simplex(models: int) -> Floats:
    """Return an even grid of weights that sum to 1: steps of 1/20 for two models, 1/10 for three, 1/5 beyond."""
    steps = {1: 1, 2: 20, 3: 10}.get(models, 5)

    def parts(count: int, rest: int) -> list[list[int]]:
        if count == 1:
            return [[rest]]
        return [[head, *tail] for head in range(rest, -1, -1) for tail in parts(count - 1, rest - head)]

    return np.array(parts(models, steps), dtype=np.float64) / steps
