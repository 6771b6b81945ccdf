from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.resilience.limit import LimitSettings, answered, begin, dropped

KINDS: tuple[Literal["gradient", "aimd"], ...] = ("gradient", "aimd")


@given(
    st.sampled_from(KINDS),
    st.lists(st.one_of(st.none(), st.tuples(st.floats(0, 100), st.integers(0, 300))), max_size=200),
)
def test_the_limit_stays_between_its_ends(kind: Literal["gradient", "aimd"], events: list[tuple[float, int] | None]) -> None:
    settings = LimitSettings(kind=kind, least=2, most=50)
    state = begin(settings)
    for number, event in enumerate(events):
        state = dropped(state, settings, float(number)) if event is None else answered(state, settings, *event)
        assert 2.0 <= state.limit <= 50.0


@pytest.mark.parametrize("kind", KINDS)
def test_it_grows_while_it_is_used_and_quick(kind: Literal["gradient", "aimd"]) -> None:
    settings = LimitSettings(kind=kind)
    used = idle = begin(settings)
    for _ in range(500):
        used, idle = answered(used, settings, 0.1, int(used.limit)), answered(idle, settings, 0.1, 1)
    assert used.limit > begin(settings).limit == idle.limit


def test_a_model_ten_times_slower_gets_less() -> None:
    settings = LimitSettings()
    state = begin(settings)
    for _ in range(500):
        state = answered(state, settings, 0.1, int(state.limit))
    before = state.limit
    for _ in range(100):
        state = answered(state, settings, 1.0, int(state.limit))
    assert state.limit < before


def test_many_dropped_at_once_count_as_one() -> None:
    settings = LimitSettings(kind="aimd")
    state = answered(begin(settings), settings, 1.0, 0)
    once = dropped(state, settings, 10.0)
    assert once.limit == pytest.approx(18.0)
    assert dropped(once, settings, 10.5) == once
    assert dropped(once, settings, 11.0).limit < once.limit


def test_wrong_ends_are_named() -> None:
    with pytest.raises(ValueError, match="`least`"):
        LimitSettings(least=10, most=5)
