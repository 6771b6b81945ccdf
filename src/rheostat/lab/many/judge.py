"""How good a router over many models is on rows it has not seen, with intervals over prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from rheostat.lab.bootstrap import Difference, Interval
from rheostat.lab.clustered import Sample, joint_draws
from rheostat.lab.many.choose import Chosen, Goal, Picks, Sweep, choose, pick
from rheostat.lab.many.data import ManyData, must_choose
from rheostat.lab.many.methods import Method, fitted
from rheostat.lab.metrics import Floats, aiq, zero_router_aiq
from rheostat.lab.metrics_many import Models, mixed_cost_at_quality
from rheostat.lab.outcomes import Ints
from rheostat.lab.routers.data import folds

DRAWS: Final = 1_000
Tell = Callable[[str], None]


class Unseen(NamedTuple):
    """Predicted qualities (n, models) by predictors that saw neither the row nor its duplicates, and the folds."""

    predicted: Floats
    fold: Ints


class Judged(Struct, frozen=True, kw_only=True):
    """A router's figures on unseen rows; each interval is 95 %, over prompts.

    Args:
        aiq: average improvement in quality; `above` is it less the zero router's, paired.
        first: mean quality at trade 0, where cost does not count; `over` is it less the best single model's, paired.
        match: least cost, mixing two points, with the best single model's quality, relative to its cost; NaN if never.
    """

    aiq: Interval
    above: Difference
    first: Interval
    over: Difference
    match: float


def out_of_fold(
    data: ManyData, method: Method, *, count: int = 5, seed: int = 0, part: Ints | None = None, tell: Tell | None = None
) -> Unseen:
    """Predict every row by a predictor fitted on the other folds; settings are chosen inside each fold.

    Args:
        part: folds given instead of dealt, a code per row.

    Raises:
        ValueError: fewer than 30 rows, or fewer distinct prompts than folds.
    """
    must_choose(data)
    dealt = folds(data.same, count, seed) if part is None else part
    predicted = np.empty_like(data.quality)
    for fold in np.unique(dealt).tolist():
        here = dealt == fold
        predicted[here] = fitted(data.take(~here), method)[0].predict(data.x[here])
        if tell is not None:
            tell(f"{method.name}: fold {fold + 1}")
    return Unseen(predicted, dealt)


def guarded(
    data: ManyData, unseen: Unseen, goal: Goal = "quality", budget: float | None = None
) -> tuple[Picks, list[Chosen]]:
    """Return the picks of a policy that is chosen, guard included, on four folds and applied to the fifth, for each fold.

    What it is chosen on are those folds' own held-out predictions, so no row is both chosen on and reported on.
    """
    picks, chosen = np.zeros(len(data), dtype=np.int64), []
    for fold in np.unique(unseen.fold).tolist():
        here = unseen.fold == fold
        rest = data.take(~here)
        one = choose(rest, unseen.predicted[~here], goal, budget=budget)
        best = data.models.index(one.best)
        prices = rest.cost.mean(axis=0)
        picks[here] = pick(unseen.predicted[here], prices, one.trade, best, one.margin) if one.routes else best
        chosen.append(one)
    return picks, chosen


def judge(data: ManyData, routers: Mapping[str, Sweep], draws: int = DRAWS, seed: int = 0) -> dict[str, Judged]:
    """Return every router's figures; in a draw all routers and models get the same prompts."""
    singles, drawn = _single_draws(data, draws, seed)
    found = {}
    for name, one in routers.items():
        cost, quality = _draws(data, one.picks, draws, seed)
        values = _aiqs(cost, quality, *drawn)
        zero = _aiqs(*drawn, *drawn)
        point = aiq(one.cost, one.quality, singles)
        level = float(data.quality.mean(axis=0).max())
        base = zero_router_aiq(singles)
        first, best = quality[:, 0], drawn[1][:, data.best]
        match = mixed_cost_at_quality(one.cost, one.quality, level) / singles[data.best][0]
        found[name] = Judged(
            aiq=_interval(point, values, len(data)),
            above=_difference(point - base, values - zero, len(data)),
            first=_interval(float(one.quality[0]), first, len(data)),
            over=_difference(float(one.quality[0]) - level, first - best, len(data)),
            match=match,
        )
    return found


def aiq_gap(data: ManyData, ours: Sweep, theirs: Sweep, draws: int = DRAWS, seed: int = 0) -> Difference:
    """Return the paired difference of two routers' AIQ."""
    singles, drawn = _single_draws(data, draws, seed)
    each = [_aiqs(*_draws(data, one.picks, draws, seed), *drawn) for one in (ours, theirs)]
    gap = aiq(ours.cost, ours.quality, singles) - aiq(theirs.cost, theirs.quality, singles)
    return _difference(gap, each[0] - each[1], len(data))


def quality_gap(data: ManyData, picks: Picks, best: int | None = None, draws: int = DRAWS, seed: int = 0) -> Difference:
    """Return the mean quality of some picks less that of one model (default: the best), paired, over prompts."""
    gap = data.quality[np.arange(len(data)), picks] - data.quality[:, data.best if best is None else best]
    code, kinds = _prompts(data)
    found = joint_draws([Sample(gap, code)], kinds, draws, seed)[:, 0]
    return _difference(float(gap.mean()), found, len(data))


def _single_draws(data: ManyData, draws: int, seed: int) -> tuple[Models, tuple[Floats, Floats]]:
    each = np.broadcast_to(np.arange(len(data.models))[:, None], (len(data.models), len(data)))
    return data.singles, _draws(data, each.astype(np.int64), draws, seed)


def _draws(data: ManyData, picks: Picks, draws: int, seed: int) -> tuple[Floats, Floats]:
    """Draws x points, mean cost and mean quality; the same seed draws the same prompts."""
    code, kinds = _prompts(data)
    rows = np.arange(len(data))
    samples = [Sample(values[rows, each], code) for values in (data.cost, data.quality) for each in picks]
    found = joint_draws(samples, kinds, draws, seed)
    return found[:, : len(picks)], found[:, len(picks) :]


def _prompts(data: ManyData) -> tuple[Ints, int]:
    kinds, code = np.unique(data.same, return_inverse=True)
    return code.astype(np.int32), len(kinds)


def _aiqs(cost: Floats, quality: Floats, single_cost: Floats, single_quality: Floats) -> Floats:
    return np.array(
        [
            aiq(c, q, list(zip(sc.tolist(), sq.tolist(), strict=True)))
            for c, q, sc, sq in zip(cost, quality, single_cost, single_quality, strict=True)
        ]
    )


def _interval(point: float, drawn: Floats, rows: int) -> Interval:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(point, float(low), float(high), rows)


def _difference(point: float, drawn: Floats, rows: int) -> Difference:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Difference(point, float(low), float(high), float((drawn <= 0.0).mean()), rows)
