from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.resilience.queue import FairQueue


def drained(queue: FairQueue[str]) -> list[str | None]:
    return [queue.pop() for _ in range(len(queue))]


def test_by_priority_then_in_turn_over_tenants_then_first_come() -> None:
    queue: FairQueue[str] = FairQueue()
    for waiter, priority, tenant in [
        ("l", 2, "x"),
        ("a1", 1, "a"),
        ("a2", 1, "a"),
        ("a3", 1, "a"),
        ("b1", 1, "b"),
        ("h", 0, "a"),
    ]:
        queue.add(waiter, priority, tenant)
    assert drained(queue) == ["h", "a1", "b1", "a2", "a3", "l"]
    assert queue.pop() is None


def test_a_waiter_stands_in_the_queue_once() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.add("a", 1, None)
    with pytest.raises(ValueError, match="already"):
        queue.add("a", 0, "t")
    assert queue.remove("a")
    assert not queue.remove("a")
    assert len(queue) == 0


@given(st.lists(st.tuples(st.sampled_from(["add", "pop", "remove"]), st.integers(0, 2), st.sampled_from([None, "a", "b"]))))
def test_nobody_is_lost_or_served_twice(steps: list[tuple[str, int, str | None]]) -> None:
    queue: FairQueue[int] = FairQueue()
    inside: dict[int, int] = {}
    for number, (what, priority, tenant) in enumerate(steps):
        if what == "add":
            queue.add(number, priority, tenant)
            inside[number] = priority
        elif what == "pop":
            waiter = queue.pop()
            assert (waiter is None) == (not inside)
            if waiter is not None:
                assert inside.pop(waiter) == min([*inside.values(), priority_of(steps, waiter)])
        elif inside:
            gone = min(inside)
            del inside[gone]
            assert queue.remove(gone)
        assert len(queue) == len(inside)


def priority_of(steps: list[tuple[str, int, str | None]], waiter: int) -> int:
    return steps[waiter][1]
