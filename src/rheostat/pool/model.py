"""A model in service: its settings, its backend, and the live state that decisions and limits need."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import isfinite
from typing import TYPE_CHECKING

from rheostat.pool.backend import Backend, ModelSettings, RemoteBackend
from rheostat.resilience.breaker import (
    CLOSED,
    BreakerSettings,
    BreakerState,
    abandoned,
    admits,
    failed,
    started,
    succeeded,
)
from rheostat.resilience.ladder import Link
from rheostat.types import Failure, ModelView

if TYPE_CHECKING:
    from asyncio import Future

INLINE_LIMIT_S = 0.001
"""A local model that answers a row quicker than this (median, measured at load) runs on the event loop."""
DEMOTE_S = 0.01
"""A running mean above this moves an inline model to threads: inputs turned out longer than the probes."""
_SMOOTHING = 0.1


class Model:
    """One named, versioned answerer. Its counters return to where they were on every kind of ending.

    `row_s` is the measured time for one row in seconds; infinity when it could not be measured (then it is not inline).
    """

    def __init__(self, name: str, settings: ModelSettings, backend: Backend | RemoteBackend, row_s: float = 0.0) -> None:
        self.name = name
        self.settings = settings
        self.backend = backend
        self.labels = backend.labels or settings.labels or None
        self.remote = isinstance(backend, RemoteBackend)
        self.inline = not self.remote and (settings.run == "inline" or (settings.run == "auto" and row_s <= INLINE_LIMIT_S))
        self.breaker: BreakerState = CLOSED
        self.breaker_settings = settings.breaker or BreakerSettings()
        self.in_flight = 0
        self.waiting: deque[Future[None]] = deque()
        self.latency_s = row_s if isfinite(row_s) else 0.0
        self.invalid_confidence = 0
        self.parked_until = 0.0
        self.on_change: Callable[[], None] = lambda: None
        self._threads: ThreadPoolExecutor | None = None

    def link(self) -> Link:
        """Return who may stand in for this model."""
        return Link(self.settings.peers, self.settings.lighter, self.settings.cost)

    def view(self, now: float) -> ModelView:
        """Return a frozen snapshot for decisions."""
        settings = self.settings
        return ModelView(
            self.name, self.admits(now), settings.cost, settings.tier, self.latency_s, self.in_flight, settings.tags
        )

    @property
    def threads(self) -> ThreadPoolExecutor:
        """This model's own threads, so that one that hangs cannot take another's."""
        if self._threads is None:
            count = self.settings.max_concurrency or (os.cpu_count() or 2)
            self._threads = ThreadPoolExecutor(count, thread_name_prefix=f"model-{self.name}")
        return self._threads

    def admits(self, now: float) -> bool:
        """Return whether an attempt may start: the breaker lets it, and the time that a rate limit asked for is over."""
        return now >= self.parked_until and admits(self.breaker, now)

    def begin(self, now: float) -> bool:
        """Take note that an attempt starts; False when it may not."""
        if now < self.parked_until:
            return False
        if self.breaker is not CLOSED:
            if not admits(self.breaker, now):
                return False
            self._turn(started(self.breaker, self.breaker_settings, now))
        return True

    def ended(self, failure: Failure | None, counts: bool, elapsed_s: float, now: float) -> None:
        """Take note how an attempt ended; `counts` says whether a failure is the model's own."""
        if failure is None:
            self.latency_s += _SMOOTHING * (elapsed_s - self.latency_s) if self.latency_s else elapsed_s
            if self.inline and self.latency_s > DEMOTE_S and self.settings.run == "auto":
                self.inline = False
            if self.breaker is not CLOSED:
                self._turn(succeeded(self.breaker, self.breaker_settings))
        elif counts:
            self._turn(failed(self.breaker, self.breaker_settings, now))
        else:
            if failure.kind == "rate_limited" and failure.retry_after_s:
                self.parked_until = now + failure.retry_after_s
                self.on_change()
            if self.breaker is not CLOSED:
                self._turn(abandoned(self.breaker))

    def retry_after(self, now: float) -> float:
        """Return the seconds until an attempt may start again, at least 0."""
        return max(0.0, self.breaker.until - now, self.parked_until - now)

    def _turn(self, state: BreakerState) -> None:
        if state.name != self.breaker.name:
            self.breaker = state
            self.on_change()
        else:
            self.breaker = state

    async def aclose(self) -> None:
        """Give back what the model holds; calls still running in threads are not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if isinstance(self.backend, RemoteBackend):
            await self.backend.aclose()
        else:
            self.backend.close()
