"""What is believed of each arm's mean reward, and with what probability each is the best."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_START: Final = 2.0  # pseudo-requests of an arm that nobody has tried: Beta(1, 1), or a mean of 0.5
_NODES: Final = np.concatenate([np.linspace(-6.0, -3.0, 7)[:-1], np.linspace(-3.0, 3.0, 41), np.linspace(3.0, 6.0, 7)[1:]])
_LEAST: Final = 1e-300


class Posterior(NamedTuple):
    """A value per arm: mean and standard deviation of its mean reward, and whether the shape is Beta (within [0, 1])."""

    mean: Floats
    sd: Floats
    unit: bool


def posterior(everywhere: Floats, here: Floats | None, prior: float, rewards: str) -> Posterior:
    """Combine what was seen in one segment with what was seen in all traffic.

    All traffic gives each arm a mean; a segment that is harder or easier shifts all of them alike; around that the segment's
    own requests count against `prior` pseudo-requests (never more than the arm was seen at all). This is the usual normal
    or Beta-Binomial shrinkage, with the level taken from the data (empirical Bayes).

    Args:
        everywhere: arms x (n, mean, var) over all traffic.
        here: the same for the segment; None for all traffic together.
        rewards: `unit` (in [0, 1]) or `any`.
    """
    n, mean = everywhere[:, 0], everywhere[:, 1]
    total = float(n.sum())
    middle = 0.5 if rewards == "unit" or not total else float(n @ mean) / total
    level = (n * mean + _START * middle) / (n + _START)
    if here is None:
        return _spread(level, n + _START, everywhere, rewards)
    seen = here[:, 0]
    shift = float((seen * (here[:, 1] - level)).sum()) / (float(seen.sum()) + prior)
    centre = level + shift
    if rewards == "unit":
        centre = np.clip(centre, 0.01, 0.99)
    strength = np.minimum(prior, n + _START)
    return _spread((strength * centre + seen * here[:, 1]) / (strength + seen), strength + seen, here, rewards)


def _spread(mean: Floats, counts: Floats, seen: Floats, rewards: str) -> Posterior:
    """Standard deviations of the means: sqrt(v / counts), v pooled over the arms, against 4 pseudo-requests.

    For rewards in [0, 1] the pseudo-requests have the variance .25, and v is never above mean (1 - mean).
    """
    n = seen[:, 0]
    inside = float((n * (seen[:, 2] + (seen[:, 1] - mean) ** 2)).sum())
    total = float(n.sum())
    start = 0.25 if rewards == "unit" or not total else max(inside / total, 1e-6)
    variance = max((inside + 4.0 * start) / (total + 4.0), 1e-9)
    if rewards == "unit":
        mean = np.clip(mean, 1e-3, 1.0 - 1e-3)
        sd = np.sqrt(np.minimum(variance, mean * (1.0 - mean)) / (counts + 1.0))
        return Posterior(mean, sd, True)
    return Posterior(mean, np.sqrt(variance / counts), False)


def best_chances(believed: Posterior, width: float = 1.0) -> Floats:
    """Return the probability that each arm has the highest mean: integral of its density times the others' distributions.

    Each arm brings 53 nodes around its mean, and the trapezoid rule runs over all of them; probabilities are right to about
    .002 and are made to sum to 1. No chance takes part, so the same snapshot always gives the same chances.
    """
    mean, sd = believed.mean, np.maximum(believed.sd * width, 1e-9)
    grid = np.unique((mean[:, None] + sd[:, None] * _NODES).ravel())
    if believed.unit:
        grid = grid[(grid > 1e-6) & (grid < 1.0 - 1e-6)]
        strength = np.maximum(mean * (1.0 - mean) / sd**2 - 1.0, 1e-3)
        alpha, beta = (mean * strength)[:, None], ((1.0 - mean) * strength)[:, None]
        log_density = (alpha - 1.0) * np.log(grid) + (beta - 1.0) * np.log1p(-grid)
    else:
        log_density = -0.5 * ((grid - mean[:, None]) / sd[:, None]) ** 2
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    pieces = 0.5 * (density[:, 1:] + density[:, :-1]) * np.diff(grid)
    below = np.cumsum(pieces, axis=1)
    below = (below - 0.5 * pieces) / below[:, -1:]  # the distribution in the middle of each piece
    log_below = np.log(np.maximum(below, _LEAST))
    others = np.exp(log_below.sum(axis=0) - log_below)
    chances: Floats = (pieces / pieces.sum(axis=1, keepdims=True) * others).sum(axis=1)
    found: Floats = chances / chances.sum()
    return found
