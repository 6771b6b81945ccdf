"""Where a value stands among the values of training, or of the traffic as it drifts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

RATE: Final = 0.005
"""Share of the spread by which one value may move a quantile: the traffic of about the last thousand requests counts."""


class Quantiles:
    """Quantiles at even steps from 0 to 1, which follow the values if asked to.

    Each value moves quantile p by RATE times the spread times p up, or times 1 - p down (stochastic approximation of
    quantiles: Robbins and Monro 1951; Tierney 1983). Memory is that of the quantiles; the same values in the same order give
    the same positions.

    Args:
        levels: two or more rising numbers, the quantiles to start from.
        follow: move them with the values.
    """

    def __init__(self, levels: Sequence[float], follow: bool = False) -> None:
        import numpy as np

        if len(levels) < 2 or any(low > high for low, high in pairwise(levels)):
            raise ValueError("`quantiles` must be two or more rising numbers")
        self._levels = np.array(levels, dtype=np.float64)
        self._shares = np.linspace(0.0, 1.0, len(levels))
        self._step = RATE * max(float(levels[-1] - levels[0]), 1e-9) if follow else 0.0

    def place(self, value: float) -> float:
        """Return the share of values below `value`, 0 to 1 (the middle among equal ones); then let it count."""
        levels = self._levels
        low, high = int(levels.searchsorted(value, "left")), int(levels.searchsorted(value, "right"))
        last = len(levels) - 1
        if high > low:
            share = (low + high - 1) / 2 / last
        elif low in (0, last + 1):
            share = float(low > 0)
        else:
            share = (low - 1 + (value - levels[low - 1]) / (levels[low] - levels[low - 1])) / last
        if self._step:
            import numpy as np

            self._levels = np.maximum.accumulate(levels + self._step * (self._shares - (value < levels)))
        return float(share)
