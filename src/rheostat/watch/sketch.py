"""A distribution of numbers, in little memory, that can be added up and compared."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, isfinite, log

_WIDTH = log(1.005)  # relative width of a bucket
_PER = 1.0 / _WIDTH
_LEAST = 1e-9  # nearer to 0 is 0
_MOST = 1e12
_SHIFT = int(-log(_LEAST) * _PER) + 2  # makes the number of every bucket above 0 positive


class Sketch:
    """Counts numbers in buckets that are half a per cent wide (DDSketch, Masson, Rim and Lee, 2019, with negative numbers in
    buckets of their own); numbers that are not finite are left out."""

    __slots__ = ("counts", "total")

    def __init__(self, values: Iterable[float] = ()) -> None:
        self.counts: dict[int, int] = {}
        self.total = 0
        for value in values:
            self.add(value)

    def add(self, value: float) -> None:
        """Count a number."""
        bucket = _bucket(value)
        if bucket is None:
            return
        self.total += 1
        counts = self.counts
        try:
            counts[bucket] += 1
        except KeyError:
            counts[bucket] = 1

    def merge(self, other: Sketch) -> None:
        """Count all that the other has counted."""
        counts = self.counts
        for bucket, count in other.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
        self.total += other.total

    def quantile(self, share: float) -> float | None:
        """Return the number below or at which `share` of them lie: the smallest of rank `share * total` or more, told as the
        upper edge of its bucket, so at most half a per cent too large and never too small. None while there is none."""
        if not self.total:
            return None
        wanted, seen = share * self.total, 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                return _edge(bucket)
        return None

    def above(self, value: float) -> int:
        """Return how many numbers lie in buckets above that of `value`."""
        limit = _bucket(value)
        return sum(count for bucket, count in self.counts.items() if limit is None or bucket > limit)


def parts(by: Sketch, found: Sketch, count: int) -> tuple[list[int], list[int]]:
    """Cut both at the quantiles of `by` into at most `count` parts that hold about as many of its numbers each; return how
    many numbers of each lie in them."""
    mine: list[int] = []
    theirs: list[int] = []
    here = there = 0
    for bucket in sorted({*by.counts, *found.counts}):
        here += by.counts.get(bucket, 0)
        there += found.counts.get(bucket, 0)
        if here * count >= by.total and len(mine) < count - 1:
            mine.append(here)
            theirs.append(there)
            here = there = 0
    return [*mine, here], [*theirs, there]


def distance(one: Sketch, other: Sketch) -> float:
    """Return the largest distance of the two cumulative distributions, 0 to 1 (the statistic of Kolmogorov and Smirnov)."""
    if not one.total or not other.total:
        return 0.0
    worst = mine = theirs = 0.0
    for bucket in sorted({*one.counts, *other.counts}):
        mine += one.counts.get(bucket, 0) / one.total
        theirs += other.counts.get(bucket, 0) / other.total
        worst = max(worst, abs(mine - theirs))
    return worst


def _bucket(value: float) -> int | None:
    if value >= _LEAST:
        if value > _MOST:
            return int(log(_MOST) * _PER) + _SHIFT if isfinite(value) else None
        return int(log(value) * _PER // 1) + _SHIFT
    if value > -_LEAST:
        return 0
    if not isfinite(value):
        return None
    return -(int(log(min(-value, _MOST)) * _PER // 1) + _SHIFT)


def _edge(bucket: int) -> float:
    if bucket > 0:
        return exp((bucket - _SHIFT + 1) * _WIDTH)
    return -exp((-bucket - _SHIFT) * _WIDTH) if bucket else 0.0
