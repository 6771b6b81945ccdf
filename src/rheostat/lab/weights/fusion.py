"""What a weighted mix of models is worth, and the plain ways to weigh it that a learned one has to beat."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rheostat.lab.metrics import Floats

_FLOOR = 1e-7  # of a probability, so that a log is finite


class FusionData(NamedTuple):
    """Rows to weigh models on.

    Args:
        x: rows x features, NaN where a number is missing.
        scores: rows x models x labels; each model's calibrated distribution.
        truth: the index of the right label.
    """

    x: Floats
    scores: Floats
    truth: npt.NDArray[np.int64]


def checked(data: FusionData, name: str) -> FusionData:
    """Return the data when it can be learned from.

    Raises:
        ValueError: no row, rows that do not match, one label only, a score that is NaN or outside [0, 1], or two models
            whose scores are the same everywhere (their weights mean nothing).
    """
    x, scores, truth = data
    if not len(x) or not len(x) == len(scores) == len(truth):
        raise ValueError(f"{name}: expected as many rows of x, scores and truth, got {len(x)}, {len(scores)}, {len(truth)}")
    if scores.ndim != 3 or scores.shape[1] < 2:
        raise ValueError(f"{name}: scores must be rows x models x labels with two models or more, got {scores.shape}")
    if not ((scores >= 0.0) & (scores <= 1.0)).all():
        raise ValueError(f"{name}: a score is NaN or outside [0, 1]; leave those rows out")
    if len(np.unique(truth)) < 2:
        raise ValueError(f"{name}: every row has the same label; there is nothing to learn")
    if truth.min() < 0 or truth.max() >= scores.shape[2]:
        raise ValueError(f"{name}: a label is outside 0 to {scores.shape[2] - 1}, the labels that have scores")
    for model in range(1, scores.shape[1]):
        if np.array_equal(scores[:, 0], scores[:, model]):
            raise ValueError(f"{name}: models 0 and {model} say the same on every row; leave one out")
    return data


def mixed(scores: Floats, weights: npt.ArrayLike) -> Floats:
    """Return rows x labels: the mean of the models' distributions under `weights` (one set for all rows, or one a row)."""
    table = np.broadcast_to(np.asarray(weights, dtype=np.float64), scores.shape[:2])
    found: Floats = np.einsum("nm,nmc->nc", table, scores)
    return found


def losses(scores: Floats, truth: npt.NDArray[np.int64]) -> Floats:
    """Return each row's log loss of a distribution over labels (rows x labels)."""
    found: Floats = -np.log(np.clip(scores[np.arange(len(truth)), truth], _FLOOR, 1.0))
    return found


def fixed_blend(data: FusionData, steps: int = 500) -> Floats:
    """Return the one set of weights with the least log loss of the mix on these rows.

    Expectation maximisation of mixture weights: the loss is convex in them and every step lowers it.
    Source: Dempster, Laird and Rubin (1977), section 4.3.
    """
    chance = np.clip(data.scores[np.arange(len(data.truth)), :, data.truth], _FLOOR, 1.0)
    weights = np.full(chance.shape[1], 1.0 / chance.shape[1])
    for _ in range(steps):
        share = chance * weights
        weights = (share / share.sum(axis=1, keepdims=True)).mean(axis=0)
    return weights


def by_margin(scores: Floats) -> Floats:
    """Return the heuristic weights: each model counts by how far its first label is ahead of its second (rows x models)."""
    top = np.sort(scores, axis=2)[:, :, -2:]
    margin = top[:, :, 1] - top[:, :, 0] + 1e-6
    found: Floats = margin / margin.sum(axis=1, keepdims=True)
    return found


class Stack(NamedTuple):
    """A log-linear pool: softmax over labels of the models' log scores, one slope a model, one intercept a label."""

    slopes: Floats
    intercepts: Floats

    def mixed(self, scores: Floats) -> Floats:
        """Return rows x labels: the stack's distribution."""
        odds = np.einsum("nmc,m->nc", np.log(np.clip(scores, _FLOOR, 1.0)), self.slopes) + self.intercepts
        powers = np.exp(odds - odds.max(axis=1, keepdims=True))
        found: Floats = powers / powers.sum(axis=1, keepdims=True)
        return found


def stack(data: FusionData) -> Stack:
    """Fit the stack by maximum likelihood, with a trifling ridge that keeps it finite.

    With two labels it is logistic regression on the models' log odds. Source: Wolpert, Stacked Generalization (1992);
    Heskes, Selecting weighting factors in logarithmic opinion pools (1997).
    """
    from scipy.optimize import minimize

    n, models, labels = data.scores.shape
    logs = np.log(np.clip(data.scores, _FLOOR, 1.0))
    at = np.arange(n)

    def loss(flat: Floats) -> tuple[float, Floats]:
        odds = np.einsum("nmc,m->nc", logs, flat[:models]) + flat[models:]
        odds -= odds.max(axis=1, keepdims=True)
        shares = np.exp(odds)
        total = shares.sum(axis=1, keepdims=True)
        value = float((np.log(total[:, 0]) - odds[at, data.truth]).mean() + 0.5e-4 * (flat**2).sum())
        shares /= total
        shares[at, data.truth] -= 1.0
        slopes = np.einsum("nmc,nc->m", logs, shares) / n
        return value, np.concatenate([slopes, shares.mean(axis=0)]) + 1e-4 * flat

    start = np.concatenate([np.full(models, 1.0 / models), np.zeros(labels)])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return Stack(found.x[:models], found.x[models:])
