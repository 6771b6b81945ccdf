"""What another policy would have earned on logged traffic: IPS, SNIPS, DM, DR and switch-DR with intervals."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from rheostat.lab.bootstrap import Difference, Interval
from rheostat.lab.clustered import Sample, joint_draws
from rheostat.lab.metrics import Floats
from rheostat.lab.ope.log import Log, Overlap, check_overlap
from rheostat.lab.ope.regression import Predicted, cross_fitted

ESTIMATORS: Final = ("ips", "snips", "dm", "dr", "switch-dr")
HEADLINE: Final = "dr"
_QUANTILES: Final = (0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


class Estimated(Struct, frozen=True):
    """One policy's estimated mean reward.

    `logged` is what the logging policy earned on the same rows; `values` maps an estimator to its 95 % interval; `lifts`
    to the paired difference to `logged`. `switch_at` is the weight above which switch-DR trusts the regression alone.
    `warnings` are words for the reader.
    """

    overlap: Overlap
    logged: Interval
    values: dict[str, Interval]
    lifts: dict[str, Difference]
    switch_at: float
    regression: str
    warnings: tuple[str, ...] = ()


def evaluate(
    log: Log,
    *,
    method: str = "ridge",
    least_ess: float = 50.0,
    draws: int = 2000,
    seed: int = 0,
) -> Estimated:
    """Estimate the target policy's mean reward from a log of another policy's choices.

    With w the importance weights, q the regression, q(pi) its mean over the target's choices:

    * IPS = mean(w r). Unbiased when propensities are right; wide. Horvitz and Thompson (1952).
    * SNIPS = sum(w r) / sum(w). A little bias, mostly far less spread. Swaminathan and Joachims (2015).
    * DM = mean(q(pi)). Narrow, and wrong where q is; its interval does not know that.
    * DR = mean(q(pi) + w (r - q)). Right when either side is. Dudik, Langford and Li (2011).
    * switch-DR: DR, with w set to 0 above a limit that is chosen by estimated variance plus squared bias bound. Wang,
      Agarwal and Dudik (2017).

    Intervals are 95 %, from a bootstrap of rows (or clusters) with the regression held fixed; beyond 20,000 rows from its
    normal limit.

    Args:
        method: `ridge` or `boosted`, see `cross_fitted`.
        least_ess: effective sample size below which nothing is estimated.

    Raises:
        OpeRefused: the log cannot answer; the message says what to log instead.
        ValueError: too few independent rows.
    """
    found = check_overlap(log, least_ess)
    model = cross_fitted(log, method, seed)
    limit = switch_limit(log, model)
    columns = contributions(log, model, limit)
    cluster = log.clusters
    samples = [Sample(column, cluster) for column in columns.values()]
    drawn = dict(zip(columns, joint_draws(samples, int(cluster.max()) + 1, draws, seed).T, strict=True))
    points = {name: float(column.mean()) for name, column in columns.items()}
    for side in (points, drawn):
        side["snips"] = side["ips"] / side["weight"]
    n = len(log)
    values = {name: _interval(points[name], drawn[name], n) for name in ESTIMATORS}
    lifts = {}
    for name in ESTIMATORS:
        gap = drawn[name] - drawn["logged"]
        low, high = np.quantile(gap, [0.025, 0.975])
        at = points[name] - points["logged"]
        lifts[name] = Difference(at, float(low), float(high), float((gap <= 0.0).mean()), n)
    logged = _interval(points["logged"], drawn["logged"], n)
    return Estimated(found, logged, values, lifts, limit, model.method, _warnings(log, found, values))


def contributions(log: Log, model: Predicted, limit: float) -> dict[str, Floats]:
    """Return a number per row for each estimator that is a mean; `weight` and `logged` (the reward itself) beside them."""
    weights = log.weights
    correction = weights * (log.reward - model.logged)
    return {
        "ips": weights * log.reward,
        "weight": weights,
        "dm": model.value,
        "dr": model.value + correction,
        "switch-dr": model.value + np.where(weights <= limit, correction, 0.0),
        "logged": log.reward,
    }


def switch_limit(log: Log, model: Predicted) -> float:
    """Return the weight above which switch-DR lets the regression stand alone, among quantiles of the weights above 0.

    The least of estimated variance / n + (mean weight above the limit x range of rewards)^2 (Wang et al. 2017, section 4).
    """
    weights = log.weights
    above = weights[weights > 0.0]
    span = float(np.ptp(log.reward))
    correction = weights * (log.reward - model.logged)
    best, least = float(above.max()), np.inf
    for limit in np.quantile(above, _QUANTILES):
        kept = np.where(weights <= limit, correction, 0.0) + model.value
        risk = kept.var() / len(log) + (float(np.where(weights > limit, weights, 0.0).mean()) * span) ** 2
        if risk < least:
            best, least = float(limit), risk
    return best


def _interval(point: float, draws: Floats, n: int) -> Interval:
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(point, float(low), float(high), n)


def _warnings(log: Log, found: Overlap, values: dict[str, Interval]) -> tuple[str, ...]:
    said: list[str] = []
    if found.misfit:
        said.append(
            f"the mean weight is {found.mean_weight:.3f} where 1 is expected: propensities are not those of the choices, or "
            "rows are missing that one policy makes more often; estimates lean the same way"
        )
    if found.ess < 0.01 * found.n:
        said.append(f"only {found.ess:,.0f} of {found.n:,} rows count effectively; read the intervals, not the figures")
    if values["ips"].mean > 0.0 and _apart(values["dm"], values["dr"]):
        said.append("DM and DR do not agree: the regression is off, believe DR")
    share = sum(log.left_out.values()) / (sum(log.left_out.values()) + len(log))
    if share > 0.5:
        said.append(
            f"{share:.0%} of the records could not be used; if feedback comes more often for some choices, it misleads"
        )
    return tuple(said)


def _apart(a: Interval, b: Interval) -> bool:
    return a.low > b.high or b.low > a.high
