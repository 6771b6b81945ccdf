"""Intervals and paired differences by resampling rows."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rheostat.lab.metrics import Floats, Values, floats

_FEW: Final = 512  # so few distinct values are drawn as counts, exactly and for any number of rows
_ROWS: Final = 20_000  # beyond this many rows of many distinct values the normal limit is used
_CHUNK: Final = 4_000_000  # indices drawn at a time
Z95: Final = 1.959963984540054
Z95_ONE_SIDED: Final = 1.6448536269514722


class Interval(NamedTuple):
    """A mean with its 95 % interval and the number of rows behind it."""

    mean: float
    low: float
    high: float
    n: int


class Difference(NamedTuple):
    """A paired mean difference with its 95 % interval; `p` is the share of draws in which it is 0 or less."""

    mean: float
    low: float
    high: float
    p: float
    n: int

    @property
    def better(self) -> bool:
        """True when the whole interval lies above zero."""
        return self.low > 0.0

    @property
    def worse(self) -> bool:
        """True when the whole interval lies below zero."""
        return self.high < 0.0


def bootstrap(values: Values, n: int = 2000, seed: int = 0) -> Interval:
    """Return the mean of `values` with its 95 % percentile bootstrap interval over rows.

    Args:
        n: number of draws.
        seed: the same seed gives the same interval.
    """
    array = floats(values, "values")
    low, high = np.quantile(_means(array, n, seed), [0.025, 0.975])
    return Interval(float(array.mean()), float(low), float(high), len(array))


def paired_bootstrap(a: Values, b: Values, n: int = 2000, seed: int = 0) -> Difference:
    """Return mean(a - b) over the same rows, its 95 % interval and p = share of draws with a difference of 0 or less.

    Both sides are resampled with the same rows in every draw. Source: Efron and Tibshirani (1993), chapter 13.

    Args:
        a, b: each row's value under the two rivals, in the same order.
        n: number of draws.
        seed: the same seed gives the same interval.
    """
    left, right = floats(a, "a"), floats(b, "b")
    if len(left) != len(right):
        raise ValueError(f"paired rows are needed: a has {len(left)}, b has {len(right)}")
    gap = left - right
    draws = _means(gap, n, seed)
    low, high = np.quantile(draws, [0.025, 0.975])
    return Difference(float(gap.mean()), float(low), float(high), float((draws <= 0.0).mean()), len(gap))


def _means(values: Floats, n: int, seed: int) -> Floats:
    """`n` means of resampled rows.

    Few distinct values (right/wrong, a price list): how often each is drawn is one multinomial draw, which is the same
    distribution as drawing rows. Many values: rows are drawn, or for very many rows the normal limit stands in.
    """
    rng = np.random.default_rng(seed)
    distinct, counts = np.unique(values, return_counts=True)
    size = len(values)
    if len(distinct) <= _FEW:
        drawn: Floats = rng.multinomial(size, counts / size, n) @ distinct / size
        return drawn
    if size > _ROWS:
        return rng.normal(values.mean(), values.std() / np.sqrt(size), n)
    step = max(1, _CHUNK // size)
    parts = [values[rng.integers(0, size, (min(step, n - at), size))].mean(axis=1) for at in range(0, n, step)]
    return np.concatenate(parts)


def lower_bound(mean: Floats, variance: Floats, n: int) -> Floats:
    """Return the one-sided 95 % lower bound of means of `n` rows (normal limit): mean - 1.645 * sqrt(variance / n)."""
    bound: Floats = mean - Z95_ONE_SIDED * np.sqrt(np.maximum(variance, 0.0) / n)
    return bound
