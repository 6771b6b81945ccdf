"""Means resampled together: several columns, in every draw with the same rows, or with the same users (clusters)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import Ints

_CLUSTERS: Final = 20_000  # beyond this many clusters the normal limit is used, as for single means
_CELLS: Final = 4_000_000  # counts drawn at a time


class Sample(NamedTuple):
    """One column to average: a value per unit, and the cluster (0, 1, ...) that each unit is drawn with."""

    values: Floats
    cluster: Ints


def joint_draws(samples: Sequence[Sample], clusters: int, draws: int, seed: int) -> Floats:
    """Return draws x samples means; in every draw all samples are resampled with the same clusters.

    A mean is sum of values over number of units, both of the clusters drawn. Up to 20,000 clusters are drawn with
    replacement; beyond that the means are drawn from their joint normal limit (linearised ratio, covariance over clusters),
    which keeps time and memory in bounds at millions of rows. Source: Davison and Hinkley, Bootstrap Methods (1997),
    section 3.8; Cameron, Gelbach and Miller (2008) for clusters.

    Args:
        clusters: how many there are; every code in the samples is below it.
        draws: number of draws.
        seed: the same seed gives the same draws.

    Raises:
        ValueError: fewer than two clusters, or a sample without a unit.
    """
    if clusters < 2:
        raise ValueError(f"an interval needs at least two independent units (rows or clusters), got {clusters}")
    if any(not len(sample.values) for sample in samples):
        raise ValueError("a sample without any unit has no mean")
    rng = np.random.default_rng(seed)
    sums = np.stack([np.bincount(one.cluster, one.values, clusters) for one in samples], axis=1)
    units = np.stack([np.bincount(one.cluster, minlength=clusters) for one in samples], axis=1).astype(np.float64)
    means = sums.sum(axis=0) / units.sum(axis=0)
    if clusters > _CLUSTERS:
        spread = (sums - means * units) / units.sum(axis=0)
        drawn: Floats = rng.multivariate_normal(means, spread.T @ spread, draws, method="eigh")
        return drawn
    step = max(1, _CELLS // clusters)
    parts = []
    for start in range(0, draws, step):
        count = min(step, draws - start)
        picked = rng.integers(0, clusters, (count, clusters)) + np.arange(count)[:, None] * clusters
        times = np.bincount(picked.reshape(-1), minlength=count * clusters).reshape(count, clusters).astype(np.float64)
        with np.errstate(invalid="ignore"):
            parts.append((times @ sums) / (times @ units))
    found = np.concatenate(parts)
    return np.where(np.isnan(found), means, found)  # a draw without any unit of a sample says nothing about it
