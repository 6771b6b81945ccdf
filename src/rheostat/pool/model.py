"""A model in service: its settings, its backend, and the live state that decisions and limits need."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import exp, isfinite
from typing import Any

from rheostat.pool.backend import Backend, Checkable, ModelSettings, RemoteBackend, Switchable
from rheostat.pool.batching import Batched
from rheostat.pool.on_demand import OnDemand
from rheostat.pool.prepared_beside import PreparedBeside
from rheostat.pool.processors import processors
from rheostat.pool.profile import Profile
from rheostat.pool.waiter import Waiter
from rheostat.pool.worker.workers import Workers
from rheostat.resilience import breaker as breakers
from rheostat.resilience import health as healths
from rheostat.resilience import limit as limits
from rheostat.resilience import ramp as ramps
from rheostat.resilience import throughput as throughputs
from rheostat.resilience.breaker import CLOSED, BreakerSettings, BreakerState
from rheostat.resilience.health import UNCHECKED, HealthState
from rheostat.resilience.ladder import Link
from rheostat.resilience.queue import FairQueue
from rheostat.resilience.ramp import RampState
from rheostat.resilience.retry import RetryTokens, called, full, taken
from rheostat.resilience.throughput import ThroughputState
from rheostat.types import Failure, ModelView

INLINE_LIMIT_S = 0.001
"""A local model that answers a row quicker than this (median, measured at load) runs on the event loop."""
DEMOTE_S = 0.01
"""A running mean above this moves an inline model to threads: inputs turned out longer than the probes."""
ALARM_S = 60.0
"""A model that refuses our key or address is told of once in this time."""
_SMOOTHING = 0.1
_ERROR_SMOOTHING = 0.05  # the error rate is that of the last twenty calls or so
_ERROR_FADES_S = 30.0  # and is forgotten when there are none
_OVERLOADS = frozenset(("timeout", "rate_limited"))
_OVERLOAD_STATUSES = frozenset((429, 503))
_PARKS = frozenset(("rate_limited", "upstream_error"))
_log = logging.getLogger("rheostat.pool")


class Model:
    """One named, versioned answerer. Its counters return to where they were on every kind of ending.

    `row_s` is the measured time for one row in seconds; infinity when it could not be measured (then it is not inline).
    `check` is how its health is asked for, if not by its probe. `on_demand` is the part of `backend` that is not always in
    memory, if there is one; a model without it takes `size` bytes (0: unknown). `origin` is what, under the wraps of
    `backend`, can make the model of other weights. `workers` are the processes that compute under them, if it has any.
    """

    def __init__(
        self,
        name: str,
        settings: ModelSettings,
        backend: Backend | RemoteBackend,
        row_s: float = 0.0,
        check: Checkable | None = None,
        on_demand: OnDemand | None = None,
        size: int = 0,
        origin: Switchable | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.backend = backend
        self.check = check
        self.labels = backend.labels or settings.labels or None
        self.remote = isinstance(backend, RemoteBackend)
        self.prepared = backend if isinstance(backend, PreparedBeside) else None
        inner = backend if self.prepared is None else self.prepared.inner
        self.batched = inner if isinstance(inner, Batched) else None
        self.queued = self.prepared or self.batched  # takes rows with the rank of their request
        quick = settings.run == "inline" or (settings.run == "auto" and row_s <= INLINE_LIMIT_S)
        self.inline = quick and not self.remote and on_demand is None
        self.on_demand = on_demand
        self.size = size
        self.origin = origin
        self.workers = workers
        if workers is not None:
            workers.on_back = self._partly_back
        self.breaker: BreakerState = CLOSED
        self.breaker_settings = settings.breaker or BreakerSettings()
        self.ramp: RampState | None = None
        self.health: HealthState = UNCHECKED
        self.throughput: ThroughputState = throughputs.IDLE
        self.check_due = 0.0
        self.ejected = False  # out because of its health checks; the pool decides who may be
        self.in_flight = 0
        self.limit = settings.max_concurrency or self.breaker_settings.max_concurrent
        self.adapted = limits.begin(settings.adaptive) if settings.adaptive is not None else None
        if self.adapted is not None:
            self.limit = int(self.adapted.limit)
        self.queue = settings.queue
        self.waiting: FairQueue[Waiter] = FairQueue()
        self.overflowed = 0
        self.began_at = 0.0  # the last attempt
        self.latency_s = row_s if isfinite(row_s) else 0.0
        self.invalid_confidence = 0
        self.parked_until = 0.0
        self.misconfigured: str | None = None  # what it said when it last refused us, until it answers again
        self.on_change: Callable[[], None] = lambda: None
        self.retries_refused = 0
        self.quality = 0.0
        self._answers = 1 if self.latency_s else 0  # the first ones count alike: one of them alone says little
        self._calls = 0  # begun since the retry budget was last looked at
        self._retries: RetryTokens | None = None
        self._error_rate = 0.0
        self._failed_at = 0.0
        self._told_at = float("-inf")
        self._threads: ThreadPoolExecutor | None = None
        if workers is not None and self.batched is None:
            self._bound_by(workers.count)
        elif not self.inline and not self.remote:
            self._bound_by(processors())

    def link(self) -> Link:
        """Return who may stand in for this model."""
        settings = self.settings
        return Link(settings.peers, settings.lighter, settings.cost, settings.max_input, settings.can, settings.kinds)

    def view(self, now: float) -> ModelView:
        """Return a frozen snapshot for decisions."""
        settings = self.settings
        return ModelView(
            self.name,
            self.admits(now),
            settings.cost,
            settings.tier,
            self.latency_s,
            self.in_flight,
            settings.tags,
            self.share(now),
            len(self.waiting),
            self.limit,
            self.error_rate(now),
            throughputs.forecast(self.throughput, now),
            loaded=self.on_demand is None or self.on_demand.loaded,
            quality=self.quality,
        )

    def profiled(self, profile: Profile) -> None:
        """Take what was measured before as what is known now."""
        self.latency_s = profile.alone.p50_s
        self._answers = 1
        self.quality = 0.0 if profile.quality is None else profile.quality.accuracy

    @property
    def bytes(self) -> int:
        """What its weights take in memory now; 0 when they are not there, or it is unknown."""
        if self.workers is not None:
            return self.workers.bytes
        if self.on_demand is None:
            return self.size
        return self.on_demand.holding.bytes if self.on_demand.holding.state in ("loaded", "unloading") else 0

    @property
    def runs(self) -> str:
        """Where it computes: `inline`, `thread`, `process` or `remote`."""
        if self.workers is not None:
            return "process"
        if not isinstance(self.backend if self.batched is None else self.batched.inner, Backend):
            return "remote"
        return "inline" if self.inline else "thread"

    @property
    def outdated(self) -> bool:
        """True when its code has changed on disk and its processes could not be replaced: a reload opens it anew."""
        return self.workers is not None and self.workers.outdated

    @property
    def threads(self) -> ThreadPoolExecutor:
        """This model's own threads, so that one that hangs cannot take another's."""
        if self._threads is None:
            count = self.settings.max_concurrency or processors()
            self._threads = ThreadPoolExecutor(count, thread_name_prefix=f"model-{self.name}")
        return self._threads

    def may_retry(self, now: float) -> bool:
        """Take one retry from the model's budget; False when it is used up."""
        settings = self.settings.retry_budget
        state = called(self._retries or full(settings, now), settings, self._calls, now)
        left = taken(state)
        self._calls = 0 if left is None else -1  # the retry itself brings nothing
        self._retries = state if left is None else left
        self.retries_refused += left is None
        return left is not None

    def admits(self, now: float) -> bool:
        """Return whether an attempt may start: its breaker and its health let it, the wait it asked for is over, and its
        weights are in memory or may be loaded."""
        if now < self.parked_until or self.ejected or self._hosting_wait_s(now):
            return False
        return breakers.admits(self.breaker, self.breaker_settings, now)

    def begin(self, now: float) -> bool:
        """Take note that an attempt starts; False when it may not."""
        if now < self.parked_until or self.ejected or self._hosting_wait_s(now):
            return False
        if self.breaker.name != "closed":
            if not breakers.admits(self.breaker, self.breaker_settings, now):
                return False
            self._turn(breakers.started(self.breaker, self.breaker_settings, now), now)
        self._calls += 1
        self.began_at = now
        self.throughput = throughputs.started(self.throughput, now)
        return True

    def ended(self, failure: Failure | None, counts: bool, elapsed_s: float, now: float) -> None:
        """Take note how an attempt ended; `counts` says whether a failure is the model's own."""
        if self.adapted is not None:
            self._adapt(failure, elapsed_s, now)
        self.throughput = throughputs.ended(self.throughput, failure is None, now)
        if failure is None:
            self._answers += 1
            self.latency_s += max(_SMOOTHING, 1.0 / self._answers) * (elapsed_s - self.latency_s)
            if self.inline and self.latency_s > DEMOTE_S and self.settings.run == "auto":
                self.inline = False
                self._bound_by(processors())
            if self._error_rate:
                self._error_rate *= 1.0 - _ERROR_SMOOTHING
            if self.health is not UNCHECKED:
                self._judge(healths.served(self.health, self.settings.health, now - elapsed_s, now), now)
            self.misconfigured = None
            after = breakers.succeeded(self.breaker, self.breaker_settings, now - elapsed_s, now)
            if after.name == "closed" == self.breaker.name:
                self.breaker = after
            elif after is not self.breaker:
                self._turn(after, now, f"an answer took {elapsed_s:.3g} s")
            return
        if failure.retry_after_s and failure.kind in _PARKS:
            self.parked_until = max(self.parked_until, now + failure.retry_after_s)
            self.on_change()
        if not counts:
            if self.breaker.name != "closed":
                self._turn(breakers.abandoned(self.breaker, self.breaker_settings, now - elapsed_s, now), now)
            return
        self._error_rate = self.error_rate(now) * (1.0 - _ERROR_SMOOTHING) + _ERROR_SMOOTHING
        self._failed_at = now
        if self.ramp is not None:
            self.ramp = ramps.failed(self.ramp, self.settings.ramp, now - elapsed_s, now)
            self.on_change()
        if failure.kind == "misconfigured":
            self._alarm(failure, now)
        state = breakers.failed(self.breaker, self.breaker_settings, now - elapsed_s, now)
        self._turn(state, now, f"{failure.kind}, {failure.message}")

    def checked(self, failure: str | None, now: float) -> None:
        """Take note of a health check: None when it was good, else why not."""
        settings = self.settings.health
        after = healths.passed(self.health, settings, now) if failure is None else healths.failed(
            self.health, settings, failure, now
        )  # fmt: skip
        self._judge(after, now)

    def switched(self, before: Model, now: float) -> None:
        """Take note that this model takes the place of `before`; with `ramp.on_switch` a new version comes gradually."""
        if self.settings.ramp.on_switch and before.settings.version != self.settings.version:
            self.ramp = ramps.begun(self.settings.ramp, now)
            self.on_change()

    def error_rate(self, now: float) -> float:
        """Return the share of recent calls that failed through the model's fault, in [0, 1]; it fades while none do."""
        return self._error_rate * exp((self._failed_at - now) / _ERROR_FADES_S) if self._error_rate else 0.0

    def share(self, now: float) -> float:
        """Return the share of its traffic that the model may have now, in (0, 1]; less than 1 while it is on its ramp."""
        if self.ramp is None:
            return 1.0
        part = ramps.share(self.ramp, self.settings.ramp, now)
        if part >= 1.0:
            self.ramp = None
        return part

    def retry_after(self, now: float) -> float:
        """Return the seconds until an attempt may start again, at least 0."""
        check = self.check_due - now if self.ejected else 0.0
        hosting = self._hosting_wait_s(now)
        return max(0.0, breakers.wait_s(self.breaker, self.breaker_settings, now), self.parked_until - now, check, hosting)

    def why(self, now: float) -> str:
        """Say why no attempt may start now, or what else is wrong with the model; empty when nothing is."""
        health = self.health
        ill = "" if health.healthy else f"{health.failed} health checks failed in a row: {health.why}"
        if self.ejected:
            return f"it is unhealthy: {ill}"
        if now < self.parked_until:
            return "it asked to be left alone for a while"
        if self.on_demand is not None and self.on_demand.wait_s(now):
            return self.on_demand.why
        if self.workers is not None and (out := self.workers.out(now)):
            return out
        if not breakers.admits(self.breaker, self.breaker_settings, now):
            probed = self.breaker.name == "half-open"
            return "its breaker is half-open and it is being probed" if probed else "its breaker is open"
        if ill:
            return f"{ill}; it stays in, as too many are out already"
        return f"misconfigured: {self.misconfigured}" if self.misconfigured is not None else ""

    def status(self, now: float) -> dict[str, Any]:
        """Return the state that people ask for, as plain values; `ramp` is 0 while the model may have no traffic."""
        return {
            "version": self.settings.version,
            "breaker": self.breaker.name,
            "health": "healthy" if self.health.healthy else "unhealthy",
            "ejected": self.ejected,
            "ramp": round(self.share(now), 4) if self.admits(now) else 0.0,
            "error_rate": round(self.error_rate(now), 4),
            "why": self.why(now),
            "misconfigured": self.misconfigured,
            "retry_in_s": round(self.retry_after(now), 3),
            "unhealthy_for_s": 0.0 if self.health.healthy else round(now - self.health.since, 3),
            "in_flight": self.in_flight,
            "queued": len(self.waiting),
            "limit": self.limit,
            "overflowed": self.overflowed,
            "latency_s": self.latency_s,
            "throughput": round(throughputs.forecast(self.throughput, now), 3),
            "runs": self.runs,
            "workers": None if self.workers is None else self.workers.status(now),
            "batch": None if self.batched is None else self.batched.status(),
            "prepare": None if self.prepared is None else self.prepared.status(),
            "residency": {"state": "remote" if self.runs == "remote" else "resident", "bytes": self.bytes}
            if self.on_demand is None
            else self.on_demand.status(now),
        }

    def _adapt(self, failure: Failure | None, elapsed_s: float, now: float) -> None:
        """Let the limit follow how a call ended; faults that are not of load leave it alone."""
        settings, state = self.settings.adaptive, self.adapted
        assert settings is not None
        assert state is not None
        if failure is None:
            state = limits.answered(state, settings, elapsed_s, self.in_flight + 1)  # its own place is free already
        elif failure.kind in _OVERLOADS or failure.upstream_status in _OVERLOAD_STATUSES:
            state = limits.dropped(state, settings, now - elapsed_s, now)
        self.adapted, self.limit = state, int(state.limit)

    def _hosting_wait_s(self, now: float) -> float:
        """Return the seconds for which its weights, or a process of it, cannot be had; 0 when it may be asked."""
        if self.workers is not None:
            return self.workers.wait_s(now)
        return 0.0 if self.on_demand is None else self.on_demand.wait_s(now)

    def _partly_back(self, kept: float, now: float) -> None:
        """Take note that a process is in service again while the share `kept` of them served: it gets its part gradually."""
        if self.breaker.name == "closed" and self.share(now) > kept:  # else the ramp begins when that closes
            self.ramp = ramps.begun(self.settings.ramp, now, kept)
            self.on_change()

    def _bound_by(self, places: int) -> None:
        """Give a local model as many places as it has threads or processes; what its breaker allows beyond them may wait."""
        if not self.settings.max_concurrency:
            self.limit = places
            self.queue = self.settings.queue or max(1, (self.breaker_settings.max_concurrent or 1000) - places)

    def _turn(self, state: BreakerState, now: float, last: str = "") -> None:
        before, self.breaker = self.breaker, state
        if state.name == before.name == "closed":
            return
        if state.name != before.name:
            self.ramp = ramps.begun(self.settings.ramp, now) if state.name == "closed" else None
            said = f" for {self.breaker_settings.timeout_seconds:g} s; the last call: {last}" if state.name == "open" else ""
            _log.warning("model %s: its breaker is %s%s", self.name, state.name, said)
        if state is not before:
            self.on_change()

    def _judge(self, state: HealthState, now: float) -> None:
        before, self.health = self.health, state
        if state.healthy == before.healthy:
            return
        if state.healthy and self.ejected and self.breaker.name == "closed":  # else the ramp begins when that closes
            self.ramp = ramps.begun(self.settings.ramp, now)
        _log.warning("model %s is %s", self.name, "healthy again" if state.healthy else f"unhealthy: {state.why}")
        self.on_change()

    def _alarm(self, failure: Failure, now: float) -> None:
        self.misconfigured = failure.message
        if now - self._told_at >= ALARM_S:
            self._told_at = now
            _log.error("model %s is misconfigured, an operator has to look at it: %s", self.name, failure.message)

    async def aclose(self) -> None:
        """Give back what the model holds; calls still running in threads are not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if isinstance(self.backend, RemoteBackend):
            await self.backend.aclose()
        else:
            self.backend.close()
        if not isinstance(self.check, type(self.backend)) and (close := getattr(self.check, "aclose", None)) is not None:
            await close()
