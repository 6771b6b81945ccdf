"""Two cuts on a learned weight: where one model alone is enough, chosen on the curve of quality against calls."""

from __future__ import annotations

from rheostat.lab.goal import Goal
from rheostat.lab.metrics import Floats
from rheostat.lab.options import delegate_options
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.tune import best_of
from rheostat.policies import Delegate


def choose_cuts(table: OutcomesTable, weak: str, strong: str, weight: Floats, signal: str, goal: Goal) -> Delegate:
    """Return the policy `delegate` with the cuts that keep `goal` on these rows.

    Cuts save calls only where the weight is known before both models have answered: from the request alone or from the
    weak model's answer.

    Args:
        weight: of the strong model, in [0, 1], one a row.
        signal: the signal that gives the weight when served.

    Raises:
        GoalError: no pair of cuts keeps the goal; the message says what can be reached.
        ValueError: no row can be used, or a weight lies outside [0, 1].
    """
    relative = goal.min_relative_quality if goal.min_relative_quality is not None else 1.0
    found = best_of([delegate_options(table, weak, strong, relative, weight, signal)], goal, "delegate")
    assert isinstance(found, Delegate)
    return found
