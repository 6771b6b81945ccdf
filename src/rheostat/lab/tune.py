"""Chooses a policy's setting on one split and says what it does on another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from rheostat.lab.bootstrap import Z95_ONE_SIDED
from rheostat.lab.figures import Figures, figures
from rheostat.lab.goal import Goal, GoalError
from rheostat.lab.options import KINDS, Options, options
from rheostat.lab.outcomes import Bools, Floats, OutcomesTable
from rheostat.policies import Policy


class Tuned(Struct, frozen=True, kw_only=True):
    """A chosen setting: the policy, the goal, and its figures on the rows it was chosen on and on fresh ones.

    `notes` says what a reader must know: the share moved between the splits, the threshold accepts everything, ...
    """

    kind: str
    stages: tuple[str, ...]
    goal: Goal
    policy: Policy
    chosen: Figures
    reported: Figures
    notes: tuple[str, ...] = ()


def tune(
    table: OutcomesTable,
    goal: Goal,
    *,
    stages: Sequence[str] | None = None,
    kind: str = "cascade",
    choose: str = "dev",
    report: str = "test",
    draws: int = 2000,
    seed: int = 0,
) -> Tuned:
    """Choose the setting of one kind of policy that keeps `goal` on the split `choose`; measure it on `report`.

    Args:
        stages: models, cheapest first; by default all of the table's, by their mean cost.
        kind: cascade, cascade+blend, blend or delegate (see `options`).
        draws, seed: of the bootstrap.

    Raises:
        GoalError: no setting keeps the goal; the message says what can be reached.
        ValueError: a split is empty, or the kind does not fit the stages.
    """
    names = tuple(stages) if stages is not None else by_cost(table)
    chosen_on, reported_on = _split(table, choose), _split(table, report)
    policy = choose_policy(chosen_on, goal, names, kind, choose)
    chosen, _ = figures(policy, chosen_on, names, split=choose, draws=draws, seed=seed)
    reported, _ = figures(policy, reported_on, names, split=report, draws=draws, seed=seed)
    return Tuned(
        kind=kind,
        stages=names,
        goal=goal,
        policy=policy,
        chosen=chosen,
        reported=reported,
        notes=tuple(notes(goal, chosen, reported, kind)),
    )


def by_cost(table: OutcomesTable) -> tuple[str, ...]:
    """Return the table's models by mean cost, cheapest first; equal costs by mean latency."""

    def key(name: str) -> tuple[float, float]:
        columns = table.model(name)
        return (float(columns.cost.mean()), float(columns.latency_s.mean())) if len(table) else (0.0, 0.0)

    return tuple(sorted(table.models, key=key))


def _split(table: OutcomesTable, name: str) -> OutcomesTable:
    part = table.select(split=name)
    if not len(part):
        raise ValueError(f"the table has no rows in the split {name!r}; tuning needs a split to choose on and a fresh one")
    return part


def choose_policy(table: OutcomesTable, goal: Goal, stages: Sequence[str], kind: str, split: str = "") -> Policy:
    """Return the best policy of one kind that keeps `goal` on the given rows (see `Goal` for what best means).

    Raises:
        GoalError: none does.
    """
    relative = goal.min_relative_quality if goal.min_relative_quality is not None else 1.0
    return best_of(options(table, stages, kind, relative), goal, kind, split)


def best_of(batches: Sequence[Options], goal: Goal, kind: str, split: str = "") -> Policy:
    """Return the best policy among settings that keep `goal`.

    Raises:
        GoalError: none does.
    """
    best: tuple[tuple[float, ...], Options, int] | None = None
    for batch in batches:
        index = _best(batch, goal)
        if index is not None and (best is None or _rank(batch, index, goal) > best[0]):
            best = (_rank(batch, index, goal), batch, index)
    if best is None:
        raise GoalError(_unreachable(batches, goal, kind, split))
    return best[1].build(best[2])


def _rank(batch: Options, index: int, goal: Goal) -> tuple[float, ...]:
    quality, cost = float(batch.quality[index]), float(batch.cost[index])
    rest = (-float(batch.share[index]), float(batch.threshold[index]))
    return (-cost, quality, *rest) if goal.wants_quality else (quality, -cost, *rest)


