"""Who is let in: less urgent requests are refused sooner, a tenant has its own limit, and every count comes back to zero."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import structs

from rheostat.engine.admission import Admission, room_for
from rheostat.errors import Overloaded, TooMany
from rheostat.testing import Act, run_virtual, scripted_model
from rheostat.types import Prediction, Request
from rheostat.types.priority import RANKS, Priority, lower_of
from tests.engine.test_engine import Bench

PRIORITIES: tuple[Priority, ...] = ("high", "normal", "low")
TENANTS = {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("most", "rooms"), [(1, (2, 1, 1)), (2, (3, 2, 2)), (5, (6, 5, 4)), (10, (11, 10, 8)), (100, (110, 100, 80))]
)
def test_how_many_of_each_priority(most: int, rooms: tuple[int, int, int]) -> None:
    assert tuple(room_for(priority, most) for priority in PRIORITIES) == rooms


def test_the_lower_of_two() -> None:
    assert [lower_of("normal", each) for each in PRIORITIES] == ["normal", "normal", "low"]
    assert [lower_of(each, "high") for each in PRIORITIES] == ["high", "normal", "low"]


class AdmissionMachine(RuleBasedStateMachine):
    """Requests come and go in any order, under a limit that a reload may change."""

    def __init__(self) -> None:
        super().__init__()
        self.admission = Admission()
        self.inside: list[tuple[str | None, str | None]] = []  # tenant, what `enter` returned
        self.most = 5

    @rule(most=st.integers(0, 12))
    def the_config_changes(self, most: int) -> None:
        self.most = most

    @rule(
        priority=st.sampled_from(PRIORITIES),
        tenant=st.sampled_from([None, "a", "b", "other"]),
        completing=st.booleans(),
        limited=st.booleans(),
    )
    def one_comes(self, priority: Priority, tenant: str | None, completing: bool, limited: bool) -> None:
        request = Request(id="r", data="x", tenant=tenant, priority=priority, completing=completing)
        tenants = TENANTS if limited else {}
        counted = sum(held == tenant for _, held in self.inside) if tenant is not None else 0
        try:
            held = self.admission.enter(request, self.most, tenants)
        except TooMany:
            assert limited
            assert not completing
            assert counted >= TENANTS[tenant or ""]
            return
        except Overloaded:
            assert self.most
            assert len(self.inside) >= room_for(priority, self.most)
            return
        assert not self.most or len(self.inside) < room_for(priority, self.most)
        if held is not None:
            assert held == tenant
            assert counted < TENANTS[held]
        self.inside.append((tenant, held))

    @rule(which=st.integers(0, 50), elapsed=st.floats(0, 10))
    def one_goes(self, which: int, elapsed: float) -> None:
        if self.inside:
            _, held = self.inside.pop(which % len(self.inside))
            self.admission.leave(held, elapsed)

    @invariant()
    def the_counts_are_true(self) -> None:
        assert self.admission.in_flight == len(self.inside)
        assert sum(self.admission._tenants.values()) == sum(held is not None for _, held in self.inside)

    def teardown(self) -> None:
        for _, held in self.inside:
            self.admission.leave(held, 1.0)
        assert self.admission.in_flight == 0
        assert not self.admission._tenants


TestAdmissionMachine = AdmissionMachine.TestCase


def test_low_is_shed_first_and_high_has_a_reserve() -> None:
    bench = Bench("a", {"a": scripted_model("a", Act(Prediction("x", 1.0), 3.0))})
    bench.plan = structs.replace(bench.plan, max_in_flight=5, tenants={"t": 1})

    async def story() -> list[Any]:
        await bench.one("before", {})  # so that it is known how long a request takes
        tasks = [asyncio.ensure_future(bench.one(f"n{number}", {})) for number in range(4)]
        await asyncio.sleep(0.1)
        seen = [await bench.one("low", {"priority": "low"})]
        tasks += [asyncio.ensure_future(bench.one("normal", {}))]
        await asyncio.sleep(0)
        seen += [await bench.one("too many", {})]
        tasks += [asyncio.ensure_future(bench.one("high", {"priority": "high", "tenant": "t"}))]
        await asyncio.sleep(0)
        seen += [await bench.one("too high", {"priority": "high"})]
        seen += [await bench.one("second", {"priority": "high", "tenant": "t"})]
        assert all(served.error is None for served in await asyncio.gather(*tasks))
        return seen

    *shed, second = run_virtual(story(), bench.loop)
    for served, told in zip(
        shed, ("low priority is let in below 4", "normal priority is let in below 5", "high"), strict=True
    ):
        assert isinstance(served.error, Overloaded)
        assert told in str(served.error)
        assert served.error.retry_after_s == pytest.approx(3.0, rel=0.1)
        assert (served.record.route, served.record.status) == ("default", "error")
    assert isinstance(second.error, TooMany)
    assert second.error.retry_after_s == pytest.approx(3.0, rel=0.1)
    assert (second.record.status, second.record.error_type) == ("rejected", "too_many_requests")
    assert bench.engine.in_flight == 0
    assert bench.backend("a").calls == 7
    bench.assert_clean()


def test_clients_that_leave_give_their_tenants_place_back() -> None:
    bench = Bench("a", {"a": scripted_model("a", Act(hang=True))})
    bench.plan = structs.replace(bench.plan, tenants={"t": 1})

    async def story() -> None:
        for number in range(3):
            with pytest.raises(asyncio.CancelledError):
                await bench.one(str(number), {"tenant": "t"}, leave_after=0.5)

    run_virtual(story(), bench.loop)
    assert bench.backend("a").calls == 3
    assert not bench.engine.admission._tenants
    bench.assert_clean()


def test_ranks_are_in_order() -> None:
    assert sorted(RANKS, key=RANKS.__getitem__) == ["high", "normal", "low"]
