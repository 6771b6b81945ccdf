"""Promises: made durably, kept once, given up in time, and refused when they could not be kept."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rheostat import sqlite_file
from rheostat.clock import SystemClock
from rheostat.errors import BadRequest, ModelError, NoAnswer, StoreError
from rheostat.results import table
from rheostat.results.later import Later, Room
from rheostat.results.result import Reply, Result, Waiting
from rheostat.results.settings import ResultSettings
from rheostat.results.store import Store
from rheostat.types import Prediction, Request, RouteRecord
from rheostat.types.duration import Duration

Ask = Callable[[Waiting], Awaitable[Reply]]
OPEN = {"default": Room(4, 5.0)}


def record(request_id: str = "r", status: str = "ok") -> RouteRecord:
    return RouteRecord(id=request_id, wall=1.0, route="default", status=status, selected_model="a", meta={"secret": "m"})


async def good(waiting: Waiting) -> Reply:
    return Reply(record(waiting.request_id), Prediction("yes", 0.9, {"yes": 0.9, "no": 0.1}))


async def never(waiting: Waiting) -> Reply:
    return Reply(record(waiting.request_id, "error"), error=NoAnswer("no model could answer (a: timeout)", 504))


def asked(request_id: str = "r", tenant: str | None = None, **more: Any) -> Request:
    return Request(id=request_id, data={"text": "the input"}, meta={"risk": "high"}, tenant=tenant, session="s", **more)


@contextlib.asynccontextmanager
async def later(
    path: Path, ask: Ask = good, rooms: Mapping[str, Room] = OPEN, clock: Any = None, **settings: Any
) -> AsyncIterator[Later]:
    clock = clock if clock is not None else SystemClock()
    file = Store(str(path / "results.sqlite"), clock)
    made = Later(
        file, ResultSettings(path="results.sqlite", **settings), clock, ask, lambda _: rooms,
        first_pause_s=0.02, longest_pause_s=0.1, look_s=0.02,
    )  # fmt: skip
    made.start()
    try:
        yield made
    finally:
        await made.aclose()


async def ended(made: Later, key: str | None, tenant: str | None = None) -> Result:
    assert key is not None
    for _ in range(400):
        result = await made.find(key, tenant)
        assert result is not None
        if result.state != "pending":
            return result
        await asyncio.sleep(0.01)
    raise AssertionError("it is still pending")


def test_a_promise_is_kept_and_its_input_is_deleted(tmp_path: Path) -> None:
    seen: list[Waiting] = []

    async def ask(waiting: Waiting) -> Reply:
        seen.append(waiting)
        return await good(waiting)

    async def main() -> None:
        async with later(tmp_path, ask) as made:
            promise = await made.promise(asked(max_cost=7.0), {"x-tier": "gold"})
            assert promise.state == "pending"
            result = await ended(made, promise.id)
            assert (result.state, result.request_id, result.attempts) == ("done", "r", 1)
            assert result.prediction == Prediction("yes", 0.9, {"yes": 0.9, "no": 0.1})
            assert result.record is not None
            assert (result.record.selected_model, result.record.meta) == ("a", {})
            assert result.finished >= result.created > 0.0

    asyncio.run(main())
    assert [(one.data, one.meta, one.headers, one.session, one.max_cost) for one in seen] == [
        ({"text": "the input"}, {"risk": "high"}, {"x-tier": "gold"}, "s", 7.0)
    ]
    with sqlite3.connect(tmp_path / "results.sqlite") as database:
        assert database.execute("SELECT state, input FROM results").fetchall() == [("done", None)]
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"the input" not in kept
    assert (tmp_path / "results.sqlite").stat().st_mode & 0o077 == 0


def test_it_is_tried_again_with_growing_pauses_until_a_model_answers(tmp_path: Path) -> None:
    tries: list[int] = []

    async def ask(waiting: Waiting) -> Reply:
        tries.append(waiting.attempts)
        return await (never(waiting) if len(tries) < 4 else good(waiting))

    async def main() -> None:
        async with later(tmp_path, ask) as made:
            promise = await made.promise(asked(), {})
            result = await ended(made, promise.id)
            assert (result.state, result.attempts) == ("done", 4)

    asyncio.run(main())
    assert tries == [0, 1, 2, 3]


def test_routes_on_which_nothing_waits_take_no_places_and_all_share_the_workers(tmp_path: Path) -> None:
    asked_at_once: list[int] = []
    asking = 0

    async def ask(waiting: Waiting) -> Reply:
        nonlocal asking
        asking += 1
        asked_at_once.append(asking)
        await asyncio.sleep(0.01)
        asking -= 1
        return await good(waiting)

    async def main() -> None:
        rooms = {name: Room(2, 5.0) for name in ("idle", "default", "second")}
        async with later(tmp_path, ask, rooms, workers=2) as made:
            routes = ["default", "second"] * 4
            promises = [await made.promise(asked(str(n), route=route), {}) for n, route in enumerate(routes)]
            assert {(await ended(made, promise.id)).state for promise in promises} == {"done"}

    asyncio.run(main())
    assert max(asked_at_once) == 2


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (ModelError("input_refused", "no"), ModelError),
        (ModelError("input_too_large", "no"), ModelError),
        (BadRequest("no"), NoAnswer),
    ],
)
def test_what_asking_again_cannot_change_fails_for_good(tmp_path: Path, error: Any, kept: type) -> None:
    async def ask(waiting: Waiting) -> Reply:
        return Reply(record(waiting.request_id, "rejected"), error=error)

    async def main() -> None:
        async with later(tmp_path, ask) as made:
            promise = await made.promise(asked(), {})
            result = await ended(made, promise.id)
            assert (result.state, result.attempts, type(result.error), str(result.error)) == ("failed", 1, kept, "no")

    asyncio.run(main())


def test_the_time_to_keep_it_ends_and_the_last_error_is_told_then_nothing(tmp_path: Path) -> None:
    class Shifted(SystemClock):
        shift = 0.0

        def wall(self) -> float:  # type: ignore[override]
            return super().wall() + self.shift

    clock = Shifted()

    async def main() -> None:
        async with later(tmp_path, never, clock=clock, keep=Duration(3600.0)) as made:
            promise = await made.promise(asked(), {})
            assert promise.id is not None
            while not (await made.find(promise.id, None)).attempts:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
            clock.shift = 3601.0
            result = await ended(made, promise.id)
            assert (result.state, str(result.error)) == ("failed", "no model could answer (a: timeout)")
            clock.shift = 7300.0
            while (await made.find(promise.id, None)).state != "expired":  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
            result = await ended(made, promise.id)
            assert (result.state, result.error, result.prediction) == ("expired", None, None)
            clock.shift = 11_000.0
            while await made.find(promise.id, None) is not None:
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_while_no_model_can_be_asked_nothing_is_tried(tmp_path: Path) -> None:
    rooms: dict[str, Room] = {}

    async def main() -> None:
        async with later(tmp_path, good, rooms) as made:
            promise = await made.promise(asked(), {})
            assert promise.id is not None
            await asyncio.sleep(0.2)
            waiting = await made.find(promise.id, None)
            assert waiting is not None
            assert (waiting.state, waiting.attempts) == ("pending", 0)
            rooms["default"] = Room(1, 5.0)
            assert (await ended(made, promise.id)).state == "done"

    asyncio.run(main())


def test_never_more_at_a_time_than_there_is_room_and_a_stuck_route_holds_up_no_other(tmp_path: Path) -> None:
    running, most = 0, 0

    async def ask(waiting: Waiting) -> Reply:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return await good(waiting)

    async def main() -> None:
        async with later(tmp_path, ask, {"default": Room(3, 5.0)}, workers=3) as made:
            stuck = [await made.promise(asked(f"s{n}", route="other"), {}) for n in range(20)]
            promises = [await made.promise(asked(f"r{n}"), {}) for n in range(30)]
            for promise in promises:
                assert (await ended(made, promise.id)).state == "done"
            assert [(await made.find(str(one.id), None)).state for one in stuck] == ["pending"] * 20  # type: ignore[union-attr]

    asyncio.run(main())
    assert 1 <= most <= 3


def test_beyond_the_most_that_may_wait_nothing_is_promised_and_that_is_counted(tmp_path: Path) -> None:
    async def main() -> None:
        async with later(tmp_path, good, {}, pending=2) as made:
            promises = [await made.promise(asked(f"r{n}"), {}) for n in range(4)]
            assert [promise.state for promise in promises] == ["pending", "pending", "refused", "refused"]
            assert promises[3].id is None
            assert promises[3].reason == "it will not be completed later: too many requests wait already"
            assert made.refused == {"full": 2}

    asyncio.run(main())


def test_an_input_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with later(tmp_path) as made:
            for data in ("\ud800", object()):
                promise = await made.promise(Request(id="r", data=data), {})
                assert promise.state == "refused"
            assert made.refused == {"unstorable": 2}

    asyncio.run(main())


def test_a_result_is_for_its_tenant_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with later(tmp_path) as made:
            promise = await made.promise(asked(tenant="one"), {})
            assert promise.id is not None
            assert (await ended(made, promise.id, "one")).state == "done"
            assert await made.find(promise.id, "two") is None
            assert await made.find(promise.id, None) is None
            assert await made.find("unknown", "one") is None

    asyncio.run(main())


def test_promises_survive_a_restart_and_what_was_under_way_is_asked_again_at_once(tmp_path: Path) -> None:
    async def hangs(waiting: Waiting) -> Reply:
        await asyncio.Event().wait()
        return await good(waiting)

    async def first() -> list[str | None]:
        async with later(tmp_path, hangs, {"default": Room(1, 600.0)}) as made:
            promises = [await made.promise(asked(f"r{n}"), {}) for n in range(3)]
            while not made.status()["asking"]:
                await asyncio.sleep(0.01)
            return [promise.id for promise in promises]

    async def second(ids: list[str | None]) -> None:
        async with later(tmp_path) as made:
            assert [(await ended(made, key)).request_id for key in ids] == ["r0", "r1", "r2"]

    asyncio.run(second(asyncio.run(first())))


def test_a_result_is_stored_once_however_often_it_is_finished(tmp_path: Path) -> None:
    async def main() -> None:
        file = Store(str(tmp_path / "results.sqlite"), SystemClock())
        waiting = Waiting(id="k", request_id="r", route="default", tenant=None, created=1.0, data="x")
        assert await file.run(lambda db: table.add(db, waiting, b"", 1.0, 1e12, 10))
        first = await file.run(lambda db: table.finish(db, "k", "done", b"one", 2.0, 1e12, post=False))
        second = await file.run(lambda db: table.finish(db, "k", "done", b"two", 3.0, 1e12, post=False))
        assert (first, second) == (True, False)
        assert await file.run(lambda db: db.execute("SELECT reply FROM results").fetchone()) == (b"one",)
        file.close()

    asyncio.run(main())


def test_a_claimed_promise_is_nobody_elses_until_its_lease_is_over(tmp_path: Path) -> None:
    async def main() -> None:
        file = Store(str(tmp_path / "results.sqlite"), SystemClock())
        waiting = Waiting(id="k", request_id="r", route="default", tenant=None, created=1.0, data="x")
        from rheostat.results.result import write_input

        data = write_input(waiting)
        assert data is not None
        await file.run(lambda db: table.add(db, waiting, data, 1.0, 1e12, 10))

        async def claimed(now: float) -> list[int]:
            found = await file.run(lambda db: table.claim(db, now, {"default": 5}, {"default": 30.0}, 5))
            return [attempts for _, attempts in found]

        assert await claimed(100.0) == [0]
        assert await claimed(129.0) == []
        assert await claimed(131.0) == [1]
        file.close()

    asyncio.run(main())


@pytest.mark.parametrize("harm", ["garbage", "foreign", "folder"])
def test_a_file_that_cannot_be_used_costs_the_promise_and_nothing_else(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "results.sqlite"
    if harm == "garbage":
        path.write_bytes(b"not a database at all" * 100)
    elif harm == "foreign":
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE other (x)")
    else:
        path.mkdir()

    async def main() -> None:
        async with later(tmp_path) as made:
            assert {(await made.promise(asked(), {})).state for _ in range(5)} == {"refused"}
            assert made.status()["store"] == "away"
            assert made.refused["store"] == 5
            with pytest.raises(StoreError):
                await made.find("k", None)

    asyncio.run(main())
    if harm == "garbage":
        assert path.read_bytes() == b"not a database at all" * 100


@pytest.mark.parametrize("harm", ["PRAGMA query_only = 1", "PRAGMA max_page_count = 12"])
def test_a_store_that_becomes_read_only_or_full_refuses_and_is_used_again_when_it_works(
    tmp_path: Path, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harmed, sound = [False], sqlite_file.connect

    def connect(path: str, layout: sqlite_file.Layout) -> sqlite3.Connection:
        database = sound(path, layout)
        if harmed[0]:
            database.execute(harm)
        return database

    monkeypatch.setattr(sqlite_file, "connect", connect)
    big = Request(id="big", data="x" * 100_000)

    async def main() -> None:
        async with later(tmp_path, good, {}) as made:
            kept = await made.promise(asked(), {})
            harmed[0] = True
            made.store._identity = None  # opened anew
            assert [(await made.promise(big, {})).state for _ in range(3)] == ["refused"] * 3
            harmed[0] = False
            for _ in range(400):
                if (await made.promise(big, {})).state == "pending":
                    break
                await asyncio.sleep(0.02)
            assert made.status()["store"] == "ok"
            found = await made.find(str(kept.id), None)
            assert found is not None
            assert found.state == "pending"

    asyncio.run(main())


def test_a_file_that_is_moved_away_is_made_anew(tmp_path: Path) -> None:
    async def main() -> None:
        async with later(tmp_path, good, {}) as made:
            kept = await made.promise(asked(), {})
            for file in tmp_path.iterdir():
                file.unlink()
            fresh = await made.promise(asked("r2"), {})
            assert (fresh.state, await made.find(str(kept.id), None)) == ("pending", None)
            assert (await made.find(str(fresh.id), None)) is not None

    asyncio.run(main())


def test_a_store_that_hangs_costs_its_patience_once_and_then_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with later(tmp_path, good, {}) as made:
            assert (await made.promise(asked(), {})).state == "pending"
            holder = sqlite3.connect(tmp_path / "results.sqlite", isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            loop = asyncio.get_running_loop()
            began = loop.time()
            assert (await made.promise(asked("r2"), {})).state == "refused"
            assert loop.time() - began >= 0.45
            waits = []
            for _ in range(5):
                began = loop.time()
                assert (await made.promise(asked("r3"), {})).state == "refused"
                waits.append(loop.time() - began)
            assert min(waits) < 0.1
            holder.execute("COMMIT")
            holder.close()
            for _ in range(400):
                if (await made.promise(asked("r4"), {})).state == "pending":
                    return
                await asyncio.sleep(0.02)
            raise AssertionError("the store is not used again")

    asyncio.run(main())
