"""How much of the good outcomes each model brought to a policy, and where combining them helped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_fields
from itertools import combinations
from math import factorial
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rheostat.lab.bootstrap import Interval, bootstrap, paired_bootstrap
from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import FAILURE_KINDS, OutcomesTable
from rheostat.lab.replay import replay
from rheostat.lab.segments import FEWEST, Segments
from rheostat.policies import Policy, models_of
from rheostat.resilience.ladder import FallbackSettings
from rheostat.signals.base import AnswerScorer, Scorer

MOST_MODELS: Final = 6
"""Beyond this many models the 2^N subsets are too many to replay."""
_IN_HAND: Final = FallbackSettings(retry=0, peer=False, lighter=True)
_GONE: Final = FAILURE_KINDS.index("unavailable") + 1


class Brought(Struct, frozen=True, kw_only=True):
    """What one model brought. All but the counts are shares of the rows, in [0, 1].

    `shapley` is its share of the policy's good outcomes (over models they sum to the policy's accuracy), with a 95 %
    interval; `without` the policy's accuracy when this model is down. `only` counts rows on which no other model is right.
    `fixed`: rows the policy has right and this model alone would have had wrong; `broke`: the other way round.
    """

    model: str
    accuracy: float
    shapley: Interval
    without: float
    weight: float
    only: int
    fixed: int
    broke: int


class Helped(Struct, frozen=True, kw_only=True):
    """One segment of the rows: the policy's accuracy minus the best single model's there.

    The model is the best on all rows, not the best of the segment. `said` is helped, hurt, no difference shown, or too
    small to say. Intervals are 95 % for each segment by itself.
    """

    segment: str
    rows: int
    mean: float
    low: float
    high: float
    said: str


class Contribution(Struct, frozen=True, kw_only=True):
    """One policy taken apart. `all_right` and `none_right` count rows on which every model, or no model, is right."""

    policy: str
    rows: int
    accuracy: float
    best: str
    all_right: int
    none_right: int
    models: tuple[Brought, ...]
    where: Mapping[str, tuple[Helped, ...]]


def contribution(
    name: str,
    policy: Policy,
    table: OutcomesTable,
    *,
    segments: Sequence[Segments] = (),
    scorers: Sequence[Scorer | AnswerScorer] = (),
    draws: int = 1000,
    seed: int = 0,
) -> Contribution:
    """Take a policy apart by replaying it with every subset of its models up, the others unavailable.

    A model's contribution is its Shapley value (1953): what it adds to the rows answered rightly, averaged over all orders
    in which the models may have come; worked out exactly and per row, so that it has an interval. When the policy gives
    up, an answer in hand or the dearest model that is up answers, as with the ladder's `lighter`; with no model up nothing
    is right, and neither is a row left to a person's review.

    Args:
        name: what to call the policy.
        table: fresh rows; those without a right label, or on which one of the policy's models has no prediction, are left
            out.
        segments: groupings of the table's rows, to say where the policy beats its best single model.
        scorers: make the signals that the policy reads.
        draws, seed: of the bootstrap.

    Raises:
        ValueError: one model only, more than six, no row is left, or a segmentation is of other rows.
    """
    names = models_of(policy)
    if strange := next((one for one in segments if len(one.code) != len(table)), None):
        raise ValueError(f"{strange.name} groups {len(strange.code)} rows, the table has {len(table)}: group this table's")
    if not 2 <= len(names) <= MOST_MODELS:
        raise ValueError(f"{name}: contributions are worked out for 2 to {MOST_MODELS} models, the policy has {len(names)}")
    rows = np.flatnonzero(table.complete(names))
    if not len(rows):
        raise ValueError(f"{name}: no row can be used: {table.left_out(names) or 'the table is empty'}")
    part = table.subset(rows)
    part = with_fields(part, columns={model: part.columns[model] for model in names})
    right = _right_by_subset(policy, part, scorers)
    whole = right[frozenset(names)]
    alone = np.stack([part.correct(model) for model in names])
    others = alone.sum(axis=0)
    best = names[int(alone.mean(axis=1).argmax())]
    weights = replay(policy, part, scorers=scorers).weights.mean(axis=0)
    models = tuple(
        Brought(
            model=model,
            accuracy=float(alone[at].mean()),
            shapley=bootstrap(_shapley(model, names, right), draws, seed),
            without=float(right[frozenset(names) - {model}].mean()),
            weight=float(weights[at]),
            only=int((alone[at] & (others == 1)).sum()),
            fixed=int(((whole > 0.0) & ~alone[at]).sum()),
            broke=int(((whole == 0.0) & alone[at]).sum()),
        )
        for at, model in enumerate(names)
    )
    single = part.correct(best).astype(np.float64)
    return Contribution(
        policy=name,
        rows=len(rows),
        accuracy=float(whole.mean()),
        best=best,
        all_right=int((others == len(names)).sum()),
        none_right=int((others == 0).sum()),
        models=models,
        where={one.name: _where(one, rows, whole, single, draws, seed) for one in segments},
    )


def _right_by_subset(
    policy: Policy, table: OutcomesTable, scorers: Sequence[Scorer | AnswerScorer]
) -> dict[frozenset[str], Floats]:
    """Per subset of models that are up: 1 per row that the policy answers rightly, else 0."""
    found = {frozenset[str](): np.zeros(len(table))}
    for size in range(1, len(table.models) + 1):
        for up in combinations(table.models, size):
            found[frozenset(up)] = replay(policy, _with(table, up), fallback=_IN_HAND, scorers=scorers).correct.astype(float)
    return found


def _with(table: OutcomesTable, up: Sequence[str]) -> OutcomesTable:
    gone = np.full(len(table), _GONE, np.int8)
    columns = {
        model: one if model in up else with_fields(one, failure=gone, label=np.full_like(one.label, -1))
        for model, one in table.columns.items()
    }
    return with_fields(table, columns=columns)


def _shapley(model: str, names: Sequence[str], right: Mapping[frozenset[str], Floats]) -> Floats:
    """The model's Shapley value, row by row."""
    rest = [other for other in names if other != model]
    total = np.zeros(len(next(iter(right.values()))))
    for size in range(len(rest) + 1):
        share = factorial(size) * factorial(len(rest) - size) / factorial(len(names))
        for before in combinations(rest, size):
            total += share * (right[frozenset((*before, model))] - right[frozenset(before)])
    return total


def _where(
    groups: Segments, rows: npt.NDArray[np.int64], policy: Floats, single: Floats, draws: int, seed: int
) -> tuple[Helped, ...]:
    code = groups.code[rows]
    found = []
    for at, label in enumerate(groups.labels):
        mask = code == at
        count = int(mask.sum())
        if not count:
            continue
        gap = paired_bootstrap(policy[mask], single[mask], draws, seed)
        said = "helped" if gap.better else "hurt" if gap.worse else "no difference shown"
        if count < FEWEST:
            said = "too small to say"
        found.append(Helped(segment=label, rows=count, mean=gap.mean, low=gap.low, high=gap.high, said=said))
    return tuple(found)
