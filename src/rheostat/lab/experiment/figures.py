"""What an experiment found, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from rheostat.lab.bootstrap import Interval
from rheostat.lab.experiment.served import Served
from rheostat.lab.figures import Wait

LOW: Final = 0.05
HIGH: Final = 0.95
BINS: Final = 20
COLLAPSED: Final = 0.99


class Comparison(Struct, frozen=True, kw_only=True):
    """A policy against the baseline on the decisive metric, on the same rows.

    `mean`, `low`, `high`: policy minus baseline with its 95 % interval. `p` is two-sided, by paired bootstrap; `p_holm`
    the same after Holm's correction for the number of policies. `detectable` is the least true difference that this data
    would show in 80 % of repetitions at the 5 % level, corrected for the number of policies (Bonferroni). `said` is
    better, worse, or no difference shown: by `p_holm` < 0.05, and with the metric's direction in mind.
    """

    mean: float
    low: float
    high: float
    p: float
    p_holm: float
    detectable: float
    said: str


class GroupFigure(Struct, frozen=True, kw_only=True):
    """One group: independent units behind it, its metric with a 95 % interval, or None and why."""

    group: str
    units: int
    value: Interval | None
    why: str = ""


class Gap(Struct, frozen=True, kw_only=True):
    """The largest difference between two groups; the interval holds for all pairs of groups at once (Bonferroni)."""

    best: str
    worst: str
    mean: float
    low: float
    high: float


class Fairness(Struct, frozen=True, kw_only=True):
    """One policy's metric by the groups of one field; `gap` is None with fewer than two groups large enough.

    `wider` is by how much the difference between the baseline's best and worst group is larger under this policy
    (negative: smaller), paired; None for the baseline itself.
    """

    field: str
    groups: tuple[GroupFigure, ...]
    gap: Gap | None
    wider: Interval | None = None


class Weighing(Struct, frozen=True, kw_only=True):
    """How much one model counted: mean weight, share of rows by weight (20 bins over [0, 1]) and at the two ends."""

    model: str
    mean: float
    histogram: tuple[float, ...]
    low: float  # share of rows with a weight under 0.05
    high: float  # share of rows with a weight above 0.95


class Arm(Struct, frozen=True, kw_only=True):
    """One policy with its figures. Latency in seconds, cost per request in the pool's unit.

    `metrics` are by name, the decisive one first. `calls` is the share of requests that called each model. `alone` is the
    share of requests on which one model had more than 0.95 of the weight. `collapsed` names the model that had it on 99 %
    of the requests or more although the policy weighs several; empty otherwise. `unanswered` rows were left out for all.
    """

    name: str
    form: str
    metrics: Mapping[str, Interval]
    versus: Comparison | None
    latency_s: Wait
    cost: Interval
    calls: Mapping[str, float]
    weights: tuple[Weighing, ...]
    alone: float
    collapsed: str
    fairness: tuple[Fairness, ...]
    unanswered: int
    notes: tuple[str, ...] = ()

    @property
    def metric(self) -> Interval:
        """The decisive metric."""
        return next(iter(self.metrics.values()))


class Experiment(Struct, frozen=True, kw_only=True):
    """Policies on the same rows. `headline` and `reasons` are the verdict in words, `caution` what to know before believing.

    `units` are the independent ones: rows, or the values of the `cluster` field.
    """

    metric: str
    lower_is_better: bool
    percent: tuple[str, ...]  # metrics that are written as percentages
    baseline: str
    split: str
    rows: int
    units: int
    cluster: str
    left_out: Mapping[str, int]
    data_hash: str
    models: tuple[str, ...]
    arms: tuple[Arm, ...]
    headline: str
    reasons: tuple[str, ...]
    caution: tuple[str, ...]

    def arm(self, name: str) -> Arm:
        """Return one policy's figures.

        Raises:
            KeyError: no such policy.
        """
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(f"no policy {name!r} in this experiment; it has: {', '.join(arm.name for arm in self.arms)}")


def weighings(served: Served) -> tuple[Weighing, ...]:
    """Sum up how much each model counted, for the models that counted at all."""
    found = []
    for at, model in enumerate(served.table.models):
        weight = served.weights[:, at]
        if not weight.any() and not served.called[:, at].any():
            continue
        counts, _ = np.histogram(weight, BINS, (0.0, 1.0))
        found.append(
            Weighing(
                model=model,
                mean=float(weight.mean(dtype=np.float64)),
                histogram=tuple((counts / len(weight)).tolist()),
                low=float((weight < LOW).mean()),
                high=float((weight > HIGH).mean()),
            )
        )
    return tuple(found)


def collapse(served: Served, named: int) -> str:
    """Return the model that decides (nearly) every row alone although the policy names several; empty when none does."""
    if named < 2 or not len(served.label):
        return ""
    shares = (served.weights > HIGH).mean(axis=0)
    at = int(shares.argmax())
    return served.table.models[at] if shares[at] >= COLLAPSED else ""
