from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.resilience.retry import WINDOW_S, RetryBudgetSettings, called, full, taken


@given(st.floats(0, 1), st.floats(0, 20), st.lists(st.floats(0, 3), max_size=200))
def test_a_storm_stays_within_the_share_and_the_floor(share: float, least: float, gaps: list[float]) -> None:
    settings = RetryBudgetSettings(share=share, least=least)
    state, now, retries = full(settings, 0.0), 0.0, 0
    for gap in gaps:
        now += gap
        state = called(state, settings, 1, now)
        while (spent := taken(state)) is not None:
            state, retries = spent, retries + 1
    assert retries <= share * len(gaps) + least * (now + WINDOW_S) + 1e-6


def test_what_is_not_used_fades() -> None:
    settings = RetryBudgetSettings(share=0.2, least=0.0)
    busy = called(full(settings, 0.0), settings, 100, 0.0)
    assert busy.tokens == pytest.approx(20.0)
    assert taken(called(busy, settings, 0, 60.0)) is None


@pytest.mark.parametrize(
    ("field", "value"), [("share", 1.5), ("share", float("nan")), ("least", -1.0), ("least", float("inf"))]
)
def test_a_wrong_setting_is_named(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"`{field}`"):
        RetryBudgetSettings(**{field: value})
