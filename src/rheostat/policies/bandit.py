"""Shares that follow what each model has earned: Thompson sampling, LinUCB and epsilon-greedy, as pure decisions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import isfinite
from typing import Final, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rheostat.chance import chance
from rheostat.policies.base import History, require, settle, unit
from rheostat.policies.posterior import Floats, Posterior, best_chances, posterior
from rheostat.types import Context, Decision

ALL: Final = ""
"""No segment: all traffic together."""
MOST_SIGNALS: Final = 64
_HALVINGS: Final = 20
_SURE: Final = 4.0


class Seen(Struct, frozen=True, forbid_unknown_fields=True):
    """What one model earned in one segment: `n` judged requests (a fraction for pseudo-counts), their mean reward, and the
    variance around it."""

    n: float
    mean: float
    var: float = 0.0

    def __post_init__(self) -> None:
        require(isfinite(self.n) and self.n >= 0.0, "`n` must be 0 or more")
        require(isfinite(self.mean), "`mean` must be a number")
        require(isfinite(self.var) and self.var >= 0.0, "`var` must be 0 or more")


class Linear(Struct, frozen=True, forbid_unknown_fields=True):
    """What LinUCB keeps of one model: `precision` = identity + sum of x x', `moment` = sum of x times reward.

    x is 1 and then the signals, in the order of `features`.
    """

    precision: tuple[tuple[float, ...], ...]
    moment: tuple[float, ...]


class Bandit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Give each request to one of `arms` (models), by what they have earned so far.

    The policy itself never changes: `seen` and `segments` (or `linear`) are a snapshot of what is known. `rheostat train
    bandit` makes it from an outcomes table, brings it up to date from records and feedback, and the gateway takes the new
    file up. The choice is a draw, by a hash of the request, from chances worked out from the snapshot; the chance of what
    was chosen is recorded as its propensity, exactly.

    * `thompson`: a model's chance is the probability that it is the best, given what was seen. Thompson (1933).
    * `epsilon`: the best mean so far; with chance `epsilon` any of them.
    * `linucb`: the best upper bound of a linear model of the signals in `features`, `width` standard errors up; with chance
      `epsilon` any of them. Li et al. (2010).

    Args:
        arms: two or more models.
        segment: a field of meta, such as task: every value learns on its own, leaning on all traffic while it knows little.
        rewards: `unit` for rewards in [0, 1] (Beta), `any` for others (Gaussian).
        seen: by model, what it earned over all traffic.
        segments: the same by value of the field `segment`.
        prior: how many requests the lean on all traffic counts for.
        width: scales the spread (thompson) or the bound (linucb); below 1 explores less.
        floor: least chance of every arm, so that the records can judge other policies later; the guard comes first.
        guard: how far, relative to the best single model, the reward of the draw may lie under it; where it surely lies
            further down, the best single model takes a larger share. 1 switches it off. It needs rewards above 0.
    """

    arms: tuple[str, ...]
    algorithm: Literal["thompson", "epsilon", "linucb"] = "thompson"
    segment: str | None = None
    rewards: Literal["unit", "any"] = "unit"
    seen: Mapping[str, Seen] = {}
    segments: Mapping[str, Mapping[str, Seen]] = {}
    features: tuple[str, ...] = ()
    linear: Mapping[str, Linear] = {}
    epsilon: float = 0.05
    prior: float = 20.0
    width: float = 1.0
    floor: float = 0.0
    guard: float = 0.02
    name: str = "bandit"
    until: float = 0.0
    """Judgements up to this time, in seconds since 1970, are in the snapshot."""

    def __post_init__(self) -> None:
        require(len(self.arms) >= 2, "`arms` needs at least two models")
        require(len(set(self.arms)) == len(self.arms), "`arms` names a model twice")
        unit((self.epsilon, self.guard), "epsilon` and `guard")
        require(0.0 <= self.floor * len(self.arms) < 1.0, "`floor` times the number of arms must stay below 1")
        require(self.prior > 0.0 and isfinite(self.prior), "`prior` must be above 0")
        require(self.width > 0.0 and isfinite(self.width), "`width` must be above 0")
        known = ("thompson", "epsilon", "linucb")
        require(self.algorithm in known, f"`algorithm` is one of {', '.join(known)}, got {self.algorithm!r}")
        require(self.algorithm != "linucb" or bool(self.features), "`linucb` needs `features`, the signals it reads")
        require(len(self.features) <= MOST_SIGNALS, f"at most {MOST_SIGNALS} `features`")
        size = len(self.features) + 1
        for arm, kept in self.linear.items():
            square = len(kept.precision) == size and all(len(row) == size for row in kept.precision)
            require(square and len(kept.moment) == size, f"`linear.{arm}` must have the size of `features` and 1: {size}")

    def models(self) -> tuple[str, ...]:
        return self.arms

    def signals(self) -> tuple[str, ...]:
        return self.features if self.algorithm == "linucb" else ()

    def decide(self, ctx: Context, history: History) -> Decision:
        segment = str(ctx.request.meta.get(self.segment, ALL)) if self.segment is not None else ALL
        shares = self.shares(segment, [ctx.signals[name] for name in self.signals()])
        chosen = drawn(shares, chance(self.name, ctx.request.id))
        share = float(shares[chosen])
        where = f" for {self.segment} {segment}" if segment else ""
        return settle(self.arms[chosen], history, f"{self.algorithm}: chance {share:.4f}{where}", self.name, share)

    def shares(self, segment: str = ALL, values: list[float] | None = None) -> Floats:
        """Return every arm's chance, in the order of `arms`; `values` are the signals of `features` (linucb alone)."""
        if self.algorithm == "linucb":
            require(len(values or ()) == len(self.features), f"{len(self.features)} signals are needed")
            x = np.array([1.0, *(values or ())])
            mean = np.array([weights @ x for weights, _ in self._solved])
            error = np.sqrt([max(float(x @ inverse @ x), 0.0) for _, inverse in self._solved])
            return self._safe(_greedy(mean + self.width * error, self.epsilon), Posterior(mean, error, False))
        kept: Floats | None = self._shares.get(segment)
        if kept is None:
            known = segment if segment in self.segments else ALL
            kept = self._shares.get(known)
            if kept is None:
                kept = self._shares[known] = self._worked_out(known)
        return kept

    @cached_property
    def _shares(self) -> dict[str, Floats]:
        return {}

    @cached_property
    def _solved(self) -> list[tuple[Floats, NDArray[np.float64]]]:
        """Weights and covariance per arm; an arm without a snapshot knows nothing."""
        size = len(self.features) + 1
        found = []
        for arm in self.arms:
            kept = self.linear.get(arm)
            precision = np.eye(size) if kept is None else np.array(kept.precision)
            inverse = np.linalg.inv(precision)
            found.append((inverse @ (np.zeros(size) if kept is None else np.array(kept.moment)), inverse))
        return found

    def _worked_out(self, segment: str) -> Floats:
        believed = self.believed(segment)
        if self.algorithm == "epsilon":
            return self._safe(_greedy(believed.mean, self.epsilon), believed)
        return self._safe(best_chances(believed, self.width), believed)

    def believed(self, segment: str = ALL) -> Posterior:
        """Return what is believed of every arm's mean reward in a segment."""
        return posterior(self._counts(ALL), self._counts(segment) if segment else None, self.prior, self.rewards)

    def _counts(self, segment: str) -> Floats:
        rows = self.segments.get(segment, {}) if segment else self.seen
        none = Seen(0.0, 0.0)
        return np.array([[one.n, one.mean, one.var] for one in (rows.get(arm, none) for arm in self.arms)])

    def _safe(self, shares: Floats, believed: Posterior) -> Floats:
        return guarded(floored(shares, self.floor), believed, self._best, self.guard)

    @cached_property
    def _best(self) -> int:
        """The best single model over all traffic; the first of several."""
        return int(posterior(self._counts(ALL), None, self.prior, self.rewards).mean.argmax())


