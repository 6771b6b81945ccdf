"""How sure a distribution over labels is, as one number."""

from __future__ import annotations

import math
from collections.abc import Mapping


def confidence(scores: Mapping[str, float]) -> float:
    """Return the highest score, in [0, 1].

    Args:
        scores: a distribution over labels, not empty.
    """
    return max(scores.values())


def margin(scores: Mapping[str, float]) -> float:
    """Return the highest score less the second, in [0, 1]; of a single label its score."""
    first = second = 0.0
    for value in scores.values():
        if value > first:
            first, second = value, first
        elif value > second:
            second = value
    return first - second


def entropy(scores: Mapping[str, float]) -> float:
    """Return Shannon's entropy divided by its maximum: 0 when one label has it all, 1 when all are equal."""
    if len(scores) < 2:
        return 0.0
    total = -math.fsum(value * math.log(value) for value in scores.values() if value > 0.0)
    return min(1.0, max(0.0, total / math.log(len(scores))))
