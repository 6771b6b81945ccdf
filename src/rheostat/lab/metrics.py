"""Routing quality, exactly: how much of the strong model's gain a router keeps, and at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Values = npt.ArrayLike


class Curve(NamedTuple):
    """Points (share of strong calls, mean quality), shares ascending from 0 to 1."""

    share: Floats
    quality: Floats


def floats(values: Values, name: str) -> Floats:
    """Return `values` as one row of finite numbers.

    Raises:
        ValueError: it is empty, not one-dimensional, or holds NaN or infinity; the message names it.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{name}: expected one non-empty row of numbers, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: {int((~np.isfinite(array)).sum())} values are NaN or infinite; leave those rows out")
    return array


def accuracy(correct: Values) -> float:
    """Return the mean of `correct` (0 or 1, or any quality in [0, 1]) over the rows."""
    return float(floats(correct, "correct").mean())


def call_performance_curve(weak: Values, strong: Values, score: Values) -> Curve:
    """Return mean quality against the share of calls sent to the strong model, highest score first.

    q(k/n) = mean(weak) + (1/n) * sum over the top k of (strong - weak). Equal scores enter as one block, and the curve is
    a straight line inside it, so that a constant score is exactly random. Source: RouteLLM (arXiv 2406.18665), section 3.

    Args:
        weak, strong: each row's quality with either model.
        score: each row's router score; the higher, the sooner it is sent to the strong model.
    """
    w, s, r = floats(weak, "weak"), floats(strong, "strong"), floats(score, "score")
    order = np.argsort(-r, kind="stable")
    gain = np.concatenate([[0.0], np.cumsum((s - w)[order])])
    ends = np.flatnonzero(np.diff(r[order])) + 1  # where a block of equal scores ends
    points = np.concatenate([[0], ends, [len(r)]])
    return Curve(points / len(r), w.mean() + gain[points] / len(r))


def pgr(quality: float, weak: float, strong: float) -> float:
    """Return the performance gap recovered, (quality - weak) / (strong - weak); above 1 when routing beats the strong.

    Source: RouteLLM (arXiv 2406.18665), equation 3.

    Raises:
        ValueError: the strong model is not better than the weak one, so that there is no gap.
    """
    if strong <= weak:
        raise ValueError(f"no gap to recover: the strong model ({strong:.4f}) does not beat the weak one ({weak:.4f})")
    return (quality - weak) / (strong - weak)


def apgr(curve: Curve, *, deciles: bool = False) -> float:
    """Return the average performance gap recovered: the integral of PGR over the share of strong calls, 0.5 for random.

    Exact: trapezoid over every point of the curve. With `deciles`, trapezoid over the shares 0, 0.1, ... 1 only, as
    RouteLLM's published code does; the two differ by up to 0.02. Source: RouteLLM (arXiv 2406.18665), equation 4.

    Raises:
        ValueError: the strong model is not better than the weak one.
    """
    share, quality = curve
    pgr(float(quality[-1]), float(quality[0]), float(quality[-1]))
    recovered = (quality - quality[0]) / (quality[-1] - quality[0])
    if deciles:
        grid = np.linspace(0.0, 1.0, 11)
        share, recovered = grid, np.interp(grid, share, recovered)
    return float(np.trapezoid(recovered, share))


def cpt(curve: Curve, target: float) -> float:
    """Return the call-performance threshold: the least share of strong calls whose PGR reaches `target` (such as 0.5).

    Linear between points, first crossing (the curve need not rise everywhere); NaN when it is never reached.
    Source: RouteLLM (arXiv 2406.18665), section 3.

    Raises:
        ValueError: the strong model is not better than the weak one.
    """
    share, quality = curve
    pgr(float(quality[-1]), float(quality[0]), float(quality[-1]))
    recovered = (quality - quality[0]) / (quality[-1] - quality[0])
    reached = np.flatnonzero(recovered >= target)
    if not len(reached):
        return float("nan")
    at = int(reached[0])
    if at == 0:
        return float(share[0])
    low, high = recovered[at - 1], recovered[at]
    return float(share[at - 1] + (target - low) / (high - low) * (share[at] - share[at - 1]))


