"""What off-policy evaluation starts from: logged choices with their chances, and the chances of the policy to be judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rheostat.errors import RheostatError
from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import Bools, Ints

SURE: Final = 1.0 - 1e-9
"""A logged propensity from here on means that the choice was certain."""


class OpeRefused(RheostatError):
    """The log cannot answer the question; the message says why and what to log instead."""

    type = "ope_refused"


@dataclass(frozen=True)
class Log:
    """One row per logged choice.

    Args:
        action: codes into `actions`, what was chosen.
        reward: what came of it, in any unit.
        propensity: the chance, in (0, 1], with which the logging policy made this choice.
        target: rows x actions, the chances of the policy to be judged; every row sums to 1.
        actions: the names of the actions.
        features: rows x features known before the choice, for the regression; None when there are none.
        cluster: rows of one cluster (session, user) are resampled and cross-fitted together; None: every row on its own.
        left_out: reason -> rows that could not be used.

    Raises:
        ValueError: lengths differ, a number is NaN, a propensity is outside (0, 1], a target row does not sum to 1; the
            message names the field.
    """

    action: Ints
    reward: Floats
    propensity: Floats
    target: npt.NDArray[np.floating[Any]]
    actions: tuple[str, ...]
    features: npt.NDArray[np.floating[Any]] | None = None
    cluster: Ints | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n, k = len(self.action), len(self.actions)
        if not n:
            raise ValueError("the log is empty: `action` has no rows")
        for name in ("reward", "propensity", "target", "features", "cluster"):
            values = getattr(self, name)
            if values is None:
                continue
            if len(values) != n:
                raise ValueError(f"`{name}` has {len(values)} rows, `action` has {n}")
            bad = int(n - np.isfinite(values).reshape(n, -1).all(axis=1).sum())
            if bad:
                raise ValueError(f"`{name}`: {bad} rows are NaN or infinite; leave those rows out")
        if self.action.min() < 0 or self.action.max() >= k:
            raise ValueError(f"`action` holds codes outside 0..{k - 1}, the {k} actions")
        outside = (self.propensity <= 0.0) | (self.propensity > 1.0)
        if outside.any():
            worst = float(self.propensity[outside][0])
            raise ValueError(
                f"`propensity` must lie in (0, 1]: {int(outside.sum())} rows do not, such as {worst:g}; "
                "a choice that was made cannot have had chance 0"
            )
        if self.target.shape != (n, k):
            raise ValueError(f"`target` has shape {self.target.shape}, expected ({n}, {k})")
        if self.target.min() < 0.0 or np.abs(self.target.sum(axis=1) - 1.0).max() > 1e-3:
            raise ValueError("`target`: every row needs chances of 0 or more that sum to 1")

    def __len__(self) -> int:
        return len(self.action)

    @property
    def chosen(self) -> Floats:
        """The target's chance of the logged action, a value per row."""
        picked: Floats = self.target[np.arange(len(self)), self.action].astype(np.float64)
        return picked

    @property
    def weights(self) -> Floats:
        """Importance weights: the target's chance of the logged action over the logged one."""
        ratio: Floats = self.chosen / self.propensity
        return ratio

    @property
    def clusters(self) -> Ints:
        """Cluster codes 0, 1, ...: the rows themselves when no clusters were given."""
        if self.cluster is None:
            return np.arange(len(self), dtype=np.int32)
        return np.unique(self.cluster, return_inverse=True)[1].astype(np.int32)


@dataclass(frozen=True)
class Overlap:
    """How well the log covers the target.

    Args:
        n: rows.
        ess: effective sample size (sum w)^2 / sum w^2 (Kish 1965): as many rows of the target's own traffic say as much.
        max_weight: the largest importance weight.
        mean_weight: the mean weight; 1 up to chance when the propensities are right and every choice is covered.
        mean_weight_se: its standard error.
        unseen: action -> the share of the target's choices that fall on it, for actions that were never logged.
        forced: share of the target's choices that differ from a logged choice that was certain.
    """

    n: int
    ess: float
    max_weight: float
    mean_weight: float
    mean_weight_se: float
    unseen: Mapping[str, float]
    forced: float

    @property
    def misfit(self) -> bool:
        """True when the mean weight is off 1 by more than chance (4 standard errors) and by more than 2 %."""
        return abs(self.mean_weight - 1.0) > max(4.0 * self.mean_weight_se, 0.02)


def overlap(log: Log) -> Overlap:
    """Measure how well the log covers the target policy."""
    weights = log.weights
    square = float((weights**2).sum())
    seen: Bools = np.bincount(log.action, minlength=len(log.actions)) > 0
    shares = log.target.mean(axis=0, dtype=np.float64)
    unseen = {log.actions[code]: float(shares[code]) for code in np.flatnonzero(~seen) if shares[code] > 0.0}
    sure = log.propensity >= SURE
    return Overlap(
        n=len(log),
        ess=float(weights.sum()) ** 2 / square if square else 0.0,
        max_weight=float(weights.max()),
        mean_weight=float(weights.mean()),
        mean_weight_se=float(weights.std() / np.sqrt(len(log))),
        unseen=unseen,
        forced=float(np.where(sure, 1.0 - log.chosen, 0.0).mean()),
    )


def check_overlap(log: Log, least_ess: float = 50.0, most_uncovered: float = 0.01) -> Overlap:
    """Return the overlap, or refuse when no estimate from this log can be trusted.

    Args:
        least_ess: the effective sample size that is needed.
        most_uncovered: share of the target's choices that the log may fail to cover.

    Raises:
        OpeRefused: every choice was certain, an action of the target was never logged, too few rows count, or all rewards
            are the same.
    """
    found = overlap(log)
    if log.reward.min() == log.reward.max():
        raise OpeRefused(
            f"every reward is {float(log.reward[0]):g}: no policy can look better or worse than another; check what is sent "
            "as feedback"
        )
    if (log.propensity >= SURE).all() and (found.forced > most_uncovered or found.unseen):
        raise OpeRefused(
            "every logged choice was certain (propensity 1), so the log never tried what the new policy would do. Put a "
            "`split` or a `bandit` in front that gives each model a share of the traffic, 5 % say, and come back with its "
            "records; with labels at hand, `rheostat replay` over an outcomes table answers the question without traffic"
        )
    uncovered = sum(found.unseen.values())
    if uncovered > most_uncovered:
        worst = max(found.unseen, key=lambda name: found.unseen[name])
        raise OpeRefused(
            f"the policy would choose {worst!r} for {found.unseen[worst]:.1%} of the requests, and the log never chose it: "
            "give it a small share of the traffic first (`split`, or a `bandit` with a floor)"
        )
    if found.forced > most_uncovered:
        raise OpeRefused(
            f"{found.forced:.1%} of the policy's choices fall on requests where the log was certain of another choice (a "
            "rule, say): those requests need a share of chance too, or leave them out of the question"
        )
    if found.ess < least_ess:
        need = int(np.ceil(len(log) * least_ess / max(found.ess, 1e-9))) if found.ess else 0
        more = f"about {need:,} rows like these" if 0 < need < 10**9 else "records in which both agree at least at times"
        raise OpeRefused(
            f"too little overlap: {len(log):,} rows count like {found.ess:.1f} of the policy's own (largest weight "
            f"{found.max_weight:.3g}), {least_ess:g} are needed; collect {more}, or judge a policy nearer to what was logged"
        )
    return found
