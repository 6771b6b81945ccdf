"""Every setting of a kind of policy with its figures on the rows it may be chosen on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from rheostat.lab.curve import ESCALATE_ALL, ThresholdCurve, blend_curve, cascade_curve
from rheostat.lab.outcomes import Bools, Floats, OutcomesTable
from rheostat.lab.ternary import ternary_grid
from rheostat.policies import Blend, Cascade, Delegate, Policy, Use

KINDS: Final = ("cascade", "cascade+blend", "blend", "delegate")
BLENDS: Final = tuple(step / 20 for step in range(20))
"""Weights that a passed-over answer may keep; the grid of `cascade+blend`."""


@dataclass(frozen=True)
class Options:
    """Settings as columns, one value per setting.

    `gap` is quality minus `relative` times the last model's, per setting; variances are over rows. `slow(indices)` gives
    the P95 latency in seconds, at the plain or the upper quantile. `build(index)` makes the policy.
    """

    kind: str
    n: int
    quality: Floats
    share: Floats
    cost: Floats
    cost_variance: Floats
    gap: Floats
    gap_variance: Floats
    threshold: Floats
    slow: Callable[[int, float], float]
    build: Callable[[int], Policy]
    monotone: bool  # P95 never rises along the settings, so that the limit can be found by bisection

    def within_latency(self, limit: float, quantile: float) -> Bools:
        """Return which settings keep the given latency quantile at or below `limit` seconds."""
        count = len(self.quality)
        if not self.monotone:
            return np.array([self.slow(index, quantile) <= limit for index in range(count)])
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if self.slow(middle, quantile) <= limit:
                high = middle
            else:
                low = middle + 1
        kept: Bools = np.arange(count) >= low
        return kept


def options(table: OutcomesTable, stages: Sequence[str], kind: str, relative: float = 1.0) -> list[Options]:
    """Return every setting of one kind of policy over `stages`, in one or more batches.

    Args:
        kind: cascade (one threshold), cascade+blend (and the weight a passed-over answer keeps), blend (fixed weights),
            delegate (two cuts on 1 - confidence of the first model; two stages only).
        relative: the share of the last model's quality that `gap` is measured against.

    Raises:
        ValueError: unknown kind, too few or too many stages, or no usable row.
    """
    if kind == "cascade":
        return [_cascade(cascade_curve(table, stages), relative)]
    if kind == "cascade+blend":
        return [_cascade(cascade_curve(table, stages, blend=blend), relative) for blend in BLENDS]
    if kind == "blend":
        return [_blend(table, stages, relative)]
    if kind == "delegate":
        if len(stages) != 2:
            raise ValueError(f"delegate works between two models, got {len(stages)}: {', '.join(stages)}")
        return [delegate_options(table, stages[0], stages[1], relative)]
    raise ValueError(f"unknown kind {kind!r}; known: {', '.join(KINDS)}")


def _cascade(curve: ThresholdCurve, relative: float) -> Options:
    part = curve.correct - relative * curve.alone[:, None]
    gap = curve.sweep(part)

    def build(index: int) -> Policy:
        threshold = float(curve.threshold[index])
        if threshold == ESCALATE_ALL and not curve.blend:
            return Use(curve.stages[-1])
        return Cascade(
            stages=curve.stages,
            threshold=min(threshold, 1.0),
            blend=curve.blend,
            max_escalations=len(curve.stages) - 1,
        )

    keep = slice(None) if not curve.blend or curve.threshold[1:2].max(initial=0.0) < 1.0 else slice(1, None)
    at = np.arange(len(curve))[keep]
    return Options(
        kind="cascade+blend" if curve.blend else "cascade",
        n=curve.n,
        quality=curve.quality[keep],
        share=curve.share[keep],
        cost=curve.cost[keep],
        cost_variance=(curve.sweep(curve.spent**2) - curve.cost**2)[keep],
        gap=gap[keep],
        gap_variance=(curve.sweep(part**2) - gap**2)[keep],
        threshold=curve.threshold[keep],
        slow=lambda index, quantile: curve.latency_quantiles(int(at[index]), (quantile,))[0],
        build=lambda index: build(int(at[index])),
        monotone=True,
    )


def _blend(table: OutcomesTable, models: Sequence[str], relative: float) -> Options:
    curve = blend_curve(table, models)
    part = table.subset(curve.rows)
    last = part.correct(models[-1]).astype(np.float64)
    gap = curve.correct - relative * last
    latency = np.stack([part.model(name).latency_s for name in curve.models])
    cost = np.stack([part.model(name).cost for name in curve.models])
    used = curve.weights > 0.0

    def slow(index: int, quantile: float) -> float:
        return float(np.quantile(latency[used[index]].max(axis=0), quantile, method="higher"))

    def build(index: int) -> Policy:
        weights = {name: float(w) for name, w in zip(curve.models, curve.weights[index], strict=True) if w > 0.0}
        return Use(next(iter(weights))) if len(weights) == 1 else Blend(weights=weights)

    return Options(
        kind="blend",
        n=len(curve.rows),
        quality=curve.quality,
        share=used[:, -1].astype(np.float64),
        cost=curve.cost,
        cost_variance=np.array([cost[row].sum(axis=0).var() for row in used]),
        gap=gap.mean(axis=1),
        gap_variance=gap.var(axis=1),
        threshold=np.zeros(len(curve.quality)),
        slow=slow,
        build=build,
        monotone=False,
    )


def delegate_options(
    table: OutcomesTable,
    weak: str,
    strong: str,
    relative: float = 1.0,
    weight: Floats | None = None,
    signal: str | None = None,
) -> Options:
    """Return every pair of cuts on a weight of the strong model.

    Args:
        weight: one a row; by default 1 - confidence of the weak model.
        signal: the signal that gives this weight when served.

    Raises:
        ValueError: no row can be used, or a weight lies outside [0, 1].
    """
    grid = ternary_grid(table, weak, strong, weight=weight)
    part = table.subset(grid.rows)
    low, high = np.nonzero(~np.isnan(grid.quality))
    quality, share = grid.quality[low, high], grid.share[low, high]
    price = float(part.model(strong).cost.mean())
    base = relative * float(part.correct(strong).mean())
    first, second = part.model(weak).latency_s, part.model(strong).latency_s

    @cache
    def slow_from(cut: int, quantile: float) -> float:
        alone = (grid.weight < grid.low[cut]) | (grid.weight == 0.0)
        return float(np.quantile(np.where(alone, first, first + second), quantile, method="higher"))

    def build(index: int) -> Policy:
        cuts = (float(grid.low[low[index]]), float(grid.high[high[index]]))
        return Delegate(weak=weak, strong=strong, weight=signal, low=cuts[0], high=cuts[1])

    return Options(
        kind="delegate",
        n=len(grid.rows),
        quality=quality,
        share=share,
        cost=grid.cost[low, high],
        cost_variance=price**2 * share * (1.0 - share),
        gap=quality - base,
        gap_variance=quality * (1.0 - quality),
        threshold=1.0 - grid.low[low],
        slow=lambda index, quantile: slow_from(int(low[index]), quantile),
        build=build,
        monotone=False,
    )
