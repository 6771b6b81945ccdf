"""The circuit breaker: a model that keeps failing is left alone, then tried by a few requests at a time.

A pure state machine, `(state, event, now) -> state`. Sources: Nygard, Release It! (2007); the rolling window of buckets
as in Resilience4j; a probe that holds a lease as in Finagle. Times are seconds on one monotonic clock.
"""

from __future__ import annotations

from msgspec import Struct

from rheostat.types.duration import Duration

_BUCKETS = 10
_SAME_S = 1e-6  # two times closer than this are one: a start is worked out from an end and a duration
_SHORTEST_LEASE_S = 1.0


class BreakerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """When a model is left alone. It opens after `failureThreshold` failures in a row, or when, within `window` and among
    at least `minCalls` calls, the share of failures reaches `errorRate` (0: never for that), or the share of calls that
    took `slowSeconds` (0: off) or longer reaches `slowRate`. The client's faults, rate limits and calls that the client
    gave up never count. `failureThreshold: 0` switches the breaker off.

    Open, it lets nothing through for `timeoutSeconds`, always the same time: a probe is one request, so waiting longer
    and longer would save little and delay the recovery. Then it is half-open: `maxProbes` requests at a time try the model,
    a failed or slow one opens it again, and `successThreshold` good ones in a row close it. A probe that was given up, or
    has not ended within `timeoutSeconds` (at least 1 s), gives its place to the next.

    `maxConcurrent` bounds the calls at a time where the model's `max_concurrency` does not (0: unlimited).
    """

    failure_threshold: int = 5
    success_threshold: int = 3
    timeout_seconds: Duration = Duration(30.0)
    max_concurrent: int = 1000
    error_rate: float = 0.5
    min_calls: int = 20
    window: Duration = Duration(10.0)
    slow_seconds: Duration = Duration(0.0)
    slow_rate: float = 0.5
    max_probes: int = 1

    def __post_init__(self) -> None:
        for name, value, least in (
            ("failureThreshold", self.failure_threshold, 0),
            ("successThreshold", self.success_threshold, 1),
            ("maxConcurrent", self.max_concurrent, 0),
            ("minCalls", self.min_calls, 1),
            ("maxProbes", self.max_probes, 1),
        ):
            if value < least:
                raise ValueError(f"`{name}` must be {least} or more, got {value}")
        if not 0.0 <= self.error_rate <= 1.0:
            raise ValueError(f"`errorRate` must lie in [0, 1], got {self.error_rate:g}")
        if not 0.0 < self.slow_rate <= 1.0:
            raise ValueError(f"`slowRate` must lie in (0, 1], got {self.slow_rate:g}; `slowSeconds: 0` switches it off")
        if not self.window > 0.0:
            raise ValueError("`window` must be more than 0; `errorRate: 0` and `slowSeconds: 0` switch it off")

    @property
    def lease_s(self) -> float:
        """How long a probe may hold its place, in seconds."""
        return max(self.timeout_seconds, _SHORTEST_LEASE_S)


class Bucket(Struct, frozen=True, gc=False):
    """What ended in one tenth of the window; `ends` is when the next one begins."""

    ends: float
    calls: int
    failed: int
    slow: int


class BreakerState(Struct, frozen=True, gc=False):
    """`name` is closed, open or half-open.

    `failures` and `successes` are counted in a row. `opened` is when it last opened and `until` when it may be probed;
    `leases` is when the lease of each running probe ends. The rest is the rolling window: the present bucket and, in
    `past`, at most ten that are full.
    """

    name: str = "closed"
    failures: int = 0
    successes: int = 0
    opened: float = float("-inf")
    until: float = 0.0
    leases: tuple[float, ...] = ()
    ends: float = float("-inf")
    calls: int = 0
    failed: int = 0
    slow: int = 0
    past: tuple[Bucket, ...] = ()


CLOSED = BreakerState()


def admits(state: BreakerState, settings: BreakerSettings, now: float) -> bool:
    """Return whether a call may start: always when closed, never when open, at most `maxProbes` at a time half-open."""
    if state.name == "closed":
        return True
    return wait_s(state, settings, now) <= 0.0


def wait_s(state: BreakerState, settings: BreakerSettings, now: float) -> float:
    """Return the seconds until a call may start if none of those running ends before, at least 0."""
    if state.name == "closed":
        return 0.0
    if state.name == "open":
        return max(0.0, state.until - now)
    running = sorted(lease for lease in state.leases if lease > now)
    return running[-settings.max_probes] - now if len(running) >= settings.max_probes else 0.0


