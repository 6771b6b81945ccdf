"""Routing quality with any number of models: areas, cost at a quality, and the scores that benchmarks publish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rheostat.lab.metrics import Floats, Values, floats, hull, oracle

Models = Sequence[tuple[float, float]]
"""(mean cost, mean quality) of every single model."""
ARENA_CHEAPEST: Final = 0.0044
"""RouterArena's least cost, US dollars per 1,000 queries."""
ARENA_DEAREST: Final = 200.0
"""RouterArena's greatest cost, US dollars per 1,000 queries."""


def best_single(models: Models) -> int:
    """Return the index of the best single model: highest mean quality, ties to the cheapest, then the first.

    Raises:
        ValueError: there is none, or a number is NaN or infinite.
    """
    cost, quality = _split(models)
    return int(np.lexsort((np.arange(len(cost)), cost, -quality))[0])


def mixed_quality_at_cost(cost: Values, quality: Values, budget: float) -> float:
    """Return the best mean quality at a mean cost of at most `budget`, mixing two points by chance where that helps.

    The height of the non-decreasing hull at `budget`; NaN below its cheapest point. Source: RouterBench (arXiv 2403.12031).
    """
    c, q = _hull(cost, quality)
    return float("nan") if budget < c[0] else float(np.interp(budget, c, q))


def mixed_cost_at_quality(cost: Values, quality: Values, target: float) -> float:
    """Return the least mean cost with a mean quality of at least `target`, mixing two points by chance where that helps.

    Where the non-decreasing hull crosses `target`, linear between its points; NaN when it never does. The inverse of
    `mixed_quality_at_cost`.
    """
    c, q = _hull(cost, quality)
    if target > q[-1] + 1e-12:
        return float("nan")
    return float(np.interp(min(target, q[-1]), q, c))


def deferral_area(cost: Values, quality: Values, models: Models, *, limit: float = 1.0) -> float:
    """Return the area under the deferral curve: mean height of the hull over cost / dearest model's cost in [0, limit].

    The hull holds the router's points and the cheapest single model, whose quality also counts to its left, where no
    model can be paid. Compare with the area of the single models alone. Source: UniRoute (arXiv 2502.08773), section 6.

    Args:
        cost, quality: the router's points.
        models: (mean cost, mean quality) of every single model.
        limit: where the relative cost ends, in (0, 1].

    Raises:
        ValueError: `limit` is outside (0, 1], a cost is negative, or every model is free.
    """
    costs, qualities = _split(models)
    if not 0.0 < limit <= 1.0:
        raise ValueError(f"deferral_area: `limit` must lie in (0, 1], got {limit}")
    if costs.max() <= 0.0 or costs.min() < 0.0:
        raise ValueError("deferral_area: relative cost needs models that cost 0 or more, and one that costs more than 0")
    cheapest = int(np.lexsort((-qualities, costs))[0])
    c, q = _hull(
        np.append(floats(cost, "cost"), costs[cheapest]), np.append(floats(quality, "quality"), qualities[cheapest])
    )
    end = limit * float(costs.max())
    grid = np.concatenate([[0.0], c[(c > 0.0) & (c < end)], [end]])
    return float(np.trapezoid(np.interp(grid, c, q), grid) / end)


def qnc(cost: Values, quality: Values, models: Models, *, to_best: bool = False) -> float:
    """Return the quality-neutral cost: the least relative cost that reaches the best single model's quality.

    NaN when it is never reached. Source: UniRoute (arXiv 2502.08773), section 6.

    Args:
        cost, quality: the router's points; two of them may be mixed by chance.
        to_best: relative to the cost of the best single model, not of the dearest.

    Raises:
        ValueError: the model that costs are relative to is free.
    """
    costs, qualities = _split(models)
    best = best_single(models)
    base = float(costs[best] if to_best else costs.max())
    if base <= 0.0:
        raise ValueError("qnc: the model that costs are relative to costs nothing")
    return mixed_cost_at_quality(cost, quality, float(qualities[best])) / base


def peak(quality: Values) -> float:
    """Return the peak quality: the best mean quality among the points, at whatever cost."""
    return float(floats(quality, "quality").max())


def delta_ibc(point: tuple[float, float], weak: tuple[float, float], strong: tuple[float, float]) -> float:
    """Return how much steeper quality rises with cost than between weak and strong, in percent; 0 is mixing by chance.

    100 * [(P - P_weak) / (C - C_weak) / ((P_strong - P_weak) / (C_strong - C_weak)) - 1], each argument a pair
    (cost C, quality P). Source: AutoMix (arXiv 2310.12963), incremental benefit per cost.

    Raises:
        ValueError: strong is not better and dearer than weak, or the point costs no more than weak.
    """
    (c, p), (cw, pw), (cs, ps) = point, weak, strong
    floats([c, p, cw, pw, cs, ps], "delta_ibc")
    if ps <= pw or cs <= cw:
        raise ValueError("delta_ibc: the strong model must be better and dearer than the weak one")
    if c <= cw:
        raise ValueError(f"delta_ibc: the point costs {c:g}, no more than the weak model ({cw:g}): no benefit per cost")
    return 100.0 * ((p - pw) / (c - cw) / ((ps - pw) / (cs - cw)) - 1.0)


