"""A benchmark model and the fit that most of them share."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rheostat.lab.outcomes import TrainingCard

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MOST_STEPS = 2_000


class Member(msgspec.Struct, frozen=True):
    """One trained model: its probabilities on every split, and what its trainer says. Seconds are for one row."""

    name: str
    cost: float
    latency_s: float
    scores: Mapping[str, Floats]
    card: TrainingCard


def fit_logistic(
    x: Mapping[str, Any],
    truth: Mapping[str, Any],
    grid: Sequence[float],
    tolerance: float = 1e-5,
    most_steps: int = MOST_STEPS,
) -> tuple[Any, TrainingCard]:
    """Fit multinomial logistic regression with every strength of the grid; keep the one that is best on dev.

    Args:
        x: features of train and dev; vectors of length 1 need scaling, or a tolerance that fits their tiny gradients.
        grid: inverse strengths of the ridge.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the card says it
        fitted = [LogisticRegression(C=c, tol=tolerance, max_iter=most_steps).fit(x["train"], truth["train"]) for c in grid]
    accuracy = [float(model.score(x["dev"], truth["dev"])) for model in fitted]
    best = fitted[accuracy.index(max(accuracy))]
    steps = int(max(best.n_iter_))
    card = TrainingCard(
        train_accuracy=float(best.score(x["train"], truth["train"])),
        dev_accuracy=max(accuracy),
        converged=steps < most_steps,
        iterations=steps,
        max_iterations=most_steps,
    )
    return best, card
