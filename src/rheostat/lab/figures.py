"""What a policy achieves on one set of rows, beside what it must be compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from rheostat.lab.bootstrap import Difference, Interval, bootstrap, paired_bootstrap
from rheostat.lab.coverage import Covered, coverage
from rheostat.lab.metrics import oracle
from rheostat.lab.outcomes import Floats, OutcomesTable
from rheostat.lab.replay import ReplayResult, replay
from rheostat.policies import Policy, models_of
from rheostat.resilience.ladder import FallbackSettings
from rheostat.resilience.spend import Spend
from rheostat.signals.base import AnswerScorer, Scorer


class Wait(NamedTuple):
    """Latency over rows, in seconds."""

    mean: float
    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, seconds: Floats) -> Wait:
        """Sum up one number per row."""
        p50, p95, p99 = np.quantile(seconds, (0.5, 0.95, 0.99), method="higher").tolist()
        return cls(float(seconds.mean()), p50, p95, p99)


class Alone(Struct, frozen=True):
    """One model answering everything, on the same rows as the policy beside it."""

    model: str
    quality: Interval
    cost: float
    latency_s: Wait


class Figures(Struct, frozen=True, kw_only=True):
    """One policy on one set of rows, with its rivals on exactly the same rows.

    Only rows count on which the right label is known and every model has a prediction; `left_out` says how many others there
    were and why, `unanswered` how many of the rest ended in an error, `reviewed` how many were left to a person, which are
    neither right nor wrong; `coverage` says how often the answers that stand are wrong, by the floor of the review. `share`
    is the share of requests that called `last`. `random` is the accuracy of sending the same share to `last` blindly;
    `oracle` that of always knowing who is right (lucky guesses included). `extreme` says so when the policy called `last`
    for every row or for none.
    """

    split: str
    n: int
    left_out: Mapping[str, int]
    unanswered: int
    first: str
    last: str
    quality: Interval
    share: Interval
    cost: Interval
    latency_s: Wait
    alone: tuple[Alone, ...]
    random: float
    oracle: float
    oracle_cost: float
    vs_each: tuple[tuple[str, Difference], ...]
    vs_random: Difference
    last_vs_first: Difference
    extreme: str = ""
    reviewed: int = 0
    coverage: tuple[Covered, ...] = ()

    @property
    def vs_first(self) -> Difference:
        """The policy against the first (cheapest) model alone."""
        return self.vs_each[0][1]

    @property
    def vs_last(self) -> Difference:
        """The policy against the last (dearest) model alone."""
        return self.vs_each[-1][1]

    def single(self, model: str) -> Alone:
        """Return the figures of one model on the same rows."""
        return next(alone for alone in self.alone if alone.model == model)


def figures(
    policy: Policy,
    table: OutcomesTable,
    models: Sequence[str],
    *,
    split: str = "",
    draws: int = 2000,
    seed: int = 0,
    fallback: FallbackSettings | None = None,
    scorers: Sequence[Scorer | AnswerScorer] = (),
    default: str | None = None,
    spends: Sequence[Spend] = (),
    max_cost: float = float("inf"),
) -> tuple[Figures, ReplayResult]:
    """Replay `policy` and compare it with each model alone, the oracle and blind chance.

    Args:
        models: cheapest first; the first and the last are the ends it is compared with. Models that the policy names
            besides are needed too.
        split: what to call these rows.
        draws, seed: of the bootstrap.
        fallback, scorers, default, spends, max_cost: as for `replay`.

    Raises:
        ValueError: no row can be used.
    """
    needed = tuple(dict.fromkeys([*models, *models_of(policy)]))
    rows = np.flatnonzero(table.complete(needed))
    left_out = table.left_out(needed)
    if not len(rows):
        raise ValueError(f"{split or 'the table'} has no row that can be used: {left_out or 'it is empty'}")
    played = replay(
        policy, table.subset(rows), fallback=fallback, scorers=scorers, default=default, spends=spends, max_cost=max_cost
    )
    judged = np.flatnonzero(played.judged)
    if not len(judged):
        raise ValueError(f"the policy answered none of {len(rows)} rows of {split or 'the table'}: {played.counts()}")
    reviewed = int(played.review.sum())
    part = played.table.subset(judged)
    first, last = models[0], models[-1]
    right = {name: part.correct(name).astype(np.float64) for name in models}
    routed = played.correct[judged].astype(np.float64)
    called = played.called[judged, part.models.index(last)].astype(np.float64)
    blind = (1.0 - called.mean()) * right[first] + called.mean() * right[last]
    best = oracle([right[name] for name in models], [part.model(name).cost for name in models])
    chosen = np.stack([right[name] for name in models])[best, np.arange(len(part))]
    spent = np.stack([part.model(name).cost for name in models])[best, np.arange(len(part))]
    made = Figures(
        split=split,
        n=len(judged),
        left_out=left_out,
        unanswered=len(rows) - len(judged) - reviewed,
        first=first,
        last=last,
        quality=bootstrap(routed, draws, seed),
        share=bootstrap(called, draws, seed),
        cost=bootstrap(played.cost[judged], draws, seed),
        latency_s=Wait.of(played.latency_s[judged]),
        alone=tuple(
            Alone(name, bootstrap(right[name], draws, seed), float(part.model(name).cost.mean()), _wait(part, name))
            for name in models
        ),
        random=float(blind.mean()),
        oracle=float(chosen.mean()),
        oracle_cost=float(spent.mean()),
        vs_each=tuple((name, paired_bootstrap(routed, right[name], draws, seed)) for name in models),
        vs_random=paired_bootstrap(routed, blind, draws, seed),
        last_vs_first=paired_bootstrap(right[last], right[first], draws, seed),
        extreme={0.0: "no", 1.0: "every"}.get(float(called.mean()), ""),
        reviewed=reviewed,
        coverage=coverage(played) if reviewed else (),
    )
    return made, played


def _wait(part: OutcomesTable, name: str) -> Wait:
    return Wait.of(part.model(name).latency_s)
