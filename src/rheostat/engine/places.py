"""Places at a model: who gets one now, who waits for one, and who is better told at once that none will come in time."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

from rheostat.pool.waiter import Waiter
from rheostat.types import Failure
from rheostat.types.priority import RANKS

if TYPE_CHECKING:
    from rheostat.clock import Clock
    from rheostat.pool import Model
    from rheostat.types import Request


class Places:
    """Takes places at models and gives them back; a place that becomes free goes to the next in the queue.

    The queue goes by priority, within it by tenants in turn, and within a tenant by arrival.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def took(self, model: Model) -> bool:
        """Take a place that is free; False when none is, or others wait for one."""
        limit = model.limit
        if limit and (model.in_flight >= limit or model.waiting):
            return False
        model.in_flight += 1
        return True

    async def take(self, model: Model, request: Request, patience_s: float) -> Failure | None:
        """Take a place, waiting for one if there is room in the queue and sense in it; return why not, or None.

        Nobody waits longer than `patience_s` (0: the request's deadline alone).
        """
        if self.took(model):
            return None
        limit, now = model.limit, self._clock.monotonic()
        left = request.deadline - now
        patience = min(patience_s or inf, left)
        rank, waiting = RANKS[request.priority], model.waiting
        displaced = None
        if len(waiting) >= model.queue:
            displaced = waiting.displaced(rank, request.tenant)
            if displaced is None:
                why = f"{limit} calls are running and the queue is full"
                return _turned_away(model, why, wait_s(model, len(waiting), now))
        wait = wait_s(model, waiting.ahead(rank, request.tenant), now)
        if wait > patience or wait + model.latency_s > left:
            return _turned_away(model, f"a place would come in about {wait:.3f} s, too late for this request", wait)
        if displaced is not None:
            waiting.remove(displaced)
            why = "the queue is full, and its place went to a request of a higher priority or of a tenant that has fewer"
            _tell(displaced, _turned_away(model, why, wait))
        return await self._wait(model, request, rank, patience)

    def leave(self, model: Model) -> None:
        """Give a place back."""
        model.in_flight -= 1
        if model.waiting:
            self.fill(model)

    def fill(self, model: Model) -> None:
        """Give the free places to those who wait; one who has too little time left for an answer is told so instead."""
        waiting = model.waiting
        now = self._clock.monotonic()
        while model.in_flight < model.limit and (waiter := waiting.pop()) is not None:
            if waiter.came.done():  # it is leaving at this very moment
                continue
            if waiter.deadline - now < model.latency_s:
                _tell(waiter, _turned_away(model, "when its turn came too little time was left", wait_s(model, 0, now)))
                continue
            model.in_flight += 1
            _tell(waiter, None)

    async def _wait(self, model: Model, request: Request, rank: int, patience: float) -> Failure | None:
        waiter = Waiter(request.deadline)
        model.waiting.add(waiter, rank, request.tenant)
        came = waiter.came
        try:
            async with asyncio.timeout(patience if patience != inf else None):
                return await came
        except (TimeoutError, asyncio.CancelledError) as error:
            model.waiting.remove(waiter)
            if came.done() and not came.cancelled() and came.result() is None:
                self.leave(model)  # the place came just as we left
            if not isinstance(error, TimeoutError):
                raise
        now = self._clock.monotonic()
        if now >= request.deadline:
            return Failure("deadline", "the deadline passed while waiting for a place")
        return _turned_away(model, f"no place came within {patience:.3f} s", wait_s(model, len(model.waiting), now))


def wait_s(model: Model, ahead: int, now: float) -> float:
    """Estimate the seconds until a place comes for a request with `ahead` others before it, while all are taken.

    Places become free one after another, `limit` of them in the time of one answer. If none has come for longer than an
    answer usually takes, the calls that hold them are taken to need as long again.
    """
    each = max(model.latency_s, now - model.began_at)
    return (ahead + 1) * each / model.limit


def _turned_away(model: Model, why: str, wait: float) -> Failure:
    model.overflowed += 1
    return Failure("overloaded", why, None, wait)


def _tell(waiter: Waiter, why: Failure | None) -> None:
    if not waiter.came.done():
        waiter.came.set_result(why)
