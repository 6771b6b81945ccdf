"""The ramp as a state machine: up by itself, down by failures only, never stuck."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rheostat.resilience.ramp import RampSettings, begun, failed, share
from rheostat.types.duration import Duration


class Climb(RuleBasedStateMachine):
    """Time passes and calls fail."""

    @initialize(
        start=st.floats(0.01, 0.9), floor=st.floats(0.01, 0.5), seconds=st.floats(0.5, 600.0), aggression=st.floats(0.2, 5.0)
    )
    def begin(self, start: float, floor: float, seconds: float, aggression: float) -> None:
        self.settings = RampSettings(start=start, floor=floor, seconds=Duration(seconds), aggression=aggression)
        self.now = 100.0
        state = begun(self.settings, self.now)
        assert state is not None
        self.state = state
        assert share(state, self.settings, self.now) == max(start, floor)

    @rule(part=st.floats(0.0, 0.5))
    def wait(self, part: float) -> None:
        before = share(self.state, self.settings, self.now)
        self.now += part * self.settings.seconds
        assert share(self.state, self.settings, self.now) >= before, "it never falls by itself"

    @rule(age=st.floats(0.0, 30.0))
    def fail(self, age: float) -> None:
        before = share(self.state, self.settings, self.now)
        cut = failed(self.state, self.settings, self.now - age, self.now)
        now = share(cut, self.settings, self.now)
        if self.now - age < self.state.cut:
            assert cut is self.state, "of a round of failures only the first counts"
        else:
            assert now == pytest.approx(max(self.settings.floor, before / 2))
            self.state = cut

    @invariant()
    def it_stays_between_the_floor_and_one_and_always_arrives(self) -> None:
        assert self.settings.floor <= share(self.state, self.settings, self.now) <= 1.0
        assert share(self.state, self.settings, self.now + self.settings.seconds * 1.001) == 1.0


TestClimb = Climb.TestCase
TestClimb.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_the_defaults_climb_in_a_line_from_five_percent_to_all_in_a_minute() -> None:
    state = begun(RampSettings(), 1_000.0)
    assert state is not None
    shares = [share(state, RampSettings(), 1_000.0 + second) for second in (0, 3, 6, 30, 59, 60, 600)]
    assert shares == pytest.approx([0.05, 0.05, 0.1, 0.5, 59 / 60, 1.0, 1.0])


def test_aggression_climbs_faster_at_first() -> None:
    steep = RampSettings(aggression=2.0)
    state = begun(steep, 0.0)
    assert state is not None
    assert share(state, steep, 15.0) == pytest.approx(0.5)


def test_no_seconds_no_ramp() -> None:
    assert begun(RampSettings(seconds=Duration(0.0)), 0.0) is None
    assert begun(RampSettings(start=1.0), 0.0) is None


@pytest.mark.parametrize("wrong", [{"start": 0.0}, {"start": 1.1}, {"floor": 0.0}, {"aggression": 0.0}])
def test_settings_that_make_no_sense_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must"):
        RampSettings(**wrong)
