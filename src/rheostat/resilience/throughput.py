"""Calls a second that a model can be expected to finish, forecast from short windows. Pure, `(state, event, now) -> state`.

A window is a second in which the model was busy (time without a call says nothing of what it can do), or longer, until a
call finishes. The forecast is the exponentially weighted mean of the windows' rates. A model that stops finishing calls is
seen while it hangs: the forecast is never more than its overdue window would give if a call finished now.

Sources: Brown (1959), exponential smoothing; by Little's law, the calls in hand divided by this rate are the time that a
call takes.
"""

from __future__ import annotations

from msgspec import Struct

WINDOW_S = 1.0
SMOOTHING = 0.5
"""Part of a new window in the mean."""
LEAST_S = 0.001
"""What the first call takes at least: a clock that did not move makes no endless rate."""


class ThroughputState(Struct, frozen=True, gc=False):
    """`active` calls run. The open window has been busy for `busy_s` until `at`, and `done` calls finished in it; `rate`, in
    calls a second, is the mean of the windows before (0: there was none yet)."""

    active: int = 0
    at: float = 0.0
    busy_s: float = 0.0
    done: int = 0
    rate: float = 0.0


IDLE = ThroughputState()


def started(state: ThroughputState, now: float) -> ThroughputState:
    """A call starts."""
    return ThroughputState(state.active + 1, now, _busy_s(state, now), state.done, state.rate)


def ended(state: ThroughputState, finished: bool, now: float) -> ThroughputState:
    """A call ends; `finished` says whether with an answer. One that never started changes nothing."""
    if not state.active:
        return state
    left, busy_s, done = state.active - 1, _busy_s(state, now), state.done + finished
    if not finished or busy_s < WINDOW_S:
        return ThroughputState(left, now, busy_s, done, state.rate)
    rate = done / busy_s
    return ThroughputState(left, now, 0.0, 0, state.rate + SMOOTHING * (rate - state.rate) if state.rate else rate)


def forecast(state: ThroughputState, now: float) -> float:
    """Return the calls a second that the model can be expected to finish while it is busy; 0 while nothing is known."""
    busy_s = _busy_s(state, now)
    if not state.rate:
        return state.done / max(busy_s, LEAST_S)
    return state.rate if busy_s < WINDOW_S else min(state.rate, (state.done + 1) / busy_s)


def _busy_s(state: ThroughputState, now: float) -> float:
    return state.busy_s + max(0.0, now - state.at) if state.active else state.busy_s
