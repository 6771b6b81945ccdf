"""Coverage against error: how many answers stand, and how often they are wrong, by where the floor of a review lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from rheostat.lab.replay import ReplayResult

FLOORS: Final = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


class Covered(Struct, frozen=True):
    """With the floor `below`: the share of answers that stand, in [0, 1], the share of those that are wrong, and the share
    of the guesses left to a person that are wrong; NaN where there is none of a kind."""

    below: float
    coverage: float
    error: float
    left_error: float


def coverage(played: ReplayResult, floors: Sequence[float] = FLOORS) -> tuple[Covered, ...]:
    """Return coverage and error at each floor in [0, 1], over the rows with a guess and a known right label.

    An answer stands when its confidence is at or above the floor; a missing confidence never does, except at floor 0.
    """
    rows = np.flatnonzero((played.guess >= 0) & played.table.known)
    sure = np.nan_to_num(played.confidence[rows], nan=0.0)
    wrong = played.guess[rows] != played.table.truth[rows]
    found = []
    for below in floors:
        stands = sure >= below
        share = float(stands.mean()) if len(rows) else float("nan")
        found.append(Covered(below, share, _mean(wrong[stands]), _mean(wrong[~stands])))
    return tuple(found)


def _mean(values: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> float:
    return float(values.mean()) if len(values) else float("nan")
