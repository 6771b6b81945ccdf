"""Any policies on the same traffic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from rheostat.lab.bootstrap import Interval
from rheostat.lab.clustered import Sample, joint_draws
from rheostat.lab.experiment.compare import comparisons, intervals
from rheostat.lab.experiment.fairness import Ground, fairness_of_all
from rheostat.lab.experiment.figures import HIGH, Arm, Comparison, Experiment, Fairness, collapse, weighings
from rheostat.lab.experiment.metric import Accuracy, Metric
from rheostat.lab.experiment.ranking import Auc, TopK
from rheostat.lab.experiment.served import Served, Traffic
from rheostat.lab.experiment.words import caution, headline, reasons
from rheostat.lab.figures import Wait
from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import SPLITS, Ints, OutcomesTable
from rheostat.lab.policy_file import policy_form
from rheostat.lab.replay import replay
from rheostat.lab.segments import Segments, by_meta, coded, meta_values
from rheostat.policies import Policy, models_of
from rheostat.policies.reads import without_load
from rheostat.resilience.ladder import FallbackSettings
from rheostat.resilience.spend import Spend
from rheostat.signals.base import AnswerScorer, Scorer

Progress = Callable[[str], None]


class Contender(NamedTuple):
    """A policy to compare, with what it needs besides: the scorers of its signals, its route's ladder, budgets and limit."""

    policy: Policy
    scorers: tuple[Scorer | AnswerScorer, ...] = ()
    fallback: FallbackSettings | None = None
    spends: tuple[Spend, ...] = ()
    max_cost: float = float("inf")