def _best(batch: Options, goal: Goal) -> int | None:
    allowed = np.flatnonzero(kept(batch, goal))
    if not len(allowed):
        return None
    keys = (batch.threshold[allowed], -batch.share[allowed])
    quality, cost = batch.quality[allowed], -batch.cost[allowed]
    order = np.lexsort((*keys, quality, cost) if goal.wants_quality else (*keys, cost, quality))
    return int(allowed[order[-1]])


def kept(batch: Options, goal: Goal) -> Bools:
    """Return which settings keep every limit of `goal`, by the one-sided 95 % bound when the goal is to be kept surely."""
    z = Z95_ONE_SIDED if goal.sure else 0.0

    def margin(variance: Floats) -> Floats:
        width: Floats = z * np.sqrt(np.maximum(variance, 0.0) / batch.n)
        return width

    binary = batch.quality * (1.0 - batch.quality)
    fine = np.ones(len(batch.quality), dtype=bool)
    if goal.max_share is not None:
        fine &= batch.share + margin(batch.share * (1.0 - batch.share)) <= goal.max_share
    if goal.min_quality is not None:
        fine &= batch.quality - margin(binary) >= goal.min_quality
    if goal.min_relative_quality is not None:
        fine &= batch.gap - margin(batch.gap_variance) >= 0.0
    if goal.max_cost is not None:
        fine &= batch.cost + margin(batch.cost_variance) <= goal.max_cost
    if goal.max_latency is not None:
        quantile = min(1.0, 0.95 + z * float(np.sqrt(0.95 * 0.05 / batch.n)))
        fine &= batch.within_latency(float(goal.max_latency), quantile)
    return fine


def _unreachable(batches: Sequence[Options], goal: Goal, kind: str, split: str) -> str:
    """Say what can be reached instead."""
    where = f" on {split}" if split else ""
    lines = [f"no {kind} setting{where} ({batches[0].n} rows) keeps the goal: {goal.words()}"]
    limits = Goal(
        max_share=goal.max_share, max_cost=goal.max_cost, max_latency=goal.max_latency, sure=goal.sure
    )  # fmt: skip
    inside = [(batch, kept(batch, limits)) for batch in batches]
    reachable = [(batch, np.flatnonzero(fine)) for batch, fine in inside if fine.any()]
    if reachable and goal.wants_quality:
        quality, share, cost = max(
            (float(b.quality[i]), float(b.share[i]), float(b.cost[i]))
            for b, at in reachable
            for i in [at[np.argmax(b.quality[at])]]
        )
        lines.append(f"within the other limits the best accuracy is {quality:.2%} (share {share:.1%}, cost {cost:g})")
    else:
        share = min(float(batch.share.min()) for batch in batches)
        cost = min(float(batch.cost.min()) for batch in batches)
        slow = min(batch.slow(len(batch.quality) - 1, 0.95) for batch in batches)
        lines.append(f"the least share is {share:.1%}, the least cost {cost:g}, the least P95 about {slow * 1000:.3g} ms")
    if goal.sure:
        lines.append("a limit must hold by its one-sided 95 % bound; set `sure: false` (--mean-only) for the mean only")
    return "; ".join(lines)


def notes(goal: Goal, chosen: Figures, reported: Figures, kind: str) -> list[str]:
    """Return what a reader of the two sets of figures must be told."""
    told: list[str] = []
    for one in (chosen, reported):
        if one.extreme and kind != "blend":
            told.append(
                f"on {one.split} the policy calls {one.last} for {one.extreme} request: its threshold decides nothing"
            )
    if reported.share.low > chosen.share.high or reported.share.high < chosen.share.low:
        told.append(
            f"the share of {chosen.last} calls moved from {chosen.share.mean:.1%} on {chosen.split} to "
            f"{reported.share.mean:.1%} on {reported.split}: the two differ, and live traffic may differ again"
        )
    if goal.max_share is not None and reported.share.mean > goal.max_share:
        told.append(f"the budget of {goal.max_share:.1%} is not kept on {reported.split}: {reported.share.mean:.1%}")
    if goal.min_quality is not None and reported.quality.mean < goal.min_quality:
        told.append(f"the accuracy of {goal.min_quality:.2%} is missed on {reported.split}: {reported.quality.mean:.2%}")
    return told


__all__ = ["KINDS", "Goal", "GoalError", "Tuned", "best_of", "by_cost", "choose_policy", "kept", "notes", "tune"]