def started(state: BreakerState, settings: BreakerSettings, now: float) -> BreakerState:
    """A call that `admits` let through has begun; outside closed it becomes a probe and takes a lease."""
    if state.name == "closed":
        return state
    successes = state.successes if state.name == "half-open" else 0
    leases = (*(lease for lease in state.leases if lease > now), now + settings.lease_s)
    return BreakerState("half-open", state.failures, successes, state.opened, state.until, leases)


def succeeded(state: BreakerState, settings: BreakerSettings, began: float, now: float) -> BreakerState:
    """A call that started at `began` ended well; one that took `slowSeconds` counts as slow."""
    slow = settings.slow_seconds > 0.0 and now - began >= settings.slow_seconds
    if state.name == "closed":
        if settings.failure_threshold == 0:
            return state
        if slow:
            return _judged(_counted(state, settings, now, 0, 1), settings, now)
        if now >= state.ends:
            return _counted(state, settings, now, 0, 0)
        return BreakerState(
            "closed", 0, 0, state.opened, 0.0, (), state.ends, state.calls + 1, state.failed, state.slow, state.past
        )
    if state.name == "open" or _is_old(state, began):
        return state
    if slow:
        return _opened(state, settings, now)
    successes = state.successes + 1
    if successes >= settings.success_threshold:
        return BreakerState(opened=state.opened)
    leases = _without(state, settings, began, now)
    return BreakerState("half-open", state.failures, successes, state.opened, state.until, leases)


def failed(state: BreakerState, settings: BreakerSettings, began: float, now: float) -> BreakerState:
    """A call that started at `began` ended in a way that counts against the model."""
    if settings.failure_threshold == 0 or state.name == "open" or _is_old(state, began):
        return state
    if state.name == "half-open":
        return _opened(state, settings, now)
    slow = settings.slow_seconds > 0.0 and now - began >= settings.slow_seconds
    return _judged(_counted(state, settings, now, 1, int(slow)), settings, now)


def abandoned(state: BreakerState, settings: BreakerSettings, began: float, now: float) -> BreakerState:
    """A call ended without saying anything about the model (cancelled, client's fault): its probe's place is free again."""
    if state.name != "half-open" or _is_old(state, began):
        return state
    leases = _without(state, settings, began, now)
    return BreakerState("half-open", state.failures, state.successes, state.opened, state.until, leases)


def _is_old(state: BreakerState, began: float) -> bool:
    """True for a call from before the last opening: how it ends is no news."""
    return began <= state.opened + _SAME_S


def _without(state: BreakerState, settings: BreakerSettings, began: float, now: float) -> tuple[float, ...]:
    """The leases still running, less that of the probe that started at `began`."""
    mine = began + settings.lease_s
    left = [lease for lease in state.leases if lease > now]
    for lease in left:
        if abs(lease - mine) <= _SAME_S:
            left.remove(lease)
            break
    return tuple(left)


def _counted(state: BreakerState, settings: BreakerSettings, now: float, bad: int, slow: int) -> BreakerState:
    failures = state.failures + 1 if bad else 0
    if now < state.ends:
        return BreakerState(
            "closed", failures, 0, state.opened, 0.0, (),
            state.ends, state.calls + 1, state.failed + bad, state.slow + slow, state.past,
        )  # fmt: skip
    full = Bucket(state.ends, state.calls, state.failed, state.slow)
    past = tuple([bucket for bucket in (*state.past, full) if bucket.ends > now - settings.window])
    return BreakerState("closed", failures, 0, state.opened, 0.0, (), now + settings.window / _BUCKETS, 1, bad, slow, past)


def _judged(state: BreakerState, settings: BreakerSettings, now: float) -> BreakerState:
    """Open it if the failures in a row or the shares within the window say so."""
    if state.failures >= settings.failure_threshold:
        return _opened(state, settings, now)
    calls, bad, slow = state.calls, state.failed, state.slow
    for bucket in state.past:
        if bucket.ends > now - settings.window:
            calls, bad, slow = calls + bucket.calls, bad + bucket.failed, slow + bucket.slow
    if calls < settings.min_calls:
        return state
    failing = settings.error_rate > 0.0 and bad >= settings.error_rate * calls
    slowed = settings.slow_seconds > 0.0 and slow >= settings.slow_rate * calls
    return _opened(state, settings, now) if failing or slowed else state


def _opened(state: BreakerState, settings: BreakerSettings, now: float) -> BreakerState:
    return BreakerState("open", state.failures, 0, now, now + settings.timeout_seconds)
