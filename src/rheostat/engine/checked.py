"""What a decision has to be before it is followed."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from rheostat.types import Answer, Call, Outcome, Prediction


def substituted(history: tuple[Outcome, ...], stand_ins: Mapping[str, Mapping[str, float]]) -> tuple[Outcome, ...]:
    """Return the outcomes with the scores that stand in for models that failed."""
    if not stand_ins:
        return history
    kept = tuple(outcome for outcome in history if outcome.model not in stand_ins)
    return kept + tuple(Outcome(model, Prediction.from_scores(scores)) for model, scores in stand_ins.items())


def check_words(decision: Call | Answer) -> None:
    if type(decision.reason) is not str or type(decision.by) is not str:
        raise TypeError("a decision's `reason` and `by` are texts")


def check_weights(weights: Mapping[str, float]) -> None:
    for weight in weights.values():
        if not 0.0 <= weight < inf:  # NaN fails this too
            raise ValueError(f"a weight is a number of 0 or more, not {weight}")