def experiment(
    table: OutcomesTable,
    policies: Mapping[str, Contender],
    *,
    baseline: str = "",
    metrics: Sequence[Metric] = (),
    cluster: str = "",
    groups: Sequence[str] = (),
    split: str = "",
    draws: int = 2000,
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> Experiment:
    """Replay every policy over the same rows and compare each with the baseline.

    Rows count on which the right label is known, every model that any policy names has a prediction, and every policy
    answered by itself (not by review); the others are left out for all policies and counted.

    Args:
        table: fresh rows, on which nothing was chosen.
        policies: name -> contender, in the order of the report.
        baseline: the policy that the others are compared with; by default the first.
        metrics: the first decides, the others are shown; accuracy by default.
        cluster: the meta field (`meta.user`) whose rows are drawn together, because they are not independent; by default
            the field that a `TopK` metric ranks within, else every row for itself.
        groups: meta fields whose groups are compared for fairness.
        split: what to call these rows.
        draws, seed: of the bootstrap.
        progress: called with a line now and then.

    Raises:
        ValueError: fewer than two policies, an unknown baseline, no row is left, or the metric cannot be had from this
            table; the message says which and what to do.
    """
    if len(policies) < 2:
        raise ValueError(f"an experiment compares at least two policies, got {', '.join(policies) or 'none'}")
    base = baseline or next(iter(policies))
    if base not in policies:
        raise ValueError(f"no policy {base!r} to compare with; there are: {', '.join(policies)}")
    judged = tuple(metrics) or (Accuracy(),)
    if len({metric.name for metric in judged}) < len(judged):
        raise ValueError(f"every metric once: {', '.join(metric.name for metric in judged)}")
    within = cluster or next((metric.by for metric in judged if isinstance(metric, TopK)), "")
    run = _Run(table, policies, judged, within, draws, seed)
    run.serve(progress)
    progress("comparing")
    parts = [by_meta(run.traffic.table, field) for field in groups]
    arms = run.arms(base, parts)
    percent = tuple(metric.name for metric in judged if metric.percent)
    found = Experiment(
        metric=judged[0].name,
        lower_is_better=judged[0].lower_is_better,
        percent=percent,
        baseline=base,
        split=split,
        rows=len(run.traffic.table),
        units=run.clusters,
        cluster=within,
        left_out=run.left_out,
        data_hash=table.data_hash,
        models=table.models,
        arms=arms,
        headline="",
        reasons=(),
        caution=(),
    )
    seen = [SPLITS[code] for code in np.unique(run.traffic.table.split)]
    return _told(found, seen)


def _told(found: Experiment, splits: Sequence[str]) -> Experiment:
    return replace(found, headline=headline(found), reasons=reasons(found), caution=caution(found, splits))


class _Run:
    """One experiment under way."""

    def __init__(
        self,
        table: OutcomesTable,
        policies: Mapping[str, Contender],
        metrics: Sequence[Metric],
        cluster: str,
        draws: int,
        seed: int,
    ) -> None:
        needed = tuple(dict.fromkeys(model for one in policies.values() for model in models_of(one.policy)))
        if strangers := [name for name in needed if name not in table.columns]:
            raise ValueError(f"a policy names {', '.join(strangers)}; the table has {', '.join(table.models)}")
        complete = table.complete(needed)
        self.left_out = table.left_out(needed)
        if cluster:
            lacking = complete & np.array([value is None for value in meta_values(table, cluster)], dtype=bool)
            if lacking.any():
                self.left_out[f"no {cluster}"] = int(lacking.sum())
                complete &= ~lacking
        if not complete.any():
            raise ValueError(f"no row can be used: {self.left_out or 'the table is empty'}")
        self.table = table.subset(np.flatnonzero(complete)) if not complete.all() else table
        self.policies, self.metrics, self.cluster, self.draws, self.seed = policies, metrics, cluster, draws, seed
        self.served: dict[str, Served] = {}
        self.unanswered: dict[str, int] = {}
        self.failed: dict[str, tuple[int, str]] = {}
        self.reviewed: dict[str, int] = {}

    def serve(self, progress: Progress) -> None:
        """Replay every policy; keep the rows that all of them answered."""
        n = len(self.table)
        common = np.ones(n, dtype=bool)
        everything = Traffic(self.table)
        for name, one in self.policies.items():
            progress(f"replaying {name} over {n:,} rows")
            played = replay(one.policy, self.table, fallback=one.fallback, scorers=one.scorers,
                            spends=one.spends, max_cost=one.max_cost)  # fmt: skip
            self.unanswered[name] = int((~played.judged & ~played.review).sum())
            self.failed[name] = played.failed
            self.reviewed[name] = int(played.review.sum())
            if not played.judged.any():
                raise ValueError(f"policy {name} answered none of {n} rows: {played.counts()}")
            common &= played.judged
            self.served[name] = Served.of(played, everything)
        if not common.any():
            raise ValueError("no row was answered by all policies; compare fewer of them, or give them a fallback")
        self.traffic = everything
        if not common.all():
            rows = np.flatnonzero(common)
            self.left_out["not answered by every policy"] = n - len(rows)
            self.traffic = Traffic(self.table.subset(rows))
            self.served = {name: one.take(self.traffic, rows) for name, one in self.served.items()}
        self.codes: Ints = coded(self.traffic.values(self.cluster)) if self.cluster else _each(len(self.traffic.table))
        self.clusters = int(self.codes.max()) + 1

    def arms(self, baseline: str, parts: Sequence[Segments]) -> tuple[Arm, ...]:
        """Return every policy's figures."""
        names = list(self.policies)
        raw = {metric.name: {name: metric.raw(self.served[name]) for name in names} for metric in self.metrics}
        by_metric = {metric.name: self._measured(metric, raw[metric.name]) for metric in self.metrics}
        first = self.metrics[0]
        values, drawn = by_metric[first.name]
        versus = comparisons([one.mean for one in values], drawn, names.index(baseline), first.lower_is_better)
        ground = Ground(self.traffic, self.codes, self.clusters, self.draws, self.seed)
        fair = fairness_of_all(first, raw[first.name], baseline, parts, ground)
        return tuple(
            self._arm(
                name,
                {metric: found[0][at] for metric, found in by_metric.items()},
                versus[at],
                fair[name],
                [metric.name for metric in self.metrics if _constant(metric, raw[metric.name][name])],
            )
            for at, name in enumerate(names)
        )

    def _measured(self, metric: Metric, raw: Mapping[str, Floats]) -> tuple[list[Interval], Floats]:
        rows = np.arange(len(self.traffic.table))
        samples = []
        for values in raw.values():
            units = metric.units(values, rows, self.traffic)
            samples.append(Sample(units.values, self.codes[units.rows]))
        drawn = joint_draws(samples, self.clusters, self.draws, self.seed)
        return intervals(samples, drawn), drawn

    def _arm(
        self,
        name: str,
        metrics: Mapping[str, Interval],
        versus: Comparison | None,
        fair: tuple[Fairness, ...],
        constant: Sequence[str],
    ) -> Arm:
        served, policy = self.served[name], self.policies[name].policy
        cost = Sample(served.cost, self.codes)
        spent = intervals([cost], joint_draws([cost], self.clusters, self.draws, self.seed))[0]
        failed, why = self.failed[name]
        notes = [f"the policy itself failed on {failed} rows ({why}); there its default model answered"] if failed else []
        if reviewed := self.reviewed[name]:
            notes.append(f"{reviewed:,} rows went to a person; they are left out for all, and they are the less sure ones")
        notes += [unseen] if (unseen := without_load(policy)) else []
        notes += [f"{metric}: every row has the same score, so the ranking is blind" for metric in constant]
        return Arm(
            name=name,
            form=policy_form(policy),
            metrics=metrics,
            versus=versus,
            latency_s=Wait.of(served.latency_s),
            cost=spent,
            calls={
                model: float(served.called[:, at].mean())
                for at, model in enumerate(served.table.models)
                if served.called[:, at].any()
            },
            weights=weighings(served),
            alone=float((served.weights.max(axis=1) > HIGH).mean()),
            collapsed=collapse(served, len(models_of(policy))),
            fairness=fair,
            unanswered=self.unanswered[name],
            notes=tuple(notes),
        )


def _each(count: int) -> Ints:
    return np.arange(count, dtype=np.int32)


def _constant(metric: Metric, raw: Floats) -> bool:
    """True for a ranking metric whose score tells no row from another."""
    return isinstance(metric, TopK | Auc) and bool((raw == raw[0]).all())