def floored(shares: Floats, floor: float) -> Floats:
    """Give every arm at least `floor`, the rest in proportion."""
    return floor + (1.0 - floor * len(shares)) * shares


def guarded(shares: Floats, believed: Posterior, best: int, guard: float) -> Floats:
    """Move just so much of the chances to the arm `best` that the draw is not surely worse than (1 - guard) of that arm.

    Surely: the believed shortfall is over four standard deviations of itself (the arms' errors taken as independent; four,
    because it is looked at thousands of times). Without that allowance an early favourite would keep the others from being
    tried. Nothing is moved where `best` earns 0 or less.
    """
    own = np.zeros(len(shares))
    own[best] = 1.0

    def surely_worse(moved: float) -> bool:
        apart = (1.0 - moved) * shares + (moved - (1.0 - guard)) * own
        return float(apart @ believed.mean) + _SURE * float(np.sqrt((apart**2) @ (believed.sd**2))) < 0.0

    if guard >= 1.0 or believed.mean[best] <= 0.0 or not surely_worse(0.0):
        return shares
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if surely_worse(middle) else (low, middle)
    found: Floats = (1.0 - high) * shares + high * own
    return found


def drawn(shares: Floats, point: float) -> int:
    """Return the arm in whose stretch of [0, 1) `point` lies; never one of chance 0."""
    edge = 0.0
    last = int(shares.argmax())
    for arm, share in enumerate(shares.tolist()):
        if share > 0.0:
            edge += share
            last = arm
            if point < edge:
                return arm
    return last


def _greedy(value: Floats, epsilon: float) -> Floats:
    """All but `epsilon` to the best, ties shared; epsilon to all alike."""
    ties = value == value.max()
    found: Floats = (1.0 - epsilon) * ties / ties.sum() + epsilon / len(value)
    return found
