"""How a request ends: what is said, by whom, and the error when nobody could answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from rheostat.errors import DeadlineExceeded, ModelError, NoAnswer, RheostatError, Unsupported
from rheostat.types import Failure, Floor, Hold, Outcome, Prediction, Recalled


class Ending(Struct, frozen=True):
    """How the request ended: a prediction, or the error to raise. `level` is 0, or the rung (1-5) that answered.

    `recalled` is the cached answer that was given, `cache` how: hit, shared (with an equal request), semantic-hit (to
    a question of this `similarity`), or "" (L4). `later`
    asks the driver to complete the request in the background.
    """

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
    recalled: Recalled | None = None
    cache: str = ""
    similarity: float | None = None
    later: bool = False
    stood_in: Mapping[str, Mapping[str, float]] = {}


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


Turned = Sequence[tuple[str, Failure]]
"""Models that were named and not asked, and why."""


def no_answer(history: Sequence[Outcome], turned_away: Turned, falling: str | None, may_call: bool) -> RheostatError:
    """Return the error of a request that nobody answered, `falling` being why the ladder took over."""
    if not may_call:
        return DeadlineExceeded("the request's deadline passed before any model answered")
    failures = [(o.model, o.failure) for o in history if o.failure is not None]
    kinds = {failure.kind for _, failure in failures}
    theirs = {"input_too_large", "over_budget", "unsupported"}  # what the client asked for, and no later try would change
    if kinds == {"unsupported"} and not any(outcome.attempts for outcome in history):
        told = "; ".join(f"{model}: {failure.message.partition(': ')[2]}" for model, failure in failures)
        return Unsupported(f"no model can do what this request asks for ({told})")
    if kinds and kinds <= theirs:
        order = ("over_budget", "input_too_large", "unsupported")  # who pays more can be served
        kind = next(each for each in order if each in kinds)
        return ModelError(kind, next(failure.message for _, failure in reversed(failures) if failure.kind == kind))
    kinds -= theirs  # why the others, who could have been asked, did not answer says more
    told = "; ".join(_told(history, turned_away))
    waits = [failure.retry_after_s for _, failure in (*failures, *turned_away) if failure.retry_after_s is not None]
    if kinds and kinds <= {"timeout", "deadline"}:
        status = 504
    elif kinds <= {"unavailable", "overloaded", "rate_limited", "ramping"}:
        status = 503
    else:
        status = 502
    retry_after = min(waits, default=1.0) if status == 503 else None
    return NoAnswer(f"no model could answer ({told or falling})", status, retry_after)


def _told(history: Sequence[Outcome], turned_away: Turned) -> list[str]:
    """Name every failure, in order: model, kind, upstream status, how many times, and when it may be asked again; a peer's
    beside that of the model it stood in for."""
    counts = {(model, _word(failure)): 1 for model, failure in turned_away}
    for outcome in history:
        last = outcome.failure
        for attempt in outcome.attempts:
            if attempt.failure is not None:
                key = (attempt.model, _word(attempt.failure))
                counts[key] = counts.get(key, 0) + 1
        if last is not None:
            counts.setdefault((outcome.served_by or outcome.model, _word(last)), 1)
    return [f"{model}: {word}" + (f" ({count} times)" if count > 1 else "") for (model, word), count in counts.items()]


def _word(failure: Failure) -> str:
    word = failure.kind if failure.upstream_status is None else f"{failure.kind} {failure.upstream_status}"
    return word if failure.retry_after_s is None else f"{word}, again in {failure.retry_after_s:.1f} s"


def why(history: Sequence[Outcome], level: int, turned_away: Turned) -> str:
    """Say what made L1 or L2 necessary: the first failure of the outcome that was used."""
    first = dict(reversed(turned_away))
    for outcome in history:
        if outcome.level != level:
            continue
        if outcome.model in first:
            return f"L{level}: {outcome.model} {first[outcome.model].kind}"
        if outcome.attempts and outcome.attempts[0].failure is not None:
            return f"L{level}: {outcome.attempts[0].model} {outcome.attempts[0].failure.kind}"
    return f"L{level}"
