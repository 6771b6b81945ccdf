"""What was known of a segment before a row came: means over strictly earlier rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rheostat.lab.metrics import Floats


def earlier_mean(
    keys: Sequence[Any] | npt.NDArray[Any], values: npt.ArrayLike, when: npt.ArrayLike, prior: float, strength: float = 10.0
) -> Floats:
    """Return, per row, the mean of `values` over the rows of the same key that are strictly earlier, drawn to `prior`.

    (prior * strength + sum of earlier values) / (strength + their number). A row's own value never counts, and neither do
    later ones. A mean over all *other* rows of a key would hand the row its own label: among rows of one key it is lower
    exactly where the own value is higher.

    Args:
        keys: the segment of each row, such as its user.
        values: what is averaged, such as a model's loss; NaN (a row without a label) counts as not seen.
        when: the order of the rows in time; equal times do not see each other.
        prior: what is expected of a key never seen.
        strength: the number of rows the prior is worth, more than 0.

    Raises:
        ValueError: the rows do not match, or `strength` is not above 0.
    """
    codes = np.unique(np.asarray(keys), return_inverse=True)[1].reshape(-1)
    known, times = np.asarray(values, dtype=np.float64), np.asarray(when)
    if not len(codes) == len(known) == len(times):
        raise ValueError(f"one value and one time per key: {len(codes)} keys, {len(known)} values, {len(times)} times")
    if not strength > 0.0:
        raise ValueError(f"`strength` must be above 0, got {strength}")
    order = np.lexsort((times, codes))
    code, time, value = codes[order], times[order], known[order]
    seen = np.isfinite(value)
    sums = np.concatenate([[0.0], np.cumsum(np.where(seen, value, 0.0))])
    counts = np.concatenate([[0], np.cumsum(seen)])
    at = np.arange(len(code))
    fresh_key = np.concatenate([[True], code[1:] != code[:-1]])[: len(code)]
    fresh_time = fresh_key | np.concatenate([[True], time[1:] != time[:-1]])[: len(code)]
    first = np.maximum.accumulate(np.where(fresh_key, at, 0))
    group = np.maximum.accumulate(np.where(fresh_time, at, 0))
    means = np.empty(len(code))
    means[order] = (prior * strength + sums[group] - sums[first]) / (strength + counts[group] - counts[first])
    return means
