"""Requests come, wait, get places, leave, time out and are cancelled in any order, while limit and latency change."""

from __future__ import annotations

import asyncio
from math import inf

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rheostat.engine.places import Places
from rheostat.testing import VirtualLoop, scripted_model
from rheostat.types import Failure, Request
from rheostat.types.priority import RANKS, Priority

TENANTS = st.sampled_from([None, "a", "b"])


class PlacesMachine(RuleBasedStateMachine):
    """Holds the places at one model to their laws; the requests are told apart by number, in the order they came."""

    @initialize(limit=st.integers(1, 3), queue=st.integers(0, 4))
    def open(self, limit: int, queue: int) -> None:
        self.loop = VirtualLoop()
        self.places = Places(self.loop)
        self.model = scripted_model("m", max_concurrency=limit, queue=queue)
        self.tasks: dict[int, asyncio.Task[Failure | None]] = {}
        self.waiting: dict[int, tuple[int, str | None, float]] = {}  # rank, tenant, the last moment to wait
        self.held: dict[int, asyncio.Event] = {}
        self.allowed = limit
        self.count = 0

    async def _ask(self, number: int, request: Request, patience: float) -> Failure | None:
        try:
            why = await self.places.take(self.model, request, patience)
        finally:
            mine = self.waiting.pop(number)
        assert self.loop.time() <= mine[2] + 1e-9
        if why is not None:
            assert why.kind in ("overloaded", "deadline")
            assert (why.kind == "deadline") == (self.loop.time() >= request.deadline)
            return why
        for other, (rank, tenant, _) in self.waiting.items():  # who still waits has no better right
            assert rank >= mine[0]
            assert (rank, tenant) != mine[:2] or other > number
        self.model.began_at = self.loop.time()
        self.held[number] = asyncio.Event()
        try:
            await self.held[number].wait()
        finally:
            del self.held[number]
            self.places.leave(self.model)
        return None

    def settle(self, seconds: float = 0.0) -> None:
        """Let time pass, and everything happen that has to."""

        async def turns() -> None:
            await asyncio.sleep(seconds)
            for _ in range(6):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())
        for number, task in list(self.tasks.items()):
            if task.done():
                del self.tasks[number]
                if not task.cancelled():
                    task.result()  # raises what was asserted inside

    @rule(
        priority=st.sampled_from(["high", "normal", "low"]),
        tenant=TENANTS,
        left=st.sampled_from([0.5, 2.0, 10.0, inf]),
        patience=st.sampled_from([0.0, 0.3, 3.0]),
    )
    def one_comes(self, priority: Priority, tenant: str | None, left: float, patience: float) -> None:
        self.count += 1
        now = self.loop.time()
        request = Request(id=str(self.count), data="x", tenant=tenant, priority=priority, received=now, deadline=now + left)
        self.waiting[self.count] = (RANKS[priority], tenant, now + min(left, patience or inf))
        self.tasks[self.count] = self.loop.create_task(self._ask(self.count, request, patience))
        self.settle()

    @rule(which=st.integers(0, 20))
    def one_ends(self, which: int) -> None:
        if self.held:
            list(self.held.values())[which % len(self.held)].set()
            self.settle()

    @rule(which=st.lists(st.integers(0, 20), min_size=1, max_size=3), ends=st.booleans(), turns=st.integers(0, 4))
    def some_are_cancelled(self, which: list[int], ends: bool, turns: int) -> None:
        async def cancel() -> None:
            if ends and self.held:  # a place comes free in the same moment, or a few turns of the loop before
                next(iter(self.held.values())).set()
            for _ in range(turns):
                await asyncio.sleep(0)
            for each in which:
                if self.tasks:
                    list(self.tasks.values())[each % len(self.tasks)].cancel()

        self.loop.run_until_complete(cancel())
        self.settle()

    @rule(seconds=st.sampled_from([0.1, 0.3, 1.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.settle(seconds)

    @rule(limit=st.integers(1, 4))
    def the_limit_changes(self, limit: int) -> None:
        self.model.limit = limit
        self.places.fill(self.model)
        self.settle()

    @rule(latency=st.sampled_from([0.0, 0.2, 1.0]))
    def it_gets_slower_or_quicker(self, latency: float) -> None:
        self.model.latency_s = latency

    @invariant()
    def places_are_counted_right(self) -> None:
        if not hasattr(self, "model"):
            return
        assert self.model.in_flight == len(self.held)
        assert len(self.model.waiting) == len(self.waiting) <= self.model.queue
        assert not self.waiting or self.model.in_flight >= self.model.limit, "a place is free and somebody waits"
        self.allowed = max(self.model.limit, min(self.allowed, len(self.held)))
        assert len(self.held) <= self.allowed

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        for _ in range(self.count):  # each turn ends one at least
            for event in self.held.values():
                event.set()
            self.settle()
        assert not self.tasks
        assert (self.model.in_flight, len(self.model.waiting)) == (0, 0)
        self.loop.close()


TestPlacesMachine = PlacesMachine.TestCase
TestPlacesMachine.settings = settings(
    deadline=None, max_examples=100, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)
