"""The budget controller: what is realised stays at the budget, whatever the traffic does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.resilience.spend import DAY_S, Spend, Spends, SpendSettings, spends_of

SHARE = Spend(name="large", settings=SpendSettings(share=0.2, models=("large",), step=0.1))


def threshold(spends: Spends, spend: Spend, wall: float = 0.0, tenant: str | None = None) -> float:
    return spends.signals((spend,), tenant, wall)[f"spend.{spend.name}"]


CONFIDENCES = st.lists(st.one_of(st.sampled_from([0.0, 1e-9, 1.0]), st.floats(0, 1)), min_size=1, max_size=400)


@given(CONFIDENCES, st.floats(0.02, 2.0), st.floats(0.01, 0.9), st.integers(0, 300))
def test_what_is_spent_keeps_its_bound_under_any_traffic(
    confidences: list[float], step: float, share: float, hardest: int
) -> None:
    spend = Spend(name="large", settings=SpendSettings(share=share, models=("large",), step=step))
    state, called, below = spend.begin(), 0, True
    first = state.odds
    traffic = [*([0.0] * hardest), *confidences]
    for confidence in traffic:
        goes_on = confidence < spend.told(state, 0.0)["spend.large"]
        called += goes_on
        state = spend.after(state, ("fast", "large") if goes_on else ("fast",), 1.0, 0.0)
        below = below and state.odds < 12.0
    beyond = called - share * len(traffic)
    assert beyond <= (first - state.odds) / step + 1e-6
    assert beyond <= 1.0 + (first + 12.0) / step + 1e-6
    if below:
        assert beyond == pytest.approx((first - state.odds) / step, abs=1e-6)
    assert (state.requests, state.used) == (len(traffic), called)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=300), st.floats(0.05, 1.0))
def test_a_mean_cost_keeps_its_bound_under_any_traffic(confidences: list[float], step: float) -> None:
    spend = Spend(name="c", settings=SpendSettings(cost=5.0, step=step), unit=20.0)
    state, total = spend.begin(), 0.0
    first = state.odds
    for confidence in confidences:
        cost = 21.0 if confidence < spend.told(state, 0.0)["spend.c"] else 1.0
        state, total = spend.after(state, ("any",), cost, 0.0), total + cost
    assert total - 5.0 * len(confidences) <= 20.0 * (1.05 + (first + 12.0) / step) + 1e-6


def test_a_shift_that_breaks_a_fixed_threshold_leaves_the_share_at_its_budget() -> None:
    spends, calls, fixed = Spends(), [], []
    for number in range(6_000):
        sure = (number * 0.6180339887) % 1.0
        confidence = sure if number < 3_000 else sure * 0.5  # from the half on everything is harder
        goes_on = confidence < threshold(spends, SHARE)
        spends.note((SHARE,), None, ("fast", "large") if goes_on else ("fast",), 1.0, 0.0)
        calls.append(goes_on)
        fixed.append(confidence < 0.2)
    assert sum(calls[1_000:3_000]) / 2_000 == pytest.approx(0.2, abs=0.01)
    assert sum(calls[4_000:]) / 2_000 == pytest.approx(0.2, abs=0.01)
    assert sum(fixed[4_000:]) / 2_000 == pytest.approx(0.4, abs=0.01)


def test_a_mean_cost_is_kept_in_units_of_the_dearest_model() -> None:
    (spend,) = spends_of({"cost": SpendSettings(cost=5.0)}, [1.0, 20.0]).values()
    spends, total = Spends(), 0.0
    for number in range(4_000):
        goes_on = (number * 0.6180339887) % 1.0 < threshold(spends, spend)
        cost = 21.0 if goes_on else 1.0
        total += cost if number >= 1_000 else 0.0
        spends.note((spend,), None, ("fast", "large") if goes_on else ("fast",), cost, 0.0)
    assert total / 3_000 == pytest.approx(5.0, abs=0.1)
    assert spends.used(spend) == pytest.approx(5.0, abs=0.5)


def test_a_day_ends_at_its_budget_and_begins_anew() -> None:
    spend = Spend(name="d", settings=SpendSettings(day=10.0))
    spends = Spends()
    spends.note((spend,), None, ("large",), 9.0, wall=DAY_S * 3 + 5)
    assert spends.signals((spend,), None, DAY_S * 3 + 6) == {"spend.d": pytest.approx(0.9), "spend.d.left": 1.0}
    spends.note((spend,), None, ("large",), 2.0, wall=DAY_S * 3 + 7)
    assert spends.signals((spend,), None, DAY_S * 3 + 8) == {"spend.d": 0.0, "spend.d.left": 0.0}
    assert spends.signals((spend,), None, DAY_S * 4) == {"spend.d": pytest.approx(0.9), "spend.d.left": 10.0}


def test_tenants_have_budgets_of_their_own_and_only_so_many_are_kept() -> None:
    spend = Spend(name="t", settings=SpendSettings(day=10.0, per="tenant"))
    spends = Spends(limit=2)
    for tenant in ("a", "b", None):
        spends.note((spend,), tenant, ("large",), 10.0, 0.0)
    assert threshold(spends, spend, tenant="b") == 0.0
    assert threshold(spends, spend, tenant=None) == 0.0
    assert threshold(spends, spend, tenant="a") == pytest.approx(0.9)  # the least recently used began anew


def test_a_request_that_called_nothing_moves_nothing() -> None:
    spends = Spends()
    spends.note((SHARE,), None, (), 0.0, 0.0)
    assert spends.used(SHARE) == 0.0
    assert spends.threshold(SHARE) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "nothing is limited"),
        ({"share": 0.2}, "belong together"),
        ({"share": 0.2, "models": ("a",), "cost": 1.0}, "keep one"),
        ({"share": 1.0, "models": ("a",)}, "between 0 and 1"),
        ({"cost": 0.0}, "above 0"),
        ({"day": float("nan")}, "finite"),
        ({"day": 1.0, "start": 1.0}, "`start`"),
        ({"day": 1.0, "step": 0.0}, "`step`"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SpendSettings(**fields)  # type: ignore[arg-type]


def test_a_budget_that_counts_another_thing_after_a_reload_begins_anew() -> None:
    spends = Spends()
    spends.note((SHARE,), None, ("large",), 40.0, 0.0)
    by_cost = Spend(name="large", settings=SpendSettings(cost=5.0), unit=40.0)
    assert (spends.used(SHARE), spends.used(by_cost)) == (1.0, 0.0)
