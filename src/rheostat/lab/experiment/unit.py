"""What a metric is a mean of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rheostat.lab.metrics import Floats

Rows = npt.NDArray[np.int64]


class Units(NamedTuple):
    """The metric's units on some rows: their values, whose mean is the metric, and a row that stands for each."""

    values: Floats
    rows: Rows
