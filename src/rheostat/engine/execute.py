"""Attempts: one model is asked until it answers, its tries are used up, or the time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from msgspec import structs

from rheostat.chance import chance
from rheostat.engine.fitting import fitted
from rheostat.engine.places import Places
from rheostat.engine.progress import Progress, outcome_of, uncertain
from rheostat.engine.stream import Outlet, poured
from rheostat.errors import FAILURES, ModelError
from rheostat.pool import Model
from rheostat.pool.bell import Bell
from rheostat.types import Attempt, Failure, Outcome, Prediction, Request
from rheostat.types.priority import RANKS

if TYPE_CHECKING:
    from rheostat.clock import Clock
    from rheostat.pool import Backend, RemoteBackend, Reply

PAUSE_S = 0.05
"""First pause before another try at a remote model; doubles, with jitter, never past the deadline."""


class Executor:
    """Runs attempts and keeps every counter true, whatever the ending."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.places = Places(clock)
        self.bell = Bell()

    def run_now(self, model: Model, request: Request, tries: int) -> Outcome:
        """Ask an inline model on the spot."""
        request = fitted(model, request)
        attempts: tuple[Attempt, ...] = ()
        now = self.clock.monotonic()
        while True:
            if not model.begin(now):
                return outcome_of(model, None, _unavailable(model, now), attempts)
            began = now
            prediction, failure = judged(model, _ask(model, request))
            now = self.clock.monotonic()
            model.ended(failure, failure is not None and failure.counts, now - began, now)
            attempts += (Attempt(model.name, began - request.received, now - began, failure),)
            if failure is None or not _again(failure, len(attempts), tries, now, request.deadline):
                return outcome_of(model, prediction, failure, attempts)
            if not model.may_retry(now):
                return outcome_of(model, None, _unrepeated(failure), attempts)

    async def run(
        self, model: Model, request: Request, tries: int, patience_s: float, outlet: Outlet | None = None,
        progress: Progress | None = None,
    ) -> Outcome:  # fmt: skip
        """Ask a model that computes in a thread or elsewhere; waits for a place, then tries, inside the deadline.

        `patience_s` bounds an attempt at a model without a `timeout` of its own, and the wait for a place before it (0: the
        request's deadline alone). With an `outlet` the model streams into it: its own limits hold, and once a piece is out
        it is not tried again. `progress` is kept up to date for whoever may cut the call off.
        """
        request = fitted(model, request)
        if progress is None:
            progress = Progress(model)
        while True:
            if not self.places.took(model) and (
                full := await self.places.take(model, request, model.settings.timeout or patience_s)
            ):
                return outcome_of(model, None, full, progress.attempts)
            began = self.clock.monotonic()
            if not model.begin(began):
                self.places.leave(model)
                return outcome_of(model, None, _unavailable(model, began), progress.attempts)
            progress.began, progress.patience_s = (
                began,
                float(model.settings.timeout or patience_s or request.deadline - began),
            )
            try:
                prediction, failure = judged(model, await self._attempt(model, request, progress, outlet))
            except asyncio.CancelledError:
                now = self.clock.monotonic()
                first_s, pieces = (None, 0) if outlet is None else (outlet.first_s, outlet.pieces)
                cut = progress.cut_off(request, now, first_s, pieces)
                model.ended(cut, cut.counts, now - began, now)
                raise
            if failure is not None and model.on_demand is not None:
                failure = model.on_demand.excused(failure)
            now = self.clock.monotonic()
            first_s, pieces = (None, 0) if outlet is None else (outlet.first_s, outlet.pieces)
            answered = now - began if first_s is None else first_s  # a long answer is not a slow one
            model.ended(failure, failure is not None and failure.counts, answered, now)
            if model.waiting:
                self.places.fill(model)  # its limit may have grown
            attempts = progress.attempts
            attempts += (Attempt(model.name, began - request.received, now - began, failure, first_s, pieces),)
            progress.attempts, progress.began = attempts, None
            pause = 0.0 if failure is None else PAUSE_S * 2 ** (len(attempts) - 1) * (0.5 + chance(model.name, request.id))
            if failure is None or pieces or not _again(failure, len(attempts), tries, now + pause, request.deadline):
                return outcome_of(model, prediction, failure, attempts)
            if not model.admits(now):
                return outcome_of(model, prediction, failure, attempts)
            if not model.may_retry(now):
                return outcome_of(model, None, _unrepeated(failure), attempts)
            await asyncio.sleep(pause)

    async def _attempt(self, model: Model, request: Request, progress: Progress, outlet: Outlet | None) -> Reply:
        """One try; its place is given back when the work really ends, which for a thread may be after the timeout."""
        timeout = max(0.0, min(progress.patience_s, request.deadline - (progress.began or 0.0)))
        try:
            if model.remote:
                try:
                    if outlet is not None:
                        return await poured(model, request, outlet, self.clock)
                    if model.queued is not None:
                        return await model.queued.aqueue(request.data, timeout, RANKS[request.priority], self.bell)
                    with self.bell.within(timeout, asyncio.get_running_loop()):
                        remote = cast("RemoteBackend", model.backend)
                        return _first(await remote.apredict((request.data,), timeout))
                finally:
                    self.places.leave(model)
            return await self._in_thread(model, request, timeout) or progress.late(request)
        except TimeoutError:
            return progress.late(request)
        except ModelError as error:
            return error
        except (asyncio.CancelledError, GeneratorExit) as error:
            task = asyncio.current_task()
            if isinstance(error, GeneratorExit) or task is None or task.cancelling():
                raise
            return ModelError("crashed", "CancelledError, and nobody had cancelled it")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a backend raises is this attempt's failure only
            return ModelError("crashed", f"{type(error).__name__}: {error}")

    async def _in_thread(self, model: Model, request: Request, timeout_s: float) -> Reply | None:
        """Ask in one of the model's threads; None when the time is over. Work that has not begun by then never does."""
        try:
            job = model.threads.submit(_ask, model, request)
        except BaseException:
            self.places.leave(model)
            raise
        work = asyncio.wrap_future(job)
        work.add_done_callback(lambda done: self._thread_ended(model, done))
        try:
            done, _ = await asyncio.wait((work,), timeout=timeout_s if timeout_s != float("inf") else None)
            return work.result() if done else None
        finally:
            job.cancel()  # does nothing to work that runs: its place is taken until it ends

    def _thread_ended(self, model: Model, work: asyncio.Future[Reply]) -> None:
        if not work.cancelled():
            work.exception()  # heard, also when nobody waits any more
        self.places.leave(model)


