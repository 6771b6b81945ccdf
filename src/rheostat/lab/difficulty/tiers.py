"""Cuts between tiers, from the traffic's quantiles or from outcomes, and whether the tiers are what outcomes say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rheostat.lab.bootstrap import Interval, bootstrap
from rheostat.lab.metrics import Floats, floats

_LEAST = 0.05  # share of rows a tier must hold


class Agreement(Struct, frozen=True, kw_only=True):
    """Two tiers (the small model will be right, will err) against what happened.

    Args:
        share: rows on which both are the same.
        constant: what always saying the commoner tier reaches.
        kappa: Cohen's kappa, 0 for chance agreement.
    """

    share: Interval
    constant: float
    kappa: float


def quantile_cuts(scores: npt.ArrayLike, shares: Sequence[float]) -> tuple[float, ...]:
    """Return cuts that leave the given shares of the rows in the tiers, easiest first.

    Args:
        shares: 2 to 5 positive numbers that sum to 1.

    Raises:
        ValueError: the shares are others, or so many scores are equal that two cuts fall together.
    """
    said = floats(scores, "scores")
    if not 2 <= len(shares) <= 5 or min(shares) <= 0.0 or abs(sum(shares) - 1.0) > 1e-6:
        raise ValueError(f"`shares` are 2 to 5 positive numbers that sum to 1, got {list(shares)}")
    return _rising([float(cut) for cut in np.quantile(said, np.cumsum(shares)[:-1])])


def outcome_cuts(scores: npt.ArrayLike, error: npt.ArrayLike, tiers: int = 3) -> tuple[float, ...]:
    """Return the cuts that part the rows into tiers whose error rates differ most (least squares; each tier at least 5 %).

    Source: a regression tree in one variable (Breiman et al. 1984).

    Raises:
        ValueError: fewer tiers than asked for can be told apart.
    """
    from sklearn.tree import DecisionTreeRegressor

    said, wrong = floats(scores, "scores"), floats(error, "error")
    if not 2 <= tiers <= 5:
        raise ValueError(f"`tiers` is 2 to 5, got {tiers}")
    tree = DecisionTreeRegressor(max_leaf_nodes=tiers, min_samples_leaf=max(1, int(_LEAST * len(said))), random_state=0)
    grown = tree.fit(said[:, None], wrong).tree_
    found = sorted(float(cut) for cut, left in zip(grown.threshold, grown.children_left, strict=True) if left >= 0)
    if len(found) < tiers - 1:
        raise ValueError(f"outcomes tell only {len(found) + 1} tiers apart, {tiers} were asked for")
    return _rising(found)


def tier_errors(scores: npt.ArrayLike, error: npt.ArrayLike, cuts: Sequence[float]) -> tuple[Interval | None, ...]:
    """Return the error rate of each tier with its 95 % interval, easiest first; None for a tier without a row."""
    tier = np.searchsorted(np.asarray(cuts), floats(scores, "scores"), side="right")
    wrong = floats(error, "error")
    return tuple(bootstrap(wrong[tier == each]) if (tier == each).any() else None for each in range(len(cuts) + 1))


def agreement(scores: npt.ArrayLike, error: npt.ArrayLike, cut: float) -> Agreement:
    """Hold the tiers below and from `cut` on against the outcomes themselves.

    Raises:
        ValueError: NaN, or no row.
    """
    said: Any = floats(scores, "scores") >= cut
    wrong: Any = floats(error, "error") > 0.5
    same: Floats = (said == wrong).astype(np.float64)
    by_chance = float(said.mean() * wrong.mean() + (1 - said.mean()) * (1 - wrong.mean()))
    kappa = (same.mean() - by_chance) / (1 - by_chance) if by_chance < 1.0 else 0.0
    return Agreement(share=bootstrap(same), constant=float(max(wrong.mean(), 1 - wrong.mean())), kappa=float(kappa))


def agreement_cut(scores: npt.ArrayLike, error: npt.ArrayLike) -> float:
    """Return the cut at which most rows stand in the tier that outcomes put them in; ties to the highest."""
    said, wrong = floats(scores, "scores"), floats(error, "error") > 0.5
    order = np.argsort(said, kind="stable")
    right_below = np.concatenate([[0], np.cumsum(~wrong[order])])
    right_above = wrong.sum() - np.concatenate([[0], np.cumsum(wrong[order])])
    ends = np.concatenate([said[order], [np.nextafter(said.max(), np.inf)]])
    starts = np.concatenate([[True], np.diff(ends) > 0])
    total = np.where(starts, right_below + right_above, -1)
    return float(ends[len(total) - 1 - int(np.argmax(total[::-1]))])


def tiers_form(signal: str, cuts: Sequence[float], models: Sequence[str], hysteresis: float = 0.0) -> str:
    """Return the `tiers` policy as YAML for the config; with fewer models than tiers the first one takes more."""
    spare = max(0, len(cuts) + 1 - len(models))
    use = [models[max(0, place - spare)] for place in range(len(cuts) + 1)]
    held = f", hysteresis: {hysteresis:g}" if hysteresis else ""
    shown = ", ".join(f"{cut:.4f}" for cut in cuts)
    return f"policy:\n  tiers: {{signal: {signal}, cuts: [{shown}], use: [{', '.join(use)}]{held}}}"


def _rising(cuts: list[float]) -> tuple[float, ...]:
    rounded = [round(cut, 6) for cut in cuts]
    if any(low >= high for low, high in pairwise(rounded)):
        raise ValueError(f"cuts fall together ({rounded}): too many equal scores for so many tiers")
    return tuple(rounded)
