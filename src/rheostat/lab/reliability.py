"""How far a model's confidence can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from rheostat.lab.metrics import Floats, Values, floats

CONFIDENCE_CUTS: Final = (0.5, 0.8, 0.95, 0.99)
"""Where the confidence-error table is cut."""


class RiskCoverage(NamedTuple):
    """Error among the accepted rows against the share accepted, most confident first."""

    coverage: Floats
    risk: Floats


class Bin(NamedTuple):
    """The rows whose confidence lies in [low, high): how many, their mean confidence, the share that is right."""

    low: float
    high: float
    rows: int
    confidence: float
    accuracy: float


def _pair(confidence: Values, correct: Values) -> tuple[Floats, Floats]:
    c, y = floats(confidence, "confidence"), floats(correct, "correct")
    if len(c) != len(y):
        raise ValueError(f"confidence has {len(c)} rows, correct has {len(y)}")
    return c, y


def brier(confidence: Values, correct: Values) -> float:
    """Return mean((confidence - correct)^2), the Brier score of "this answer is right". Source: Brier (1950)."""
    c, y = _pair(confidence, correct)
    return float(((c - y) ** 2).mean())


def bins(confidence: Values, correct: Values, edges: Sequence[float]) -> list[Bin]:
    """Sort the rows into [edges[0], edges[1]), ... (the last bin closed); empty bins have NaN means."""
    c, y = _pair(confidence, correct)
    cuts = np.asarray(edges, dtype=np.float64)
    at = np.clip(np.searchsorted(cuts, c, side="right") - 1, 0, len(cuts) - 2)
    rows = np.bincount(at, minlength=len(cuts) - 1)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(at, c, len(cuts) - 1) / rows
        right = np.bincount(at, y, len(cuts) - 1) / rows
    return [
        Bin(float(cuts[i]), float(cuts[i + 1]), int(rows[i]), float(mean[i]), float(right[i])) for i in range(len(cuts) - 1)
    ]


def ece(confidence: Values, correct: Values, *, count: int = 15, equal_mass: bool = False) -> float:
    """Return the expected calibration error, sum over bins of |B| / n * |accuracy(B) - confidence(B)|.

    Source: Guo et al., On Calibration of Modern Neural Networks (2017), equation 3.

    Args:
        count: number of bins, of equal width over [0, 1] or, with `equal_mass`, of (about) equally many rows.
    """
    c, y = _pair(confidence, correct)
    edges = np.linspace(0.0, 1.0, count + 1)
    if equal_mass:
        edges = np.unique(np.quantile(c, edges))
        if len(edges) < 2:
            return float(abs(c.mean() - y.mean()))
    found = [b for b in bins(c, y, edges.tolist()) if b.rows]
    return float(sum(b.rows * abs(b.accuracy - b.confidence) for b in found) / len(c))


def confidence_errors(confidence: Values, correct: Values, cuts: Sequence[float] = CONFIDENCE_CUTS) -> list[Bin]:
    """Return the table "how sure, how often wrong": rows and accuracy below, between and above the cuts."""
    return bins(confidence, correct, [0.0, *cuts, 1.0])


def risk_coverage(confidence: Values, correct: Values) -> RiskCoverage:
    """Return error among accepted rows for every distinct confidence, accepting from the most confident down.

    Rows of equal confidence are accepted together. Source: El-Yaniv and Wiener (2010).
    """
    c, y = _pair(confidence, correct)
    order = np.argsort(-c, kind="stable")
    ends = np.concatenate([np.flatnonzero(np.diff(c[order])), [len(c) - 1]]) + 1
    wrong = np.cumsum(1.0 - y[order])
    return RiskCoverage(ends / len(c), wrong[ends - 1] / ends)


def aurc(confidence: Values, correct: Values) -> float:
    """Return the area under the risk-coverage curve, (1 / n) * sum over k of (errors among the k most confident) / k.

    Rows of equal confidence count as if in random order: errors grow evenly inside the block.
    Source: Geifman, Uziel and El-Yaniv (2019).
    """
    c, y = _pair(confidence, correct)
    order = np.argsort(-c, kind="stable")
    ends = np.concatenate([[0], np.flatnonzero(np.diff(c[order])) + 1, [len(c)]])
    wrong = np.concatenate([[0.0], np.cumsum(1.0 - y[order])])
    k = np.arange(1, len(c) + 1)
    return float((np.interp(k, ends, wrong[ends]) / k).mean())


def excess_aurc(confidence: Values, correct: Values) -> float:
    """Return the AURC minus the AURC of the perfect order (all right answers before all wrong ones); 0 is best."""
    c, y = _pair(confidence, correct)
    return aurc(c, y) - aurc(y, y)


def auroc(confidence: Values, correct: Values) -> float:
    """Return the chance that a right answer is more confident than a wrong one, ties counting half; NaN with one kind.

    The Mann-Whitney statistic divided by (right * wrong).
    """
    c, y = _pair(confidence, correct)
    right = y > 0.5
    n_right, n_wrong = int(right.sum()), int((~right).sum())
    if not n_right or not n_wrong:
        return float("nan")
    _, inverse, counts = np.unique(c, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    return float((ranks[right].sum() - n_right * (n_right + 1) / 2.0) / (n_right * n_wrong))
