"""A shared store that is away, slow or damaged: requests go on, and it is used again once it is back."""

from __future__ import annotations

import asyncio

from rheostat.cache.shared import MOST_WRITES, Shared
from rheostat.testing.virtual import VirtualLoop, run_virtual


class Odd:
    """A store in memory that can be told to refuse or to hang."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.does = "work"
        self.asked = 0

    async def _trouble(self) -> None:
        self.asked += 1
        if self.does == "refuse":
            raise ConnectionError("redis://user:hunter22@store refused")
        if self.does == "hang":
            await asyncio.sleep(3600.0)

    async def get(self, key: bytes) -> bytes | None:
        await self._trouble()
        return self.kept.get(key)

    async def put(self, key: bytes, value: bytes, seconds: float) -> None:  # noqa: ARG002
        await self._trouble()
        self.kept[key] = value

    async def aclose(self) -> None:
        self.does = "closed"


def _run(work: object) -> None:
    loop = VirtualLoop()
    store = Odd()
    shared = Shared(store, loop, 0.05, lambda text: text.replace("hunter22", "***"))
    run_virtual(work(store, shared, loop), loop)  # type: ignore[operator]


def test_what_is_put_comes_back() -> None:
    async def work(_: Odd, shared: Shared, __: VirtualLoop) -> None:
        shared.put(b"k", b"v", 10.0)
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)
        assert await shared.get(b"k") == b"v"
        assert shared.status() == {"state": "ok", "failures": 0, "last_error": None}

    _run(work)


def test_a_frozen_store_costs_the_first_few_their_limit_and_the_rest_nothing() -> None:
    async def work(store: Odd, shared: Shared, loop: VirtualLoop) -> None:
        store.does = "hang"
        took = []
        for _ in range(40):  # 2 seconds of requests
            began = loop.time()
            assert await shared.get(b"k") is None
            took.append(loop.time() - began)
            await asyncio.sleep(0.05)
        assert [round(each, 6) for each in took[:3]] == [0.05] * 3
        assert set(took[3:]) == {0.0}
        assert shared.status() == {"state": "degraded", "failures": 3, "last_error": "no answer within 0.05 s"}
        store.does = "work"
        store.kept[b"k"] = b"v"
        await asyncio.sleep(5.0)
        assert await shared.get(b"k") == b"v"
        assert shared.status()["state"] == "ok"

    _run(work)


def test_a_store_that_refuses_counts_reads_and_writes_and_shows_no_secret() -> None:
    async def work(store: Odd, shared: Shared, __: VirtualLoop) -> None:
        store.does = "refuse"
        assert await shared.get(b"k") is None
        shared.put(b"k", b"v", 1.0)
        await asyncio.sleep(0.01)
        assert shared.failures == 2
        shared.put(b"k", b"v", 1.0)
        await asyncio.sleep(0.01)
        assert (shared.failures, shared.breaker.name) == (3, "open")
        assert "refused" in str(shared.last_error)
        assert "hunter22" not in str(shared.last_error)
        asked = store.asked
        shared.put(b"k", b"v", 1.0)
        await asyncio.sleep(0.01)
        assert store.asked == asked  # left alone

    _run(work)


def test_one_request_at_a_time_tries_a_store_that_was_away() -> None:
    async def work(store: Odd, shared: Shared, loop: VirtualLoop) -> None:
        store.does = "hang"
        for _ in range(3):
            await shared.get(b"k")
        await asyncio.sleep(5.0)
        asked, began = store.asked, loop.time()
        await asyncio.gather(*(shared.get(b"k") for _ in range(100)))
        assert store.asked - asked == 1
        assert round(loop.time() - began, 6) == 0.05

    _run(work)


def test_a_request_whose_client_leaves_says_nothing_about_the_store() -> None:
    async def work(store: Odd, shared: Shared, __: VirtualLoop) -> None:
        store.does = "hang"
        for _ in range(20):
            task = asyncio.ensure_future(shared.get(b"k"))
            await asyncio.sleep(0.01)
            task.cancel()
        assert (shared.failures, shared.breaker.name) == (0, "closed")

    _run(work)


def test_writes_under_way_are_bounded_and_given_up_at_the_end() -> None:
    async def work(store: Odd, shared: Shared, __: VirtualLoop) -> None:
        store.does = "hang"
        for number in range(MOST_WRITES + 50):
            shared.put(b"%d" % number, b"v", 1.0)
        await asyncio.sleep(0.0)
        assert store.asked == MOST_WRITES
        await shared.aclose()
        await asyncio.sleep(0.0)
        assert not shared._writes
        assert store.does == "closed"

    _run(work)