def cost_at_quality(cost: Values, quality: Values, target: float) -> float:
    """Return the least cost among the points whose quality is at least `target`; NaN when none is."""
    costs, good = floats(cost, "cost"), floats(quality, "quality") >= target
    return float(costs[good].min()) if good.any() else float("nan")


def quality_at_cost(cost: Values, quality: Values, budget: float) -> float:
    """Return the best quality among the points whose cost is at most `budget`; NaN when none is."""
    values, cheap = floats(quality, "quality"), floats(cost, "cost") <= budget
    return float(values[cheap].max()) if cheap.any() else float("nan")


def oracle(quality: Sequence[Values], cost: Sequence[Values]) -> npt.NDArray[np.int64]:
    """Return, per row, the index of the model a clairvoyant would take: best quality, ties to the cheapest, then first.

    It profits from lucky guesses, so what it reaches is an upper bound including chance.

    Args:
        quality, cost: one row of values per model, same lengths.
    """
    q, c = np.vstack([floats(v, "quality") for v in quality]), np.vstack([floats(v, "cost") for v in cost])
    best = q == q.max(axis=0)
    chosen: npt.NDArray[np.int64] = np.where(best, c, np.inf).argmin(axis=0)
    return chosen


def hull(cost: Values, quality: Values) -> npt.NDArray[np.int64]:
    """Return the indices of the non-decreasing upper convex hull of points (cost, quality), by cost.

    Upper hull (Andrew's monotone chain), then points that do not raise the quality are dropped. Every point on it can be
    reached by mixing two policies by chance. Source: RouterBench (arXiv 2403.12031), section 3.
    """
    c, q = floats(cost, "cost"), floats(quality, "quality")
    order = np.lexsort((-q, c))
    rising = order[np.concatenate([[True], q[order][1:] > np.maximum.accumulate(q[order])[:-1]])]
    kept: list[int] = []
    for point in rising.tolist():
        while len(kept) >= 2 and _under(c, q, kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    return np.array(kept, dtype=np.int64)


def _under(c: Floats, q: Floats, a: int, b: int, p: int) -> bool:
    """True when b lies on or under the line from a to p."""
    return bool((q[b] - q[a]) * (c[p] - c[a]) <= (q[p] - q[a]) * (c[b] - c[a]))


def aiq(cost: Values, quality: Values, models: Sequence[tuple[float, float]]) -> float:
    """Return the average improvement in quality: the mean height of the hull between the cheapest and dearest model.

    AIQ = 1 / (c_max - c_min) * integral of the hull from c_min to c_max, where the hull holds the router's points and
    starts at the cheapest model. Compare with `aiq` of the models alone (the zero router).
    Source: RouterBench (arXiv 2403.12031), equation 3 (the paper's form, not its code's).

    Args:
        cost, quality: the router's points.
        models: (mean cost, mean quality) of every single model.

    Raises:
        ValueError: all models cost the same.
    """
    low, high = min(models, key=lambda m: (m[0], -m[1])), max(models)
    if high[0] <= low[0]:
        raise ValueError("aiq: all models cost the same; there is no range of cost to average over")
    c = np.concatenate([floats(cost, "cost"), [low[0]]])
    q = np.concatenate([floats(quality, "quality"), [low[1]]])
    points = hull(c, q)
    inside = c[points][(c[points] > low[0]) & (c[points] < high[0])]
    grid = np.concatenate([[low[0]], inside, [high[0]]])
    return float(np.trapezoid(np.interp(grid, c[points], q[points]), grid) / (high[0] - low[0]))


def zero_router_aiq(models: Sequence[tuple[float, float]]) -> float:
    """Return the AIQ of mixing the single models by chance, with no look at the request: what a router must beat."""
    return aiq([cost for cost, _ in models], [quality for _, quality in models], models)
