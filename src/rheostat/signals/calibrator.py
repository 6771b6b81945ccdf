"""Maps from what a model says about its own certainty to how often it is right."""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from rheostat.errors import ConfigError, Problem
from rheostat.types import Prediction

_EDGE = 1e-9


class Calibrator(Protocol):
    """Replaces a prediction's confidence; the label stays, and a higher confidence never becomes a lower one."""

    def apply(self, prediction: Prediction) -> Prediction:
        """Return the prediction with its confidence, and its scores if it has any, calibrated.

        A prediction without a confidence is returned as it is.
        """


class _Fitted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="method"):
    """What every calibrator remembers of its fit: the number of samples and what was doubtful about them."""

    samples: int = 0
    warnings: tuple[str, ...] = ()

    def value(self, confidence: float) -> float:
        """Return the calibrated confidence, in [0, 1], of a raw one in [0, 1]."""
        raise NotImplementedError(type(self).__name__)

    def apply(self, prediction: Prediction) -> Prediction:
        """See Calibrator. The rest of the mass is spread over the other labels in the proportion they had."""
        if prediction.confidence is None:
            return prediction
        top = self.value(prediction.confidence)
        scores = None if prediction.scores is None else _spread(prediction.scores, prediction.label, top)
        return Prediction(prediction.label, top, scores, prediction.output)


class Identity(_Fitted, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="identity"):
    """Leaves everything as it is: the confidence was good already, or there was too little to learn from."""

    def value(self, confidence: float) -> float:
        return confidence

    def apply(self, prediction: Prediction) -> Prediction:
        return prediction


class Platt(_Fitted, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="platt"):
    """sigmoid(a * logit(confidence) + b), a > 0. Source: Platt (1999), on the log odds as in Kull et al. (2017)."""

    a: float
    b: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.a) and math.isfinite(self.b) and self.a > 0.0):
            raise ValueError(f"expected finite a > 0 and b, got a={self.a}, b={self.b}")

    def value(self, confidence: float) -> float:
        return sigmoid(self.a * logit(confidence) + self.b)


_SAME = 1e-6  # stored scores are single precision, a stored confidence is not


class Temperature(_Fitted, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="temperature"):
    """Log scores divided by t > 0, which rescales the whole distribution; without scores, the log odds of the
    confidence.

    Source: Guo et al., On Calibration of Modern Neural Networks (2017).
    """

    t: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.t) and self.t > 0.0):
            raise ValueError(f"expected a finite t > 0, got {self.t}")

    def value(self, confidence: float) -> float:
        return sigmoid(logit(confidence) / self.t)

    def apply(self, prediction: Prediction) -> Prediction:
        """Rescale all scores; a confidence that is not the label's score is mapped by `value`."""
        scores = prediction.scores
        if prediction.confidence is None or not scores or prediction.label not in scores:
            return super().apply(prediction)
        top, power = max(scores.values()), 1.0 / self.t
        if top <= 0.0:
            return prediction
        raised = {label: (score / top) ** power if score > 0.0 else 0.0 for label, score in scores.items()}
        total = math.fsum(raised.values())
        rescaled = {label: each / total for label, each in raised.items()}
        own = abs(prediction.confidence - scores[prediction.label]) <= _SAME
        confidence = rescaled[prediction.label] if own else self.value(prediction.confidence)
        return Prediction(prediction.label, confidence, rescaled, prediction.output)


class _Curve(_Fitted, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rising line through the points (x, y), level beyond its ends."""

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in pairwise(self.x)) and all(low <= high for low, high in pairwise(self.y))
        inside = all(0.0 <= each <= 1.0 for each in (*self.x, *self.y))
        if not self.x or len(self.x) != len(self.y) or not rising or not inside:
            raise ValueError("expected as many x as y, one or more, in [0, 1]; x rising, y not falling")

    def value(self, confidence: float) -> float:
        x, y = self.x, self.y
        index = bisect_right(x, confidence)
        if index == 0:
            return y[0]
        if index == len(x):
            return y[-1]
        low, high = x[index - 1], x[index]
        return min(y[index], y[index - 1] + (y[index] - y[index - 1]) * (confidence - low) / (high - low))


class Isotonic(_Curve, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="isotonic"):
    """The best rising step function, joined by lines; its steps are tilted by 0.001 so that no two confidences in
    between become one. Source: Zadrozny & Elkan (2002)."""


class Quantile(_Curve, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="quantile"):
    """Confidences of equal rank become equal: onto a reference distribution, or onto the accuracy of each part."""


Fitted = Identity | Platt | Temperature | Isotonic | Quantile


def save_calibrator(calibrator: Fitted, path: str) -> None:
    """Write the calibrator as JSON; the file is complete or not there."""
    target = Path(path)
    draft = target.with_name(f"{target.name}.draft")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(calibrator), indent=1) + b"\n")
    os.replace(draft, target)


def load_calibrator(path: str) -> Fitted:
    """Read a calibrator. The file is data only; nothing in it is run.

    Raises:
        ConfigError: the file is missing or holds no calibrator.
    """
    name = Path(path).name
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Fitted)
    except OSError as error:
        raise ConfigError([Problem("calibration", None, f"{name} cannot be read: {error.strerror}")]) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("calibration", None, f"{name} is no calibrator: {error}")]) from error


def logit(probability: float) -> float:
    """Return the log odds of a probability, which is kept 1e-9 away from 0 and 1."""
    kept = min(max(probability, _EDGE), 1.0 - _EDGE)
    return math.log(kept / (1.0 - kept))


def sigmoid(odds: float) -> float:
    """Return the probability of log odds."""
    if odds >= 0.0:
        return 1.0 / (1.0 + math.exp(-odds))
    power = math.exp(odds)
    return power / (1.0 + power)


def _spread(scores: Mapping[str, float], label: str, top: float) -> dict[str, float]:
    others = math.fsum(score for name, score in scores.items() if name != label)
    if others <= 0.0:
        count = len(scores) - (label in scores)
        return {name: top if name == label else (1.0 - top) / count for name in scores} if count else {label: 1.0}
    factor = (1.0 - top) / others
    return {name: top if name == label else score * factor for name, score in scores.items()}
