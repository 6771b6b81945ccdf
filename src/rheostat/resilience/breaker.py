"""The circuit breaker: a model that keeps failing is left alone, then tried by one request at a time.

A pure state machine, `(state, event, now) -> state`. Source: Nygard, Release It! (2007); one leased probe as in Finagle.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from rheostat.types.duration import Duration


class BreakerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """`failureThreshold` failures in a row open it for `timeoutSeconds`; then single probes are let through, and
    `successThreshold` good ones in a row close it. `failureThreshold: 0` switches the breaker off."""

    failure_threshold: int = 5
    success_threshold: int = 3
    timeout_seconds: Duration = Duration(30.0)


class BreakerState(NamedTuple):
    """`name` is closed, open or half-open. `until` is when an open breaker may be probed, or when a probe's lease ends."""

    name: str = "closed"
    failures: int = 0
    successes: int = 0
    until: float = 0.0
    probing: bool = False


CLOSED = BreakerState()


def admits(state: BreakerState, now: float) -> bool:
    """Return whether a call may start: always when closed, one probe at a time otherwise.

    A probe whose lease ran out no longer blocks the next one.
    """
    if state.name == "closed":
        return True
    return now >= state.until


def started(state: BreakerState, settings: BreakerSettings, now: float) -> BreakerState:
    """A call that `admits` let through has begun; outside closed it becomes the probe and takes the lease."""
    if state.name == "closed":
        return state
    return BreakerState("half-open", state.failures, state.successes, now + settings.timeout_seconds, True)


def succeeded(state: BreakerState, settings: BreakerSettings) -> BreakerState:
    """A call ended well."""
    if state.name == "closed":
        return state if state.failures == 0 else CLOSED
    if state.name == "open":
        return state  # a straggler from before it opened
    successes = state.successes + 1
    if successes >= settings.success_threshold:
        return CLOSED
    return BreakerState("half-open", state.failures, successes, 0.0, False)


def failed(state: BreakerState, settings: BreakerSettings, now: float) -> BreakerState:
    """A call ended in a way that counts against the model."""
    if settings.failure_threshold == 0 or state.name == "open":
        return state
    failures = state.failures + 1
    if state.name == "half-open" or failures >= settings.failure_threshold:
        return BreakerState("open", failures, 0, now + settings.timeout_seconds, False)
    return BreakerState("closed", failures)


def abandoned(state: BreakerState) -> BreakerState:
    """A call ended without saying anything about the model (cancelled, client's fault): its probe place is free again."""
    if state.name == "half-open" and state.probing:
        return BreakerState("half-open", state.failures, state.successes, 0.0, False)
    return state