def _ask(model: Model, request: Request) -> Reply:
    try:
        return _first(cast("Backend", model.backend).predict((request.data,)))
    except ModelError as error:
        return error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a model's fault is its own failure, never the request's
        return ModelError("crashed", f"{type(error).__name__}: {error}")


def _first(replies: Sequence[Reply]) -> Reply:
    if len(replies) != 1:
        return ModelError("bad_output", f"expected 1 reply, got {len(replies)}")
    return replies[0]


def judged(model: Model, reply: Reply) -> tuple[Prediction | None, Failure | None]:
    """Hold a reply to the contract that was checked at load."""
    if isinstance(reply, ModelError):
        return None, uncertain(
            model, Failure(reply.kind, str(reply), reply.upstream_status, reply.retry_after_s, reply.shared)
        )
    if not isinstance(reply, Prediction) or not reply.label:
        return None, uncertain(
            model, Failure("bad_output", f"expected a Prediction with a label, got {type(reply).__name__}")
        )
    if model.labels is not None and reply.label not in model.labels:
        told = f"the label {reply.label[:80]!r} is not one of the model's {len(model.labels)}"
        return None, uncertain(model, Failure("bad_output", told))
    confidence = reply.confidence
    if confidence is None:
        model.invalid_confidence += 1
    elif not 0.0 <= confidence <= 1.0:  # NaN fails this too
        model.invalid_confidence += 1
        reply = structs.replace(reply, confidence=None, spoilt=True)
    return reply, None


def _unrepeated(failure: Failure) -> Failure:
    """Say that there was no other try because the model has had as many retries as it may."""
    return structs.replace(failure, message=f"{failure.message}; not tried again: the model's retry budget is used up")


def _unavailable(model: Model, now: float) -> Failure:
    return Failure("unavailable", model.why(now), None, model.retry_after(now))


def _again(failure: Failure, done: int, tries: int, now: float, deadline: float) -> bool:
    """Return whether another try makes sense, if it could begin at `now`."""
    return done < tries and FAILURES[failure.kind].retryable and now < deadline
