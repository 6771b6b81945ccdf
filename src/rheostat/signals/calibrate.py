"""Calibrators fitted to labelled data.

Every function takes `confidence`, n numbers in [0, 1] (or n x labels distributions, of which the highest counts), and
`correct`, n truth values: was the model's answer right?
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rheostat.signals.calibrator import (
    Fitted,
    Identity,
    Isotonic,
    Platt,
    Quantile,
    Temperature,
    load_calibrator,
    logit,
    save_calibrator,
)
from rheostat.signals.fitting import TILT, newton, rising, smallest, tilted

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

FEW = 50
"""Fewer samples than this make a warning, and the isotonic method is not chosen."""
_FOLDS = 5
_TIE = 1e-4
_CLIP = 1e-4

__all__ = [
    "choose_calibrator",
    "ece",
    "fit_isotonic",
    "fit_platt",
    "fit_quantile",
    "fit_temperature",
    "load_calibrator",
    "save_calibrator",
]


def fit_platt(confidence: ArrayLike, correct: ArrayLike) -> Platt:
    """Fit sigmoid(a * logit(confidence) + b) by Newton's method on the log loss with Platt's smoothed targets.

    Raises:
        ValueError: empty, one class only, lengths that differ, or a confidence outside [0, 1].
    """
    import numpy as np

    _, top, right, warnings = _checked(confidence, correct)
    odds = _logits(top)
    wins, losses = right.sum(), (1.0 - right).sum()
    target = np.where(right > 0.5, (wins + 1.0) / (wins + 2.0), 1.0 / (losses + 2.0))
    if np.ptp(odds) < 1e-9:
        return Platt(a=1.0, b=logit(float(right.mean())) - float(odds[0]), samples=len(top), warnings=warnings)
    a, b = newton(odds, target)
    if a < TILT:
        a, b = TILT, logit(float(right.mean())) - TILT * float(odds.mean())
        warnings = (*warnings, "a higher confidence is not more often right: the confidences say nothing")
    return Platt(a=a, b=b, samples=len(top), warnings=warnings)


def fit_temperature(confidence: ArrayLike, correct: ArrayLike) -> Temperature:
    """Fit the temperature that makes the log loss of "the answer is right" smallest, between 0.02 and 50.

    Raises:
        ValueError: as in `fit_platt`.
    """
    import numpy as np

    table, top, right, warnings = _checked(confidence, correct)
    if table is None:
        odds = _logits(top)

        def highest(t: float) -> NDArray[Any]:
            result: NDArray[Any] = 1.0 / (1.0 + np.exp(-np.clip(odds / t, -35, 35)))
            return result
    else:
        logs = np.log(np.maximum(table, 1e-12)) - np.log(np.maximum(top, 1e-12))[:, None]

        def highest(t: float) -> NDArray[Any]:
            result: NDArray[Any] = 1.0 / np.exp(logs / t).sum(axis=1)
            return result

    t = math.exp(smallest(lambda power: _log_loss(highest(math.exp(power)), right), math.log(0.02), math.log(50.0)))
    reached = float(np.mean(highest(t)))
    if abs(reached - float(right.mean())) > 0.05:
        warnings = (*warnings, f"no temperature brings the mean confidence ({reached:.2f}) to the accuracy: use platt")
    return Temperature(t=t, samples=len(top), warnings=warnings)


def fit_isotonic(confidence: ArrayLike, correct: ArrayLike) -> Isotonic:
    """Fit the best rising step function (pool adjacent violators).

    Raises:
        ValueError: as in `fit_platt`.
    """
    import numpy as np

    _, top, right, warnings = _checked(confidence, correct)
    values, where, counts = np.unique(top, return_inverse=True, return_counts=True)
    wins = np.bincount(where, weights=right)
    points = rising(values.tolist(), wins.tolist(), counts.tolist())
    x, y = tilted(points)
    return Isotonic(x=x, y=y, samples=len(top), warnings=warnings)


def fit_quantile(confidence: ArrayLike, correct: ArrayLike, reference: ArrayLike | None = None, parts: int = 20) -> Quantile:
    """Map confidences by rank, so that models with different habits share one scale.

    With `reference`, another model's confidences, equal ranks become equal values. Without, the samples are cut into
    `parts` of equal size, and each part's mean confidence becomes its accuracy, made rising.

    Raises:
        ValueError: as in `fit_platt`; with a reference one class is enough.
    """
    import numpy as np

    _, top, right, warnings = _checked(confidence, correct, one_class=reference is not None)
    if reference is not None:
        _, onto, _, _ = _checked(reference, np.ones(len(np.asarray(reference))), one_class=True)
        ranks = np.linspace(0.0, 1.0, 101)
        source, target = np.quantile(top, ranks), np.quantile(onto, ranks)
        values, where, counts = np.unique(source, return_inverse=True, return_counts=True)
        means = np.bincount(where, weights=target) / counts
        points = [(x, x, y) for x, y in zip(values.tolist(), means.tolist(), strict=True)]
    else:
        order = np.lexsort((right, top))
        middles: list[float] = []
        won: list[float] = []
        sizes: list[int] = []
        for part in np.array_split(order, min(parts, len(order))):
            mean = float(top[part].mean())
            if middles and mean <= middles[-1] + 1e-12:
                won[-1] += float(right[part].sum())
                sizes[-1] += len(part)
            else:
                middles.append(mean)
                won.append(float(right[part].sum()))
                sizes.append(len(part))
        points = rising(middles, won, sizes)
    x, y = tilted(points)
    return Quantile(x=x, y=y, samples=len(top), warnings=warnings)


def choose_calibrator(confidence: ArrayLike, correct: ArrayLike) -> Fitted:
    """Return the method with the lowest log loss in five-fold cross-validation: identity, temperature, Platt or
    isotonic.

    The simpler one wins a tie (0.0001 nats). Folds go by rank of the confidence, so the order of the rows does not
    matter. With fewer than 50 samples isotonic is not among them; if all confidences are equal, only Platt is. The
    result is fitted on all samples.

    Raises:
        ValueError: as in `fit_platt`.
    """
    import numpy as np

    table, top, right, warnings = _checked(confidence, correct)
    if top.max() - top.min() < 1e-9:
        return fit_platt(top, right)
    given = top if table is None else table
    methods: list[Callable[[Any, Any], Fitted]] = [
        lambda some, _: Identity(samples=len(some), warnings=warnings),
        fit_temperature,
        fit_platt,
    ]
    if len(top) >= FEW:
        methods.append(fit_isotonic)
    fold = np.empty(len(top), dtype=int)
    fold[np.lexsort((right, top))] = np.arange(len(top)) % _FOLDS
    losses = [_cross_validated(fit, given, top, right, fold) for fit in methods]
    best = min(losses)
    return next(fit(given, right) for fit, loss in zip(methods, losses, strict=True) if loss <= best + _TIE)


def ece(confidence: ArrayLike, correct: ArrayLike, bins: int = 15) -> float:
    """Return the expected calibration error in [0, 1]: the mean gap of confidence and accuracy over bins of equal
    width.

    Source: Naeini et al. (2015), Guo et al. (2017).

    Raises:
        ValueError: empty, lengths that differ, or a confidence outside [0, 1].
    """
    import numpy as np

    _, top, right, _ = _checked(confidence, correct, one_class=True)
    where = np.minimum((top * bins).astype(int), bins - 1)
    gaps = np.bincount(where, weights=top - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(top))


def _checked(
    confidence: ArrayLike, correct: ArrayLike, one_class: bool = False
) -> tuple[NDArray[Any] | None, NDArray[Any], NDArray[Any], tuple[str, ...]]:
    import numpy as np

    given, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if given.ndim not in (1, 2) or right.ndim != 1 or len(given) != len(right):
        raise ValueError(f"expected n confidences (or n x labels) and n truth values, got {given.shape} and {right.shape}")
    if not len(right) or not given.size:
        raise ValueError("no samples: there is nothing to calibrate on")
    if not np.all(np.isfinite(given)) or given.min() < 0.0 or given.max() > 1.0 + 1e-6:
        raise ValueError("expected finite confidences in [0, 1]")
    if not np.all((right == 0.0) | (right == 1.0)):
        raise ValueError("expected truth values (0 or 1) for correct")
    if not one_class and right.min() == right.max():
        word = "right" if right[0] else "wrong"
        raise ValueError(f"all {len(right)} answers are {word}: calibration needs both right and wrong ones")
    few = len(right) < FEW
    warnings = (f"only {len(right)} samples: fewer than {FEW} say little about how sure to be",) if few else ()
    top = given if given.ndim == 1 else given.max(axis=1)
    return (given if given.ndim == 2 else None), np.minimum(top, 1.0), right, warnings


def _logits(top: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    kept = np.clip(top, 1e-9, 1.0 - 1e-9)
    result: NDArray[Any] = np.log(kept / (1.0 - kept))
    return result


def _log_loss(chance: NDArray[Any], right: NDArray[Any]) -> float:
    import numpy as np

    kept = np.clip(chance, _CLIP, 1.0 - _CLIP)
    return float(-np.mean(right * np.log(kept) + (1.0 - right) * np.log(1.0 - kept)))


def _cross_validated(
    fit: Callable[[Any, Any], Fitted], given: NDArray[Any], top: NDArray[Any], right: NDArray[Any], fold: NDArray[Any]
) -> float:
    import numpy as np

    chance = np.empty(len(top))
    for each in range(_FOLDS):
        held = fold == each
        try:
            fitted = fit(given[~held], right[~held])
        except ValueError:  # one class in the rest: this method cannot be judged on so little
            return math.inf
        chance[held] = _applied_to(fitted, given[held], top[held])
    return _log_loss(chance, right)


def _applied_to(fitted: Fitted, given: NDArray[Any], top: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    if isinstance(fitted, Temperature) and given.ndim == 2:
        logs = np.log(np.maximum(given, 1e-12)) - np.log(np.maximum(top, 1e-12))[:, None]
        result: NDArray[Any] = 1.0 / np.exp(logs / fitted.t).sum(axis=1)
        return result
    return np.array([fitted.value(float(each)) for each in top])
