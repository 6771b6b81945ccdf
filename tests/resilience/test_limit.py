from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rheostat.resilience.limit import BACK_OFF, LimitSettings, answered, begin, dropped

Kind = Literal["gradient", "aimd"]
KINDS: tuple[Kind, ...] = ("gradient", "aimd")


class LimitMachine(RuleBasedStateMachine):
    """Calls begin, are answered or dropped, in any order."""

    @initialize(kind=st.sampled_from(KINDS), least=st.integers(1, 30), more=st.integers(0, 100))
    def start(self, kind: Kind, least: int, more: int) -> None:
        self.settings = LimitSettings(kind=kind, least=least, most=least + more)
        self.state = begin(self.settings)
        self.now = 0.0
        self.running: list[float] = []

    @rule(gap=st.floats(0.0, 5.0))
    def a_call_begins(self, gap: float) -> None:
        self.now += gap
        if len(self.running) < int(self.state.limit):
            self.running.append(self.now)

    @rule(gap=st.floats(0.0, 5.0), which=st.integers(0, 200))
    def a_call_is_answered(self, gap: float, which: int) -> None:
        if not self.running:
            return
        self.now += gap
        before, in_flight = self.state.limit, len(self.running)
        began = self.running.pop(which % in_flight)
        self.state = answered(self.state, self.settings, self.now - began, in_flight)
        if 2 * in_flight < before:
            assert self.state.limit == before
        if self.settings.kind == "aimd":
            assert self.state.limit >= before  # a slow answer is no reason

    @rule(gap=st.floats(0.0, 5.0), which=st.integers(0, 200))
    def a_call_is_dropped(self, gap: float, which: int) -> None:
        if not self.running:
            return
        self.now += gap
        before, shrunk_at = self.state.limit, self.state.shrunk_at
        began = self.running.pop(which % len(self.running))
        self.state = dropped(self.state, self.settings, began, self.now)
        if began < shrunk_at:
            assert self.state.limit == before
        else:
            assert self.state.limit == max(self.settings.least, before * BACK_OFF)

    @invariant()
    def it_stays_between_its_ends(self) -> None:
        if hasattr(self, "state"):
            assert self.settings.least <= self.state.limit <= self.settings.most
            assert int(self.state.limit) >= 1


TestLimitMachine = LimitMachine.TestCase


@pytest.mark.parametrize("kind", KINDS)
def test_it_grows_while_it_is_used_and_quick(kind: Kind) -> None:
    settings = LimitSettings(kind=kind)
    used = idle = begin(settings)
    for _ in range(500):
        used, idle = answered(used, settings, 0.1, int(used.limit)), answered(idle, settings, 0.1, 1)
    assert used.limit > begin(settings).limit == idle.limit


@pytest.mark.parametrize("kind", KINDS)
def test_it_finds_its_way_up_from_one(kind: Kind) -> None:
    settings = LimitSettings(kind=kind, most=10)
    state = begin(settings)._replace(limit=1.0)
    for _ in range(200):
        state = answered(state, settings, 0.1, int(state.limit))
    assert state.limit == 10.0


def test_a_model_ten_times_slower_gets_less() -> None:
    settings = LimitSettings()
    state = begin(settings)
    for _ in range(500):
        state = answered(state, settings, 0.1, int(state.limit))
    before = state.limit
    for _ in range(100):
        state = answered(state, settings, 1.0, int(state.limit))
    assert state.limit < before


def test_of_calls_that_were_dropped_together_one_counts() -> None:
    settings = LimitSettings(kind="aimd")
    state = begin(settings)
    once = dropped(state, settings, 0.0, 2.0)
    assert once.limit == pytest.approx(18.0)
    for late in range(20):  # they ran beside the first one, and end one after another
        once = dropped(once, settings, 0.1 * late - 0.1, 2.0 + 0.1 * late)
    assert once.limit == pytest.approx(18.0)
    assert dropped(once, settings, 2.0, 4.0).limit == pytest.approx(16.2)


@given(st.integers(-3, 0))
def test_wrong_ends_are_named(least: int) -> None:
    for settings in ({"least": 10, "most": 5}, {"least": least}):
        with pytest.raises(ValueError, match="`least`"):
            LimitSettings(**settings)