def arena_score(quality: float, cost_per_1k: float, *, beta: float = 0.1) -> float:
    """Return RouterArena's score in [0, 1]: S = (1 + beta) A K / (beta A + K), A the mean quality, K the cheapness.

    K = (log2 200 - log2 cost) / (log2 200 - log2 0.0044), the cost in US dollars per 1,000 queries. A cost outside
    [0.0044, 200], 0 included, counts as the nearer end; a mean quality below 0 counts as 0. Source: RouterArena (ICLR 2026).

    Raises:
        ValueError: the cost is negative, the quality above 1, or either is NaN.
    """
    a, cost = floats([quality, cost_per_1k], "quality, cost_per_1k")
    if cost < 0.0 or a > 1.0:
        raise ValueError(f"arena_score: quality is at most 1 and cost 0 or more, got {quality:g} and {cost_per_1k:g}")
    top, a = np.log2(ARENA_DEAREST), max(0.0, float(a))
    paid = np.log2(min(max(cost, ARENA_CHEAPEST), ARENA_DEAREST))
    k = float((top - paid) / (top - np.log2(ARENA_CHEAPEST)))
    return (1.0 + beta) * a * k / (beta * a + k) if a * k > 0.0 else 0.0


class Optimality(NamedTuple):
    """RouterArena's rates, in [0, 1] or NaN where there is nothing to compare with (cost may exceed 1 for cheap picks)."""

    selection: float
    cost: float
    quality: float


def optimality(chosen: npt.ArrayLike, quality: Sequence[Values], cost: Sequence[Values]) -> Optimality:
    """Return how near the picks come to those of a clairvoyant, who takes the cheapest of the best models of each query.

    `selection`: share of the queries that some model gets fully right (quality 1 or more) on which the pick is the cheapest
    such model; `cost`: sum of the clairvoyant's cost / sum of the picks'; `quality`: sum of the picks' quality / sum of
    the clairvoyant's. Source: RouterArena (ICLR 2026), Opt.Sel, Opt.Cost and Opt.Acc.

    Args:
        chosen: index of the model picked, per query.
        quality, cost: one row of values per model.

    Raises:
        ValueError: an index names no model, or lengths differ.
    """
    q, c = np.vstack([floats(v, "quality") for v in quality]), np.vstack([floats(v, "cost") for v in cost])
    picks = np.asarray(chosen, dtype=np.int64)
    if picks.shape != (q.shape[1],) or q.shape != c.shape:
        raise ValueError(f"chosen has shape {picks.shape}, quality {q.shape}, cost {c.shape}: expected one pick a query")
    if picks.min() < 0 or picks.max() >= len(q):
        raise ValueError(f"chosen names model {int(picks.max())}, there are {len(q)}")
    at, best = np.arange(q.shape[1]), oracle(list(q), list(c))
    right = q.max(axis=0) >= 1.0
    paid, reachable = c[picks, at].sum(), q[best, at].sum()
    return Optimality(
        float((picks == best)[right].mean()) if right.any() else float("nan"),
        float(c[best, at].sum() / paid) if paid > 0.0 else float("nan"),
        float(q[picks, at].sum() / reachable) if reachable > 0.0 else float("nan"),
    )


def robustness(before: npt.ArrayLike, after: npt.ArrayLike) -> float:
    """Return 1 - the share of decisions that flip when the query is paraphrased. Source: RouterArena (ICLR 2026).

    Raises:
        ValueError: the two differ in length or are empty.
    """
    one, two = np.asarray(before), np.asarray(after)
    if one.shape != two.shape or one.ndim != 1 or not len(one):
        raise ValueError(f"robustness: one decision a query is needed twice, got shapes {one.shape} and {two.shape}")
    return float((one == two).mean())


class Gains(NamedTuple):
    """LLMRouterBench's two figures, as shares: more quality than the best single model, and less cost at its quality."""

    quality: float
    saved: float


def gains(cost: Values, quality: Values, models: Models) -> Gains:
    """Return PerfGain = (best point - best model) / best model and CostSave = 1 - cost at its quality / its cost.

    The cost is that of the cheapest point, unmixed, which is at least as good as the best single model; CostSave is NaN when
    there is none. Source: LLMRouterBench (arXiv 2601.07206).

    Raises:
        ValueError: the best single model has no positive quality or is free.
    """
    costs, qualities = _split(models)
    best = best_single(models)
    if qualities[best] <= 0.0 or costs[best] <= 0.0:
        raise ValueError(
            f"gains: the best single model has quality {qualities[best]:g} and cost {costs[best]:g}; both must be above 0"
        )
    c, q = floats(cost, "cost"), floats(quality, "quality")
    enough = q >= qualities[best] - 1e-12
    saved = 1.0 - float(c[enough].min() / costs[best]) if enough.any() else float("nan")
    return Gains(float(q.max() / qualities[best] - 1.0), saved)


def _hull(cost: Values, quality: Values) -> tuple[Floats, Floats]:
    c, q = floats(cost, "cost"), floats(quality, "quality")
    if len(c) != len(q):
        raise ValueError(f"cost has {len(c)} points, quality {len(q)}")
    at = hull(c, q)
    return c[at], q[at]


def _split(models: Models) -> tuple[Floats, Floats]:
    if not len(models):
        raise ValueError("models: expected (mean cost, mean quality) of at least one model")
    return floats([cost for cost, _ in models], "cost of the models"), floats(
        [q for _, q in models], "quality of the models"
    )
