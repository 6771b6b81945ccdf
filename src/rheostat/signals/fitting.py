"""The arithmetic of fitting a calibrator: two weights, one number, or a rising step function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from numpy.typing import NDArray

TILT: Final = 1e-3
"""How far a level step leans towards the raw confidence, so that order is never lost."""


def newton(odds: NDArray[Any], target: NDArray[Any]) -> tuple[float, float]:
    """Return (a, b) of the smallest log loss: Newton's steps, halved while they make it worse.

    A ridge of 1e-6 towards (1, 0) keeps data that can be separated from running away.
    """
    import numpy as np

    design, start = np.stack([odds, np.ones_like(odds)], axis=1), np.array([1.0, 0.0])

    def loss(weights: NDArray[Any]) -> float:
        line = design @ weights
        return float(np.sum(np.logaddexp(0.0, line) - target * line) + 5e-7 * np.sum((weights - start) ** 2))

    weights = start
    for _ in range(100):
        line = np.clip(design @ weights, -700, 700)
        chance = 1.0 / (1.0 + np.exp(-line))
        slope = design.T @ (chance - target) + 1e-6 * (weights - start)
        bend = (design * (chance * (1.0 - chance))[:, None]).T @ design + 1e-6 * np.eye(2)
        step = np.linalg.solve(bend, slope)
        share, here = 1.0, loss(weights)
        while share > 1e-6 and loss(weights - share * step) > here:
            share /= 2.0
        weights = weights - share * step
        if np.abs(step).max() * share < 1e-9:
            break
    return float(weights[0]), float(weights[1])


def rising(values: list[float], wins: list[float], counts: list[int]) -> list[tuple[float, float, float]]:
    """Pool neighbours until the means rise; returns (lowest x, highest x, mean) of each block."""
    blocks: list[list[float]] = []
    for value, won, count in zip(values, wins, counts, strict=True):
        blocks.append([value, value, won, count])
        while len(blocks) > 1 and blocks[-2][2] * blocks[-1][3] >= blocks[-1][2] * blocks[-2][3]:
            _, high, more, many = blocks.pop()
            blocks[-1][1] = high
            blocks[-1][2] += more
            blocks[-1][3] += many
    return [(low, high, won / count) for low, high, won, count in blocks]


def tilted(points: list[tuple[float, float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the corners of the steps, a thousandth of the way towards the raw confidence, so that order is never
    lost."""
    x: list[float] = []
    y: list[float] = []
    for low, high, mean in points:
        for corner in (low, high) if high > low else (low,):
            x.append(corner)
            y.append((1.0 - TILT) * mean + TILT * corner)
    return tuple(x), tuple(y)


def smallest(loss: Callable[[float], float], low: float, high: float) -> float:
    """Golden-section search."""
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = loss(left), loss(right)
    while high - low > 1e-6:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = loss(right)
    return (low + high) / 2.0
