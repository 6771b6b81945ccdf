"""How far a model has come with a request, so that a call that is cut off can be told like any other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import structs

from rheostat.errors import ModelError
from rheostat.types import Attempt, Failure, Outcome

if TYPE_CHECKING:
    from rheostat.pool import Model
    from rheostat.types import Prediction, Request

_UNSURE = frozenset(("timeout", "deadline", "reset", "upstream_error", "bad_output", "crashed"))
_CUT_OFF = Failure("cancelled", "cut off: the request had ended")
_NOT_ASKED = Failure("cancelled", "the request ended before it could be asked")
_NOT_AGAIN = Failure("cancelled", "the request ended before it could be asked again")


class Progress:
    """One model's tries for one request: `attempts` are over, one that runs began at `began` (None: none does).

    The executor keeps it; whoever ends the request reads it at that very moment, when the call itself cannot yet say
    anything. `patience_s` is the time that the model is normally given for a try, `task` runs the call, if it has one of
    its own.
    """

    __slots__ = ("attempts", "began", "cut", "model", "patience_s", "task")

    def __init__(self, model: Model) -> None:
        self.model = model
        self.attempts: tuple[Attempt, ...] = ()
        self.began: float | None = None
        self.patience_s = 0.0
        self.cut: Failure | None = None
        self.task: asyncio.Task[Outcome] | None = None

    def late(self, request: Request) -> ModelError:
        """Return what a try is that has run out of time.

        One that the request's own deadline ends is a `timeout`, which counts against the model, only if the model had at
        least half of the time it is normally given; otherwise it is a `deadline`, so that hurried clients open no breaker.
        """
        left = max(0.0, request.deadline - (self.began or 0.0))
        kind = "timeout" if 2 * left >= self.patience_s else "deadline"
        return ModelError(kind, f"no answer within {min(self.patience_s, left):.3f} s")

    def cut_off(self, request: Request, now: float, first_s: float | None = None, pieces: int = 0) -> Failure:
        """Take note that the call ends here, whoever says so first; returns what its last try is by that."""
        if self.cut is None:
            failure = _CUT_OFF
            if self.began is None:
                failure = _NOT_AGAIN if self.attempts else _NOT_ASKED
            elif now >= request.deadline:
                late = self.late(request)
                failure = uncertain(self.model, Failure(late.kind, str(late)))
                if self.model.on_demand is not None:
                    failure = self.model.on_demand.excused(failure)
            if self.began is not None:
                began = self.began
                self.attempts += (Attempt(self.model.name, began - request.received, now - began, failure, first_s, pieces),)
            self.cut = failure
        return self.cut

    def outcome(self, request: Request, now: float) -> Outcome:
        """Return what has come of it at the end of the request: what it said, if it was just in time, or how far it came."""
        task = self.task
        if task is not None and task.done() and not task.cancelled() and task.exception() is None:
            return task.result()
        return outcome_of(self.model, None, self.cut_off(request, now), self.attempts)


def uncertain(model: Model, failure: Failure) -> Failure:
    """Return what the failure is for this model: one with side effects may have done its work all the same."""
    if not model.settings.side_effects or failure.kind not in _UNSURE or failure.upstream_status == 503:
        return failure
    return structs.replace(failure, kind="uncertain", message=f"{failure.kind}, its work may be done: {failure.message}")


def outcome_of(
    model: Model, prediction: Prediction | None, failure: Failure | None, attempts: tuple[Attempt, ...]
) -> Outcome:
    """Return a model's outcome after these tries."""
    tries = len(attempts)
    return Outcome(
        model.name,
        prediction,
        failure,
        attempts,
        model.name,
        model.settings.version,
        1 if tries > 1 and prediction is not None else 0,
        attempts[0].elapsed_s if tries == 1 else sum([attempt.elapsed_s for attempt in attempts]),
        model.settings.charge(prediction, tries),
    )
