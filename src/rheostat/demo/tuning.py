"""Which models a policy asks, and from which confidence on: chosen on dev, where the models were not fitted."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from rheostat.lab.goal import Goal, GoalError
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.tune import Tuned, tune

GOAL = Goal(max_share=0.2)
"""At most a fifth of the requests may reach the large model."""


class Choice(Struct, frozen=True):
    """The best policy of one kind, and what else was tried: the models asked with the accuracy on dev."""

    best: Tuned
    tried: tuple[tuple[tuple[str, ...], float], ...]


def choose(table: OutcomesTable, kind: str, ladders: Sequence[tuple[str, ...]]) -> Choice:
    """Tune one kind of policy over several ladders of models; keep the one that is best on dev.

    Test has no say in it, so what is reported there is fresh.

    Args:
        kind: as for `lab.tune`.
        ladders: models, each from cheap to dear; of equals the first is kept.

    Raises:
        GoalError: none of them keeps the goal.
    """
    found: list[Tuned] = []
    for stages in ladders:
        try:
            found.append(tune(table, GOAL, stages=stages, kind=kind))
        except GoalError as error:
            refusal = error
    if not found:
        raise refusal
    best = max(found, key=lambda one: one.chosen.quality.mean)
    return Choice(best, tuple((one.stages, one.chosen.quality.mean) for one in found))
