"""Finding the rows that are to blame."""

from __future__ import annotations

from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from rheostat.resilience.isolation import GIVE_UP, Isolation


def isolate(count: int, bad: set[int]) -> tuple[list[str], int]:
    """Return the answers and the number of further calls, of a model that fails as a whole when a bad row is there."""
    search = Isolation(list(range(count)), ["failed"] * count)
    calls = 0
    while (part := search.part) is not None:
        calls += 1
        rows = search.rows[part]
        failed = not bad.isdisjoint(rows)
        search.told(["failed" if failed else f"{row}" for row in rows], failed)
    return search.answers, calls


@given(st.integers(2, 200), st.data())
def test_every_good_row_has_its_own_answer_within_a_bounded_number_of_calls(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=GIVE_UP - 1))
    answers, calls = isolate(count, bad)
    assert answers == ["failed" if row in bad else f"{row}" for row in range(count)]
    assert calls <= 1.5 * count + 2


@given(st.integers(2, 300), st.data())
def test_one_bad_row_costs_about_twice_the_logarithm(count: int, data: st.DataObject) -> None:
    _, calls = isolate(count, {data.draw(st.integers(0, count - 1))})
    assert calls <= 2 * ceil(log2(count)) + 2


@given(st.integers(2, 400))
def test_a_model_that_answers_nothing_is_left_alone(count: int) -> None:
    answers, calls = isolate(count, set(range(count)))
    assert answers == ["failed"] * count
    assert calls <= 2 * ceil(log2(count)) + GIVE_UP


@given(st.integers(9, 200))
def test_good_rows_behind_many_bad_ones_are_answered(count: int) -> None:
    bad = set(range(count // 2))
    answers, calls = isolate(count, bad)
    assert answers == ["failed" if row in bad else f"{row}" for row in range(count)]
    assert calls <= 1.5 * count + 2


@given(st.integers(8, 200), st.data())
def test_many_bad_rows_after_a_good_one_are_all_found(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(2, count - 1), min_size=1))
    answers, calls = isolate(count, bad)
    assert answers == ["failed" if row in bad else f"{row}" for row in range(count)]
    assert calls <= 1.5 * count + 2


def test_eight_rows_with_one_bad_take_six_further_calls() -> None:
    assert isolate(8, {4}) == (["0", "1", "2", "3", "failed", "5", "6", "7"], 6)
    assert Isolation(["alone"], ["failed"]).part is None
