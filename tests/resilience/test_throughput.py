"""The throughput forecast: counters stay true whatever comes, and it follows what a model does."""

from __future__ import annotations

from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.resilience.throughput import IDLE, ThroughputState, ended, forecast, started

STEPS = st.lists(
    st.tuples(st.sampled_from(["start", "finish", "fail", "wait"]), st.floats(-1.0, 1e6) | st.sampled_from([0.0, 1e-9]))
)


@given(STEPS, st.floats(0.0, 1e9))
def test_counters_are_never_negative_and_return_to_zero_and_the_forecast_is_a_number(
    steps: list[tuple[str, float]], now: float
) -> None:
    state, running = IDLE, 0
    for event, passed in steps:
        now += passed  # a clock may stand still, and even step back
        if event == "start":
            state, running = started(state, now), running + 1
        elif event != "wait":
            state, running = ended(state, event == "finish", now), max(0, running - 1)
        assert state.active == running
        assert min(state.done, state.busy_s, state.rate) >= 0
        for later in (0.0, 0.5, 1e6):
            assert isfinite(forecast(state, now + later))
            assert forecast(state, now + later) >= 0.0
    for _ in range(running):
        state = ended(state, True, now)
    assert state.active == 0
    assert forecast(state, now + 1e6) == forecast(state, now), "an idle model's forecast does not change"


def run(
    state: ThroughputState, now: float, call_s: float, seconds: float, at_a_time: int = 1
) -> tuple[ThroughputState, float]:
    """Let the model work for a while without a pause."""
    end = now + seconds
    while now < end:
        for _ in range(at_a_time):
            state = started(state, now)
        now += call_s
        for _ in range(at_a_time):
            state = ended(state, True, now)
    return state, now


@pytest.mark.parametrize(("call_s", "at_a_time"), [(0.01, 1), (0.1, 4), (3.0, 1)])
def test_a_steady_model_is_known_whatever_its_pauses(call_s: float, at_a_time: int) -> None:
    state, now = run(IDLE, 100.0, call_s, 20.0, at_a_time)
    assert forecast(state, now) == pytest.approx(at_a_time / call_s, rel=0.05)
    state, now = run(state, now + 1000.0, call_s, 5.0, at_a_time)
    assert forecast(state, now) == pytest.approx(at_a_time / call_s, rel=0.05)


def test_it_follows_a_slowdown_and_the_way_back_without_swinging() -> None:
    state, now = run(IDLE, 0.0, 0.05, 20.0)
    state, now = run(state, now, 0.5, 5.0)
    assert 2.0 <= forecast(state, now) < 4.0
    state, now = run(state, now, 0.05, 6.0)
    assert 18.0 < forecast(state, now) <= 20.5


def test_a_model_that_hangs_is_seen_while_it_hangs() -> None:
    state, now = run(IDLE, 0.0, 0.05, 20.0)
    state = started(state, now)
    assert forecast(state, now + 0.05) == pytest.approx(20.0, rel=0.05)
    assert forecast(state, now + 10.0) < 2.5
    assert forecast(ended(state, False, now + 10.0), now + 500.0) < 2.5, "that it was given up tells nothing better"


def test_answers_count_and_failures_do_not() -> None:
    good = bad = IDLE
    for number in range(100):
        at = number * 0.1
        good = ended(started(good, at), True, at + 0.1)
        bad = ended(started(bad, at), number % 2 == 0, at + 0.1)
    assert forecast(bad, 10.0) == pytest.approx(forecast(good, 10.0) / 2, rel=0.2)


def test_nothing_is_known_before_the_first_answer() -> None:
    assert forecast(IDLE, 5.0) == 0.0
    state = started(IDLE, 5.0)
    assert forecast(state, 6.0) == 0.0
    assert forecast(ended(state, True, 7.0), 9.0) == pytest.approx(0.5)
    quick = ended(started(IDLE, 5.0), True, 5.0)
    assert forecast(quick, 5.0) == 1000.0, "one answer in no time at all is not an endless rate"
