"""The breaker as a state machine: whatever happens, its promises hold."""

from __future__ import annotations

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
)
from rheostat.types.duration import Duration


class Calls(RuleBasedStateMachine):
    """Calls start and end in any order, in good ways and bad, while time passes."""

    @initialize(threshold=st.integers(1, 4), successes=st.integers(1, 3))
    def begin(self, threshold: int, successes: int) -> None:
        self.settings = BreakerSettings(
            failure_threshold=threshold, success_threshold=successes, timeout_seconds=Duration(10.0)
        )
        self.state: BreakerState = CLOSED
        self.now = 0.0
        self.running: list[float] = []  # when each call started; only those begun outside closed are probes
        self.probes: list[float] = []
        self.in_a_row = 0

    @rule(seconds=st.sampled_from([0.0, 1.0, 9.75, 10.0, 25.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def start(self) -> None:
        if not admits(self.state, self.now):
            return
        if self.state.name == "closed":
            self.running.append(self.now)
        else:
            assert not any(self.now - began < 10.0 for began in self.probes), "two probes within one lease"
            self.probes.append(self.now)
        self.state = started(self.state, self.settings, self.now)

    @rule(ending=st.sampled_from(["good", "bad", "nothing"]), of_probe=st.booleans())
    def end(self, ending: str, of_probe: bool) -> None:
        calls = self.probes if of_probe else self.running
        if not calls:
            return
        calls.pop(0)
        before = self.state
        if ending == "good":
            self.state = succeeded(self.state, self.settings)
        elif ending == "bad":
            self.state = failed(self.state, self.settings, self.now)
        else:
            self.state = abandoned(self.state)
        if before.name == "half-open" and ending != "bad":
            assert self.state.name != "open", "only a failure opens it"
        if before.name == "half-open" and self.state.name in ("closed", "half-open"):
            self.probes.clear()  # its place is free again; stragglers no longer matter here

    @invariant()
    def it_is_always_somewhere_and_never_for_ever(self) -> None:
        assert self.state.name in ("closed", "open", "half-open")
        if self.state.name == "closed":
            assert admits(self.state, self.now)
            assert self.state.failures < self.settings.failure_threshold
        assert admits(self.state, self.now + 10.0), "after one open period somebody may always try"


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_switched_off_it_never_opens() -> None:
    off = BreakerSettings(failure_threshold=0)
    state = CLOSED
    for _ in range(100):
        state = failed(state, off, 0.0)
    assert state is CLOSED


def test_successes_in_a_row_close_it_and_a_failure_opens_it_again() -> None:
    settings_ = BreakerSettings(failure_threshold=1, success_threshold=2, timeout_seconds=Duration(5.0))
    state = failed(CLOSED, settings_, 0.0)
    assert state.name == "open"
    assert not admits(state, 4.9)
    state = started(state, settings_, 5.0)
    assert not admits(state, 5.1)  # the probe has the lease
    state = succeeded(state, settings_)
    assert (state.name, admits(state, 5.2)) == ("half-open", True)
    assert failed(started(state, settings_, 5.2), settings_, 5.3).until == 10.3
    assert succeeded(started(state, settings_, 5.2), settings_) == CLOSED
