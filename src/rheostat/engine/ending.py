"""How a request ends: what is said, by whom, and the error when nobody could answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from rheostat.errors import DeadlineExceeded, ModelError, NoAnswer, RheostatError
from rheostat.types import Floor, Hold, Outcome, Prediction


class Ending(Struct, frozen=True, kw_only=True):
    """How the request ended: a prediction, or the error to raise. `level` is 0, or the rung (1-5) that answered."""

    prediction: Prediction | None = None
    error: RheostatError | None = None
    weights: Mapping[str, float] = {}
    by: str = ""
    reason: str = ""
    level: int = 0
    fallback_reason: str = ""
    propensity: float = 1.0
    hold: Hold | None = None
    missing: tuple[str, ...] = ()
    review: str = ""
    guess: str | None = None


def held_to(floor: Floor, ending: Ending) -> Ending:
    """Mark the answer for review when it is not sure enough; a label set aside stays as the guess."""
    prediction = ending.prediction
    if prediction is None:
        return ending
    sure = prediction.confidence
    if sure is not None and sure >= floor.below:
        return ending
    why = "no confidence" if sure is None else f"confidence {sure:.4f} < {floor.below:g}"
    said = prediction if floor.label is None else structs.replace(prediction, label=floor.label)
    return structs.replace(ending, prediction=said, review=why, guess=prediction.label)


def no_answer(history: Sequence[Outcome], falling: str | None, may_call: bool) -> RheostatError:
    """Return the error of a request that nobody answered, `falling` being why the ladder took over."""
    if not may_call:
        return DeadlineExceeded("the request's deadline passed before any model answered")
    failures = [(o.model, o.failure) for o in history if o.failure is not None]
    kinds = {failure.kind for _, failure in failures}
    if kinds == {"input_too_large"}:
        return ModelError("input_too_large", failures[-1][1].message)
    if kinds == {"over_budget"}:
        return ModelError("over_budget", failures[-1][1].message)
    kinds.discard("input_too_large")  # the others could have taken it
    told = "; ".join(f"{model}: {kind}" for model, kind in _told(history))
    waits = [failure.retry_after_s for _, failure in failures if failure.retry_after_s is not None]
    if kinds and kinds <= {"timeout", "deadline"}:
        status = 504
    elif kinds <= {"unavailable", "overloaded", "rate_limited"}:
        status = 503
    else:
        status = 502
    retry_after = min(waits, default=1.0) if status == 503 else None
    return NoAnswer(f"no model could answer ({told or falling})", status, retry_after)


def _told(history: Sequence[Outcome]) -> dict[tuple[str, str], None]:
    """Return (model, kind) of every failure, in order and once; a peer's beside that of the model it stood in for."""
    pairs: dict[tuple[str, str], None] = {}
    for outcome in history:
        for attempt in outcome.attempts:
            if attempt.failure is not None:
                pairs[attempt.model, attempt.failure.kind] = None
        if outcome.failure is not None:
            pairs[outcome.served_by or outcome.model, outcome.failure.kind] = None
    return pairs


def why(history: Sequence[Outcome], level: int) -> str:
    """Say what made L1 or L2 necessary: the first failure of the outcome that was used."""
    for outcome in history:
        if outcome.level == level and outcome.attempts and outcome.attempts[0].failure is not None:
            return f"L{level}: {outcome.attempts[0].model} {outcome.attempts[0].failure.kind}"
    return f"L{level}"
