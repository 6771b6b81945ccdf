from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.resilience.queue import FairQueue

TENANTS = st.sampled_from([None, "a", "b", "c"])
ARRIVALS = st.lists(st.tuples(st.integers(0, 2), TENANTS), max_size=30)


def queue_of(arrivals: list[tuple[int, str | None]]) -> FairQueue[int]:
    queue: FairQueue[int] = FairQueue()
    for number, (rank, tenant) in enumerate(arrivals):
        queue.add(number, rank, tenant)
    return queue


def drained(queue: FairQueue[int]) -> list[int]:
    order = []
    while (waiter := queue.pop()) is not None:
        order.append(waiter)
    return order


def test_by_rank_then_in_turn_over_tenants_then_first_come() -> None:
    queue = queue_of([(2, "x"), (1, "a"), (1, "a"), (1, "a"), (1, "b"), (0, "a")])
    assert drained(queue) == [5, 1, 4, 2, 3, 0]
    assert queue.pop() is None
    assert len(queue) == 0


def test_a_waiter_stands_in_the_queue_once() -> None:
    queue = queue_of([(1, None)])
    with pytest.raises(ValueError, match="already"):
        queue.add(0, 0, "t")
    assert queue.remove(0)
    assert not queue.remove(0)
    assert len(queue) == 0


@given(ARRIVALS)
def test_the_order_law(arrivals: list[tuple[int, str | None]]) -> None:
    order = drained(queue_of(arrivals))
    assert sorted(order) == list(range(len(arrivals)))
    ranks = [arrivals[waiter][0] for waiter in order]
    assert ranks == sorted(ranks)
    for rank in set(ranks):
        mine = [waiter for waiter in order if arrivals[waiter][0] == rank]
        lines = {arrivals[waiter][1] for waiter in mine}
        for tenant in lines:
            line = [waiter for waiter in mine if arrivals[waiter][1] == tenant]
            assert line == sorted(line)  # first come within a tenant
            places = [mine.index(waiter) for waiter in line]
            for at, after in pairwise(places):  # nobody else twice between two of one tenant
                between = [arrivals[waiter][1] for waiter in mine[at + 1 : after]]
                assert len(between) == len(set(between))


@given(ARRIVALS, st.integers(0, 2), TENANTS)
def test_how_many_go_first(arrivals: list[tuple[int, str | None]], rank: int, tenant: str | None) -> None:
    queue = queue_of(arrivals)
    told = queue.ahead(rank, tenant)
    mine = len(arrivals)
    queue.add(mine, rank, tenant)
    before = drained(queue).index(mine)
    assert before <= told <= before + 3  # within one turn of the other tenants
    if (rank, tenant) not in arrivals:
        assert told == before


@given(ARRIVALS, st.integers(0, 2), TENANTS)
def test_who_has_to_make_room(arrivals: list[tuple[int, str | None]], rank: int, tenant: str | None) -> None:
    queue = queue_of(arrivals)
    gone = queue.displaced(rank, tenant)
    assert len(queue) == len(arrivals)
    worst = max((each for each, _ in arrivals), default=None)
    if gone is None:
        if worst is not None and worst >= rank:
            assert worst == rank
            mine = arrivals.count((rank, tenant))
            assert all(arrivals.count((rank, other)) <= mine + 1 for _, other in arrivals)
        return
    lost, whose = arrivals[gone]
    assert lost == worst
    assert lost >= rank
    assert gone == max(at for at, arrival in enumerate(arrivals) if arrival == (lost, whose))  # the last of its line
    if lost == rank:
        assert arrivals.count((lost, whose)) - 1 >= arrivals.count((rank, tenant)) + 1


@given(st.lists(st.tuples(st.sampled_from(["add", "pop", "remove"]), st.integers(0, 2), TENANTS)))
def test_nobody_is_lost_or_served_twice(steps: list[tuple[str, int, str | None]]) -> None:
    queue: FairQueue[int] = FairQueue()
    inside: dict[int, int] = {}
    for number, (what, rank, tenant) in enumerate(steps):
        if what == "add":
            queue.add(number, rank, tenant)
            inside[number] = rank
        elif what == "pop":
            best = min(inside.values(), default=None)
            waiter = queue.pop()
            assert (waiter is None) == (best is None)
            if waiter is not None:
                assert inside.pop(waiter) == best
        elif inside:
            gone = min(inside)
            del inside[gone]
            assert queue.remove(gone)
        assert len(queue) == len(inside)
