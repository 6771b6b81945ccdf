"""Health as a state machine, and whom checks may take out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rheostat.resilience.health import (
    UNCHECKED,
    EjectionSettings,
    HealthSettings,
    HealthState,
    delay_s,
    ejected,
    failed,
    passed,
    served,
)
from rheostat.types.duration import Duration


class Checks(RuleBasedStateMachine):
    """Checks end well and badly, and requests are answered in between."""

    @initialize(unhealthy=st.integers(1, 4), healthy=st.integers(1, 3))
    def begin(self, unhealthy: int, healthy: int) -> None:
        self.settings = HealthSettings(interval=Duration(2.0), unhealthy=unhealthy, healthy=healthy)
        self.state: HealthState = UNCHECKED
        self.now = 10.0
        self.bad = self.good = 0  # in a row, any kind of sign

    @rule()
    def wait(self) -> None:
        self.now += 1.0

    @rule()
    def bad_check(self) -> None:
        self.state = failed(self.state, self.settings, "no", self.now)
        self.bad, self.good = self.bad + 1, 0

    @rule()
    def good_check(self) -> None:
        self.state = passed(self.state, self.settings, self.now)
        self.bad, self.good = 0, self.good + 1

    @rule(took=st.floats(0.0, 5.0))
    def answered(self, took: float) -> None:
        before = self.state
        self.state = served(before, self.settings, self.now - took, self.now)
        if self.now - took >= before.since and self.state is not before:
            self.bad, self.good = 0, self.good + 1

    @invariant()
    def only_a_row_of_signs_turns_it(self) -> None:
        if self.bad >= self.settings.unhealthy:
            assert not self.state.healthy
        if self.good >= self.settings.healthy:
            assert self.state.healthy
        if self.state.healthy:
            assert self.state.failed < self.settings.unhealthy
        else:
            assert self.state.good < self.settings.healthy

    @invariant()
    def it_can_always_come_back_and_the_next_check_is_bounded(self) -> None:
        state = self.state
        for _ in range(self.settings.healthy):
            state = passed(state, self.settings, self.now)
        assert state.healthy
        assert 0.9 * 2.0 <= delay_s(self.state, self.settings, "a") <= 1.1 * 2.0 * 8


TestChecks = Checks.TestCase
TestChecks.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_the_wait_doubles_while_it_stays_unhealthy_and_no_two_models_keep_step() -> None:
    each = HealthSettings(interval=Duration(1.0))
    state, waits = UNCHECKED, []
    for _ in range(9):
        state = failed(state, each, "no", 0.0)
        waits.append(delay_s(state, each, "a"))
    assert waits == pytest.approx([1, 1, 1, 2, 4, 8, 8, 8, 8], rel=0.1)
    assert delay_s(passed(state, each, 1.0), each, "a") == pytest.approx(1.0, rel=0.1)  # a good sign: look again soon
    assert delay_s(state, each, "a") != delay_s(state, each, "b")


def test_an_answer_to_a_call_from_before_the_verdict_does_not_bring_it_back() -> None:
    one = HealthSettings(interval=Duration(1.0), unhealthy=1, healthy=1)
    ill = failed(UNCHECKED, one, "503", 10.0)
    assert served(ill, one, 9.0, 11.0) is ill
    assert served(ill, one, 10.5, 11.0).healthy


NAMES = ("a", "b", "c", "d", "e")


@given(
    st.dictionaries(st.sampled_from(NAMES), st.floats(0, 100)),
    st.sets(st.sampled_from(NAMES)),
    st.lists(st.sets(st.sampled_from(NAMES), min_size=1), min_size=1),
    st.sampled_from([0.0, 0.34, 0.5, 1.0]),
)
def test_checks_never_empty_a_route(unhealthy: dict[str, float], out: set[str], groups: list[set[str]], most: float) -> None:
    gone = ejected(unhealthy, out, groups, most)
    assert gone <= set(unhealthy)
    by_checks = gone - out
    for group in groups:
        if by_checks & group:
            assert len((gone | out) & group) <= most * len(group)
    assert gone == ejected(dict(reversed(unhealthy.items())), out, groups, most), "it does not depend on the order"
    left = set(unhealthy) - gone
    for name in left:  # and nobody is spared who need not be
        assert any(name in group and len((gone | out | {name}) & group) > most * len(group) for group in groups)


def test_whoever_fell_ill_first_goes_first() -> None:
    assert ejected({"a": 2.0, "b": 1.0}, (), [("a", "b", "c")], 0.5) == {"b"}
    assert ejected({"a": 2.0, "b": 1.0}, ("c",), [("a", "b", "c")], 0.5) == frozenset()
    assert ejected({"a": 2.0}, (), [("a",)], 0.5) == frozenset()
    assert ejected({"a": 2.0}, (), [("a",)], 1.0) == {"a"}


@pytest.mark.parametrize(
    "wrong", [{"unhealthy": 0}, {"healthy": 0}, {"timeout": Duration(0.0)}, {"url": "file:///etc/passwd"}]
)
def test_settings_that_make_no_sense_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must"):
        HealthSettings(**wrong)
    with pytest.raises(ValueError, match="`max_ejected` must"):
        EjectionSettings(max_ejected=1.5)
