"""What routing might bring: chosen on dev, proven or not on test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final

import numpy as np
from msgspec import Struct

from rheostat.lab.bootstrap import Difference, paired_bootstrap
from rheostat.lab.figures import Figures, figures
from rheostat.lab.goal import Goal, GoalError
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.tune import Tuned, choose_policy, notes
from rheostat.lab.verdict import BARGAIN, MOST, WORTH
from rheostat.policies import Policy, models_of

ROUTED: Final = ("cascade", "cascade+blend", "delegate")
DEEPER: Final = 0.002
"""Points of dev accuracy that a further stage must bring; noise of the choice is of this size."""


class Claim(Struct, frozen=True, kw_only=True):
    """One thing that routing is said to bring, with its proof on fresh rows.

    `kind` is `gain` (better than every single model), `save` (as good as `against` for less), `trade` (clearly better than
    the first model, for at most half of the last one's cost) or `blend` (a fixed mix beats every single model). `p` is the
    share of bootstrap draws in which it does not hold, the worst of its parts; `quality` is routed minus `against`;
    `saving` the part of `against`'s cost that is saved, with 95 % interval (negative: it costs more).
    """

    kind: str
    tuned: Tuned
    against: str
    p: float
    quality: Difference
    saving: Difference
    proven: bool = False

    @property
    def levels(self) -> int:
        """How many models the policy asks; 1 when it has come down to one."""
        return len(models_of(self.tuned.policy))


class Choice(Struct, frozen=True):
    """A setting chosen on dev, with its figures there."""

    kind: str
    stages: tuple[str, ...]
    goal: Goal
    policy: Policy
    figures: Figures


def chains(names: Sequence[str], last: str) -> list[tuple[str, ...]]:
    """Return the chains of two to five of `names` (cheapest first) that end with `last`, shortest first.

    With more than five models before the last one, chains of two and three only: the others are too many to try.
    """
    before = names[: names.index(last)]
    most = min(len(before), 4) if len(before) <= 5 else 2
    return [(*some, last) for count in range(1, most + 1) for some in combinations(before, count)]


def choose(dev: OutcomesTable, sets: Iterable[tuple[str, ...]], goal: Goal, kinds: Sequence[str] = ROUTED) -> Choice | None:
    """Return the best setting on dev that keeps the goal and asks more than one model; None when there is none.

    A longer chain, or a later kind, must be better by more than DEEPER (or, with a quality to reach, cheaper by 1 %).
    """
    best: Choice | None = None
    for stages in sets:
        for kind in kinds:
            try:
                policy = choose_policy(dev, goal, stages, kind, "dev")
            except (GoalError, ValueError):
                continue
            if len(models_of(policy)) < 2:
                continue
            found = Choice(kind, stages, goal, policy, figures(policy, dev, stages, split="dev", draws=200)[0])
            if best is None or _better(found, best):
                best = found
    return best


def _better(new: Choice, old: Choice) -> bool:
    if new.goal.wants_quality:
        return new.figures.cost.mean < 0.99 * old.figures.cost.mean
    return new.figures.quality.mean > old.figures.quality.mean + DEEPER


def claims_of(
    kinds: Sequence[str], choice: Choice, test: OutcomesTable, names: Sequence[str], against: str, margin: float
) -> list[Claim]:
    """Judge one choice on fresh rows, by one replay, for each kind of claim that it may bear.

    Args:
        names: every single model it must be compared with, cheapest first.
        against: the single model that would be used otherwise.
        margin: how much accuracy, in [0, 1], `save` may lose and still count as equal.
    """
    reported, played = figures(choice.policy, test, choice.stages, split="test")
    part, judged = played.table, np.flatnonzero(played.judged)
    right = played.correct[judged].astype(np.float64)
    spent = played.cost[judged]
    alone = {name: part.correct(name)[judged].astype(np.float64) for name in names}
    price = part.model(against).cost[judged]
    unit = max(float(price.mean()), 1e-300)

    def worst(kind: str) -> float:
        """The p of a claim, the worst of its parts."""
        if kind in ("gain", "blend"):
            parts = [paired_bootstrap(right, single).p for single in alone.values()]
        elif kind == "save":
            unseen = 0.0 if (right != alone[against]).any() else (1.0 - margin) ** len(right)  # no resample shows a loss
            parts = [
                max(unseen, paired_bootstrap(right + margin, alone[against]).p),
                paired_bootstrap((1.0 - WORTH) * price, spent).p,
            ]
        else:
            parts = [_trade(reported, right, spent, alone, part.model(choice.stages[-1]).cost[judged])]
        return max(parts if kind == "blend" else [*parts, reported.vs_random.p])

    tuned = Tuned(
        kind=choice.kind, stages=choice.stages, goal=choice.goal, policy=choice.policy, chosen=choice.figures,
        reported=reported, notes=tuple(notes(choice.goal, choice.figures, reported, choice.kind)),
    )  # fmt: skip
    quality, saving = paired_bootstrap(right, alone[against]), paired_bootstrap(price / unit, spent / unit)
    return [Claim(kind=kind, tuned=tuned, against=against, p=worst(kind), quality=quality, saving=saving) for kind in kinds]


def _trade(reported: Figures, right: np.ndarray, spent: np.ndarray, alone: dict[str, np.ndarray], dear: np.ndarray) -> float:
    """The worst p of: better than the first model, half of the gap closed, half of the cost at most."""
    first, last = alone[reported.first], alone[reported.last]
    return max(
        paired_bootstrap(right, first).p,
        paired_bootstrap(right, first + MOST * (last - first)).p,
        paired_bootstrap(BARGAIN * dear, spent).p,
    )
