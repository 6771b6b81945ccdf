"""The breaker as a state machine: whatever happens, its promises hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rheostat.resilience.breaker import (
    CLOSED,
    BreakerSettings,
    BreakerState,
    abandoned,
    admits,
    failed,
    started,
    succeeded,
    wait_s,
)
from rheostat.types.duration import Duration

OPEN_S = 10.0


class Calls(RuleBasedStateMachine):
    """Calls start and end in any order, in good ways and bad, quick and slow, while time passes."""

    @initialize(
        threshold=st.integers(1, 4),
        successes=st.integers(1, 3),
        probes=st.integers(1, 3),
        slow=st.sampled_from([0.0, 5.0]),
        rate=st.sampled_from([0.0, 0.5]),
    )
    def begin(self, threshold: int, successes: int, probes: int, slow: float, rate: float) -> None:
        self.settings = BreakerSettings(
            failure_threshold=threshold,
            success_threshold=successes,
            timeout_seconds=Duration(OPEN_S),
            max_probes=probes,
            slow_seconds=Duration(slow),
            error_rate=rate,
            min_calls=6,
        )
        self.state: BreakerState = CLOSED
        self.now = 0.0
        self.running: list[float] = []  # when each call started
        self.probes: list[float] = []  # those of them that started since it was last open

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 5.0, 9.75, 10.0, 25.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def start(self) -> None:
        if not admits(self.state, self.settings, self.now):
            assert self.state.name != "closed"
            assert 0.0 < wait_s(self.state, self.settings, self.now) <= OPEN_S
            return
        if self.state.name != "closed":
            self.probes.append(self.now)
            leased = [began for began in self.probes if self.now - began < OPEN_S]
            assert len(leased) <= self.settings.max_probes, "more probes than places"
        self.running.append(self.now)
        self.state = started(self.state, self.settings, self.now)

    @rule(ending=st.sampled_from(["good", "bad", "nothing"]), which=st.integers(0, 100))
    def end(self, ending: str, which: int) -> None:
        if not self.running:
            return
        began = self.running.pop(which % len(self.running))
        if began in self.probes:
            self.probes.remove(began)
        before = self.state
        if ending == "good":
            self.state = succeeded(before, self.settings, began, self.now)
        elif ending == "bad":
            self.state = failed(before, self.settings, began, self.now)
        else:
            self.state = abandoned(before, self.settings, began, self.now)
        slow = self.settings.slow_seconds and self.now - began >= self.settings.slow_seconds
        if self.state.name == "open" != before.name:
            assert ending == "bad" or (ending == "good" and slow), "only a failure or a slow call opens it"
        if before.name == "open":
            assert self.state is before, "what is left from before it opened says nothing"
        if before.name == "half-open" and began <= before.opened:
            assert self.state is before, "what is left from before it opened says nothing"
        if self.state.name != "half-open":
            self.probes.clear()

    @invariant()
    def it_is_always_somewhere_and_never_for_ever(self) -> None:
        assert self.state.name in ("closed", "open", "half-open")
        if self.state.name == "closed":
            assert admits(self.state, self.settings, self.now)
            assert self.state.failures < self.settings.failure_threshold
        assert admits(self.state, self.settings, self.now + OPEN_S), "after one open period somebody may always try"
        assert len(self.state.leases) <= self.settings.max_probes
        assert len(self.state.past) <= 10

    @invariant()
    def good_probes_always_close_it(self) -> None:
        state, now = self.state, self.now + OPEN_S
        for _ in range(self.settings.success_threshold):
            if state.name == "closed":
                break
            assert admits(state, self.settings, now)
            state = succeeded(started(state, self.settings, now), self.settings, now, now + 0.1)
            now += 0.1
        assert state.name == "closed"


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def after(state: BreakerState, settings_: BreakerSettings, *ends: tuple[str, float, float]) -> BreakerState:
    """Let calls end: (good or bad, when it ended, how long it took)."""
    for how, now, took in ends:
        end = succeeded if how == "good" else failed
        state = end(state, settings_, now - took, now)
    return state


def test_switched_off_it_never_opens() -> None:
    off = BreakerSettings(failure_threshold=0)
    assert after(CLOSED, off, *[("bad", 0.0, 0.0)] * 100, *[("good", 0.0, 0.0)] * 3) is CLOSED


def test_successes_in_a_row_close_it_and_a_failure_opens_it_again() -> None:
    five = BreakerSettings(failure_threshold=1, success_threshold=2, timeout_seconds=Duration(5.0))
    state = failed(CLOSED, five, 0.0, 0.0)
    assert (state.name, wait_s(state, five, 1.0)) == ("open", 4.0)
    assert not admits(state, five, 4.9)
    state = started(state, five, 5.0)
    assert not admits(state, five, 5.1)  # the probe has the lease
    state = succeeded(state, five, 5.0, 5.1)
    assert (state.name, admits(state, five, 5.2)) == ("half-open", True)
    assert failed(started(state, five, 5.2), five, 5.2, 5.3).until == 10.3
    assert succeeded(started(state, five, 5.2), five, 5.2, 5.3).name == "closed"


def test_a_failure_every_second_call_opens_it_by_the_rate_and_not_before_there_are_calls_enough() -> None:
    state = CLOSED
    for number in range(10):
        state = after(state, BreakerSettings(), ("good", number * 0.1, 0.01), ("bad", number * 0.1 + 0.05, 0.01))
        assert state.name == ("closed" if number < 9 else "open"), number


def test_what_left_the_window_does_not_count() -> None:
    ends = [("good" if number % 2 else "bad", number * 1.0, 0.01) for number in range(200)]
    assert after(CLOSED, BreakerSettings(), *ends).name == "closed"  # ten calls in ten seconds, half of them bad
    assert after(CLOSED, BreakerSettings(min_calls=8), *ends).name == "open"
    assert after(CLOSED, BreakerSettings(min_calls=8, error_rate=0.0), *ends).name == "closed"


def test_slow_calls_open_it_and_a_slow_probe_opens_it_again() -> None:
    patient = BreakerSettings(slow_seconds=Duration(2.0), slow_rate=0.75, min_calls=4, timeout_seconds=Duration(5.0))
    state = after(CLOSED, patient, ("good", 1.0, 0.5), ("good", 3.0, 2.5), ("good", 3.5, 2.0))
    assert state.name == "closed"
    state = after(state, patient, ("good", 4.0, 2.0))
    assert (state.name, state.until) == ("open", 9.0)
    state = succeeded(started(state, patient, 9.0), patient, 9.0, 11.5)
    assert (state.name, state.until) == ("open", 16.5)


def test_a_lease_that_ran_out_frees_the_place_and_its_late_end_still_counts() -> None:
    one = BreakerSettings(failure_threshold=1, success_threshold=2, timeout_seconds=Duration(5.0))
    state = started(failed(CLOSED, one, 0.0, 0.0), one, 5.0)
    assert not admits(state, one, 9.9)
    state = started(state, one, 10.0)  # the first hangs
    assert not admits(state, one, 10.1)
    state = succeeded(state, one, 10.0, 10.2)
    state = succeeded(state, one, 5.0, 10.3)
    assert state.name == "closed"


def test_an_abandoned_probe_gives_its_own_place_back_and_no_other() -> None:
    two = BreakerSettings(failure_threshold=1, max_probes=2, timeout_seconds=Duration(5.0))
    state = started(started(failed(CLOSED, two, 0.0, 0.0), two, 5.0), two, 6.0)
    assert not admits(state, two, 6.5)
    state = abandoned(state, two, 5.0, 6.5)
    assert (state.leases, state.name, state.failures) == ((11.0,), "half-open", 1)
    assert abandoned(state, two, -1.0, 6.5) is state  # an old call that was cut off


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"failure_threshold": -1}, "`failureThreshold` must be 0 or more"),
        ({"success_threshold": 0}, "`successThreshold` must be 1 or more"),
        ({"max_concurrent": -1}, "`maxConcurrent`"),
        ({"min_calls": 0}, "`minCalls`"),
        ({"max_probes": 0}, "`maxProbes`"),
        ({"error_rate": 1.5}, "`errorRate`"),
        ({"slow_rate": 0.0}, "`slowRate`"),
        ({"window": Duration(0.0)}, "`window`"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BreakerSettings(**wrong)
