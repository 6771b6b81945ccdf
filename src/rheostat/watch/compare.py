"""How far two counts lie apart, and whether that can be chance."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt

from rheostat.watch.sketch import Sketch, distance, parts

SHIFTED = 0.25
_CHANCE = 1e-6
_PARTS = 10


def shares_apart(found: float, of: float, usual: float, of_usual: float) -> float:
    """Return how many standard errors the share `found / of` lies above `usual / of_usual` (two-proportion z-test); 0 while
    either is empty."""
    if of <= 0 or of_usual <= 0:
        return 0.0
    pooled = (found + usual) / (of + of_usual)
    error = sqrt(pooled * (1.0 - pooled) * (1.0 / of + 1.0 / of_usual))
    return (found / of - usual / of_usual) / error if error > 0.0 else 0.0


def psi(usual: Sequence[int], found: Sequence[int]) -> float:
    """Return the population stability index of two counts over the same parts; half a number is added to each part, so that
    none is empty. Under 0.1 is commonly called stable, over 0.25 shifted."""
    here, there = sum(usual) + 0.5 * len(usual), sum(found) + 0.5 * len(found)
    total = 0.0
    for mine, theirs in zip(usual, found, strict=True):
        p, q = (mine + 0.5) / here, (theirs + 0.5) / there
        total += (q - p) * log(q / p)
    return total


def shifted(usual: Sketch, found: Sketch) -> float | None:
    """Return the stability index over ten parts that hold as many usual numbers each, if it is `SHIFTED` or more and two
    samples of one distribution hardly ever lie as far apart (Kolmogorov and Smirnov's test); else None."""
    index = psi(*parts(usual, found, _PARTS))
    if index < SHIFTED or _chance(distance(usual, found), usual.total, found.total) > _CHANCE:
        return None
    return index


def _chance(apart: float, one: int, other: int) -> float:
    """Return the asymptotic chance, which ties make too large."""
    if not one or not other:
        return 1.0
    root = sqrt(one * other / (one + other))
    scaled = (root + 0.12 + 0.11 / root) * apart
    if scaled < 0.3:
        return 1.0
    total = sum((-1.0) ** (k - 1) * exp(-2.0 * (k * scaled) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, 2.0 * total))
