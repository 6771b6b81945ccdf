"""From predicted qualities to a policy: how much a unit of cost has to bring, and when to stay with one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rheostat.lab.bootstrap import Z95_ONE_SIDED
from rheostat.lab.many.data import ManyData
from rheostat.lab.metrics import Floats

Picks = npt.NDArray[np.int64]
Goal = Literal["quality", "match", "budget"]
MARGINS: Final = (0.0, 0.01, 0.02, 0.05, 0.1)
"""How much better than the best single model another must look, tried when quality is the goal."""
SLACK: Final = 0.002
"""How far under the best single model the guard lets a policy's quality fall, in quality (.2 points)."""
WORTH: Final = 0.05
"""What routing must save of the best single model's cost, as a share, when it is not shown to be better."""


@dataclass(frozen=True)
class Sweep:
    """One policy for each `trade`: quality - trade * cost, both predicted, decides.

    Args:
        trade: rising from 0, in quality per unit of cost.
        picks: (points, n), the index of the model picked.
        cost, quality: mean over the rows, by point.
    """

    trade: Floats
    picks: Picks
    cost: Floats
    quality: Floats


class Chosen(Struct, frozen=True, kw_only=True):
    """What was chosen, and what it does on the rows it was chosen on.

    Args:
        routes: False when the guard falls back to the model `best` alone.
        why: one sentence.
        trade, margin: of the policy; a margin of None looks at every model.
        gap: mean quality less that of `best`; `bound`: its one-sided 95 % lower bound.
    """

    best: str
    routes: bool
    why: str
    trade: float = 0.0
    margin: float | None = None
    quality: float = 0.0
    cost: float = 0.0
    gap: float = 0.0
    bound: float = 0.0

    def policy(self, models: tuple[str, ...], signal: str) -> Any:
        """Return the policy as it stands in a config."""
        if not self.routes:
            return self.best
        fields: dict[str, Any] = {"of": list(models), "quality": signal, "trade": round(self.trade, 9)}
        if self.margin is not None:
            fields |= {"best": self.best, "margin": self.margin}
        return {"cheapest": fields}


def trades(data: ManyData, count: int = 60) -> Floats:
    """Return 0 and `count` trades, geometric, from where cost hardly matters to where it alone does."""
    prices = data.cost.mean(axis=0)
    spread = float(np.ptp(prices))
    if spread <= 0.0:
        return np.zeros(1)
    return np.concatenate([[0.0], np.geomspace(1e-3, 30.0, count) / spread])


def pick(predicted: Floats, prices: Floats, trade: float, best: int | None = None, margin: float | None = None) -> Picks:
    """Return, per row, the model with the highest predicted quality - trade * price; ties to the cheapest, then first.

    With `best` and `margin` only models predicted better than `best` by the margin may take its place. The policy
    `cheapest` decides the same.
    """
    order = np.argsort(prices, kind="stable")
    value = predicted - trade * prices
    if best is not None and margin is not None:
        allowed = predicted >= predicted[:, [best]] + margin
        allowed[:, best] = True
        value = np.where(allowed, value, -np.inf)
    found: Picks = order[value[:, order].argmax(axis=1)]
    return found


def sweep(data: ManyData, predicted: Floats, at: Floats | None = None) -> Sweep:
    """Return what every trade does on these rows; prices are the models' mean costs, as the pool knows them.

    Args:
        predicted: (n, models), from a predictor that has not seen the rows.
        at: the trades; `trades(data)` when left out.
    """
    tried = trades(data) if at is None else at
    prices = data.cost.mean(axis=0)
    picks = np.stack([pick(predicted, prices, float(trade)) for trade in tried])
    rows = np.arange(len(data))
    cost = np.array([data.cost[rows, each].mean() for each in picks])
    quality = np.array([data.quality[rows, each].mean() for each in picks])
    return Sweep(tried, picks, cost, quality)


def choose(
    data: ManyData,
    predicted: Floats,
    goal: Goal = "quality",
    *,
    budget: float | None = None,
    slack: float = SLACK,
) -> Chosen:
    """Choose trade and margin on rows that the predictor has not seen, behind the guard.

    `quality`: the best mean quality. `match`: the least mean cost at the quality of the best single model. `budget`: the
    best mean quality at a mean cost of at most `budget`. The guard holds what was chosen against the best single model
    (with a budget: the best one within it). That model alone answers unless routing is shown to be better (the one-sided
    95 % lower bound of the difference, rows paired, is above 0), or saves 5 % of its cost with that bound at -`slack` or
    above.

    Raises:
        ValueError: the goal `budget` without a budget, or no model is within it.
    """
    means, prices = data.quality.mean(axis=0), data.cost.mean(axis=0)
    best = data.best
    if goal == "budget":
        if budget is None:
            raise ValueError("the goal `budget` needs a budget, a mean cost a request")
        within = prices <= budget
        if not within.any():
            raise ValueError(f"no model costs at most {budget:g}; the cheapest costs {prices.min():g}")
        best = int(np.lexsort((prices, -np.where(within, means, -np.inf)))[0])
    found = sorted(
        _options(data, predicted, best, goal, budget), key=lambda one: one.cost if goal == "match" else -one.quality
    )
    for one in found:
        if one.bound > 0.0 or (one.bound >= -slack and one.cost < (1.0 - WORTH) * prices[best]):
            return one
    return Chosen(
        best=data.models[best], routes=False, quality=float(means[best]), cost=float(prices[best]),
        why=f"on {len(data)} unseen rows no routing is shown to be better, or to save {WORTH:.0%} at equal quality",
    )  # fmt: skip


def _options(data: ManyData, predicted: Floats, best: int, goal: str, budget: float | None) -> list[Chosen]:
    prices, rows = data.cost.mean(axis=0), np.arange(len(data))
    tried: list[tuple[float, float | None]] = [(float(trade), None) for trade in trades(data)]
    if goal == "quality":
        tried += [(0.0, margin) for margin in MARGINS]
    found = []
    for trade, margin in tried:
        picks = pick(predicted, prices, trade, best, margin)
        cost, quality = float(data.cost[rows, picks].mean()), float(data.quality[rows, picks].mean())
        if goal == "budget" and budget is not None and cost > budget:
            continue
        gap = data.quality[rows, picks] - data.quality[:, best]
        bound = float(gap.mean() - Z95_ONE_SIDED * gap.std() / np.sqrt(len(gap)))
        why = f"quality {quality:.4f} at cost {cost:.4g} on {len(data)} unseen rows; {data.models[best]}: "
        why += f"{data.quality[:, best].mean():.4f} at {prices[best]:.4g}"
        found.append(
            Chosen(
                best=data.models[best],
                routes=True,
                why=why,
                trade=trade,
                margin=margin,
                quality=quality,
                cost=cost,
                gap=float(gap.mean()),
                bound=bound,
            )
        )
    return found
