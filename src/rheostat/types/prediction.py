"""What a model says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rheostat.types.span import Span


class Prediction(Struct, frozen=True, omit_defaults=True):
    """One model's answer to one row.

    `confidence` is the probability that `label` is right, in [0, 1]; None when the model has no usable one.
    `scores` is the distribution over labels where the model has one; it sums to 1. `output` is anything else it said.
    `spoilt` marks a confidence that was given and was none (NaN, 7): such an answer is not given again later. `spans` says
    who wrote which part, where several models wrote it.
    """

    label: str
    confidence: float | None = None
    scores: Mapping[str, float] | None = None
    output: Any = None
    spoilt: bool = False
    spans: tuple[Span, ...] = ()

    @classmethod
    def from_scores(cls, scores: Mapping[str, float]) -> Prediction:
        """Make a prediction from a distribution; ties go to the label that comes first."""
        label = max(scores, key=scores.__getitem__)
        return cls(label, scores[label], scores)


def usable_confidence(value: Any) -> float | None:
    """Return `value` as a confidence in [0, 1], or None when it is not one (NaN, infinite, out of range, no number)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0.0 <= value <= 1.0 else None  # compared first: no float holds a huge integer
