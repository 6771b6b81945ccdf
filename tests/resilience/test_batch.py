"""When a batch goes and how many rows it takes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.resilience.batch import (
    ALONE,
    DEADLINE,
    ENOUGH,
    FULL,
    TARGET,
    WAITED,
    Arrivals,
    BatchSettings,
    Pace,
    arrived,
    decide,
    evenly,
    limit_after,
    too_late,
    took,
)
from rheostat.types.duration import Duration

NEVER = float("inf")
SETTINGS = BatchSettings(max_rows=32, max_wait=Duration(0.02))
FIXED = Pace(per_row=0.0001, fixed=0.002)
"""A call costs two milliseconds and a tenth more for every row: company pays."""


def waiting(
    rows: int, *, pace: Pace = FIXED, gap: float = 0.0001, last: float = 10.0, oldest: float = 10.0, now: float = 10.0,
    settings: BatchSettings = SETTINGS, due: float = NEVER, limit: int = 32,
) -> tuple[int, str]:  # fmt: skip
    verdict = decide(settings, pace, Arrivals(gap, last), limit, [due] * rows, rows, oldest, now)
    return verdict.take, verdict.reason


def test_the_line_is_found() -> None:
    pace = Pace()
    for rows in (1, 8, 3, 20, 2, 32, 5, 1, 16, 9) * 3:
        pace = took(pace, rows, 0.0001 * rows + 0.002)
    assert pace.per_row == pytest.approx(0.0001, rel=0.15)
    assert pace.fixed == pytest.approx(0.002, rel=0.15)


def test_calls_of_one_size_say_nothing_of_a_fixed_part() -> None:
    pace = Pace()
    for _ in range(50):
        pace = took(pace, 8, 0.004)
    assert pace.fixed == pytest.approx(0.0, abs=1e-9)
    assert pace.expects(8) == pytest.approx(0.004)


def test_one_accident_does_not_spoil_the_line_and_a_slower_model_is_believed() -> None:
    pace = Pace()
    for rows in (1, 8) * 10:
        pace = took(pace, rows, 0.0001 * rows + 0.002)
    assert took(pace, 8, 60.0).expects(8) < 0.004
    for rows in (1, 8) * 60:
        pace = took(pace, rows, 0.1)
    assert pace.expects(8) == pytest.approx(0.1, rel=0.1)


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0.0, 1e4)), min_size=1, max_size=60))
def test_the_line_never_falls_and_never_starts_below_nothing(calls: list[tuple[int, float]]) -> None:
    pace = Pace()
    for rows, seconds in calls:
        pace = took(pace, rows, seconds)
        assert pace.per_row >= 0.0
        assert pace.fixed >= 0.0
        assert pace.expects(1000) < 1e9


def test_what_is_not_known_to_pay_is_not_waited_for() -> None:
    assert waiting(1, pace=Pace()) == (1, ALONE)
    assert waiting(3, pace=Pace(per_row=0.001)) == (3, ENOUGH)  # no fixed part: company saves nothing
    assert waiting(1, gap=NEVER) == (1, ALONE)
    assert waiting(1, gap=1.0) == (1, ALONE)  # the next one is a second away


def test_waiting_ends_when_one_more_no_longer_pays() -> None:
    sizes = [rows for rows in range(1, 32) if waiting(rows)[0] == 0]
    assert sizes == list(range(1, 10))  # fixed > per_row * n + gap * (n + 1): 2 > .1 n + .1 (n + 1)
    assert waiting(10) == (10, ENOUGH)


def test_waiting_ends_when_nobody_comes_or_the_time_is_over() -> None:
    verdict = decide(SETTINGS, FIXED, Arrivals(0.0001, 10.0), 32, [NEVER], 1, 10.0, 10.0)
    assert verdict.until == pytest.approx(10.0 + (0.002 - 0.0001) / 2)  # then the traffic has stopped
    assert waiting(1, now=verdict.until) == (1, ENOUGH)
    assert waiting(2, now=10.021, last=10.021) == (2, WAITED)


def test_a_full_batch_goes_and_takes_no_more() -> None:
    assert waiting(32) == (32, FULL)
    assert waiting(100) == (32, FULL)
    assert waiting(100, limit=7) == (7, FULL)


def test_the_target_bounds_the_size() -> None:
    settings = BatchSettings(max_rows=32, target=Duration(0.0025))
    assert waiting(20, settings=settings) == (5, TARGET)
    assert waiting(20, settings=BatchSettings(target=Duration(0.001))) == (1, TARGET)  # not to be had: as small as can be


def test_deadlines_bound_the_wait_and_the_size() -> None:
    assert waiting(1, due=10.0021) == (1, DEADLINE)
    verdict = decide(SETTINGS, FIXED, Arrivals(0.0001, 10.0), 32, [10.0025], 1, 10.0, 10.0)
    assert verdict.until == pytest.approx(10.0025 - FIXED.expects(2))
    dues = [NEVER, 10.0026, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER]
    assert decide(SETTINGS, FIXED, Arrivals(), 32, dues, 8, 10.0, 10.0)[:2] == (6, DEADLINE)


def test_rows_that_would_be_late_make_room_for_others() -> None:
    soon, later = 10.0 + FIXED.expects(1) - 1e-6, 20.0
    assert too_late(FIXED, 8, [soon, later], False, 10.0) == 10.0 + FIXED.expects(1)
    assert too_late(FIXED, 8, [soon, soon], False, 10.0) == -NEVER  # nobody else wants the place: it is tried
    assert too_late(FIXED, 8, [soon, soon], True, 10.0) == 10.0 + FIXED.expects(1)
    assert too_late(Pace(), 8, [10.0001], True, 10.0) == 10.0  # nothing is known: nobody is late


def test_a_full_call_is_not_cut_short_for_one_that_has_little_time() -> None:
    tight = 10.0 + FIXED.expects(3)
    assert too_late(FIXED, 8, [tight, *[20.0] * 8], False, 10.0) == 10.0 + FIXED.expects(8)
    assert too_late(FIXED, 8, [tight, *[20.0] * 7], False, 10.0) == 10.0 + FIXED.expects(1)


def test_rows_of_many_kinds_find_less_company() -> None:
    alone = decide(SETTINGS, FIXED, Arrivals(0.0001, 10.0), 32, [NEVER], 1, 10.0, 10.0, 0.05)
    assert alone[:2] == (1, ALONE)


def test_the_gap_follows_the_traffic_and_forgets_a_pause() -> None:
    arrivals = Arrivals()
    for number in range(100):
        arrivals = arrived(arrivals, number * 0.001, 0.05)
    assert arrivals.gap == pytest.approx(0.001)
    arrivals = arrived(arrivals, 3_600.0, 0.05)
    assert arrivals.gap < 0.008
    assert arrived(Arrivals(), 5.0, 0.05) == Arrivals(NEVER, 5.0)


def test_the_limit_halves_for_memory_and_overlong_calls_and_climbs_by_one() -> None:
    settings = BatchSettings(max_rows=16, target=Duration(0.01))
    assert limit_after(16, settings, 12, 0.001, out_of_memory=True) == 6
    assert limit_after(1, settings, 1, 0.001, out_of_memory=True) == 1
    assert limit_after(16, settings, 16, 0.03, out_of_memory=False) == 8
    assert limit_after(8, settings, 8, 0.005, out_of_memory=False) == 9
    assert limit_after(8, settings, 3, 0.005, out_of_memory=False) == 8
    assert limit_after(16, settings, 16, 0.005, out_of_memory=False) == 16


@given(
    rows=st.integers(1, 60), limit=st.integers(1, 40), per_row=st.floats(0, 0.01), fixed=st.floats(0, 0.1),
    gap=st.one_of(st.just(NEVER), st.floats(0, 1)), since=st.floats(0, 0.1), age=st.floats(0, 0.1), target=st.floats(0, 0.1),
    dues=st.lists(st.one_of(st.just(NEVER), st.floats(9, 12)), min_size=60, max_size=60),
)  # fmt: skip
def test_a_decision_takes_some_or_says_until_when(
    rows: int, limit: int, per_row: float, fixed: float, gap: float, since: float, age: float, target: float,
    dues: list[float],
) -> None:  # fmt: skip
    settings = BatchSettings(max_rows=32, max_wait=Duration(0.02), target=Duration(target))
    oldest = 10.0 - age
    verdict = decide(
        settings, Pace(per_row, fixed), Arrivals(gap, 10.0 - since), limit, dues[:rows], rows, oldest, 10.0
    )  # fmt: skip
    if verdict.take:
        assert 1 <= verdict.take <= min(rows, limit, 32)
        assert verdict.until == 10.0
    else:
        assert 10.0 < verdict.until <= oldest + 0.02
        assert rows < limit


@pytest.mark.parametrize("wrong", [{"max_rows": 1}, {"max_rows": 5_000}, {"instances": 0}, {"instances": 65}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}`"):
        BatchSettings(**wrong)  # type: ignore[arg-type]


@given(st.integers(2, 400), st.integers(1, 8), st.data())
def test_calls_of_clients_that_come_back_together_become_alike(clients: int, instances: int, data: st.DataObject) -> None:
    """However unevenly they begin, after two rounds each call has its even share, to a row."""
    shares = sorted(data.draw(st.lists(st.integers(0, clients), min_size=instances, max_size=instances)))
    bounds = [0, *shares, clients]
    sizes = [after - before for before, after in pairwise(bounds)]
    *running, waiting = sizes
    before = clients
    for _ in range(2 * (instances + 1)):
        back = running.pop(0)
        take = evenly(waiting, waiting, back, sum(running), before, instances)
        assert 0 <= take <= waiting
        running.append(take)
        waiting += back - take
    assert max(running) <= -(-clients // (instances + 1))
    assert waiting + sum(running) == clients


def test_a_burst_is_not_held_up() -> None:
    assert evenly(31, 31, 1, 0, 0, 1) == 31  # the first call since the model was idle
    assert evenly(31, 31, 1, 0, 8, 1) == 31  # many more than there were
    assert evenly(26, 26, 6, 0, 32, 1) == 16
