"""Rows prepared first, in the model's call or beside it: everybody gets his own answer, no more is done than is wanted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rheostat.clock import SystemClock
from rheostat.errors import ModelError
from rheostat.pool import Reply
from rheostat.pool.batching import Batched
from rheostat.pool.prepared import PreparedInCall
from rheostat.pool.prepared_beside import PreparedBeside
from rheostat.resilience.batch import BatchSettings
from rheostat.types import Prediction
from rheostat.types.duration import Duration

NEVER = float("inf")
WAYS = ("stay", "stay", "stay", "leave", "late")


class Model:
    """Answers a prepared row with itself; refuses to be given anything else."""

    labels = None

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.closed = 0

    def predict(self, rows: Sequence[Any]) -> Sequence[Reply]:
        assert self.gate.wait(10.0)
        self.calls.append(list(rows))
        assert all(isinstance(row, tuple) and row[0] == "ready" for row in rows)
        return [Prediction(str(row[1])) for row in rows]

    def close(self) -> None:
        self.closed += 1


class Preparer:
    """Turns `n` into `("ready", n)`; negative numbers cannot be, and zero breaks it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.gate = threading.Event()
        self.gate.set()
        self.running = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, row: Any) -> Any:
        with self._lock:
            self.seen.append(row)
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.gate.wait(10.0)
        with self._lock:
            self.running -= 1
        if row < 0:
            raise ModelError("input_refused", f"{row} is negative")
        return ("ready", row + 0 * (1 // row))


def test_in_the_call_a_bad_row_fails_alone() -> None:
    model = Model()
    replies = PreparedInCall(model, Preparer(), None).predict([3, -1, 5, 0, 7])
    assert [getattr(reply, "label", getattr(reply, "kind", "")) for reply in replies] == [
        "3", "input_refused", "5", "crashed", "7"]  # fmt: skip
    assert model.calls == [[("ready", 3), ("ready", 5), ("ready", 7)]]


def test_in_the_call_a_model_of_bad_rows_only_is_not_asked() -> None:
    model = Model()
    assert [reply.kind for reply in PreparedInCall(model, Preparer(), None).predict([-1, -2])] == ["input_refused"] * 2  # type: ignore[union-attr]
    assert model.calls == []


def test_in_the_call_a_lost_answer_is_nobodys() -> None:
    class Lossy(Model):
        def predict(self, rows: Sequence[Any]) -> Sequence[Reply]:
            return super().predict(rows)[1:]

    with pytest.raises(ModelError, match="expected 2 replies, got 1"):
        PreparedInCall(Lossy(), Preparer(), None).predict([1, -1, 2])


def played(
    scene: Callable[[PreparedBeside, Model, Preparer], Awaitable[None]], *, threads: int = 2, ahead: int = 6, rows: int = 3
) -> None:
    model, preparer = Model(), Preparer()

    async def main() -> None:
        clock = SystemClock()
        batched = Batched(model, BatchSettings(max_rows=rows, max_wait=Duration(0.001)), clock, name="m")
        beside = PreparedBeside(batched, preparer, clock, threads=threads, ahead=ahead, name="m")
        await scene(beside, model, preparer)
        while beside.preparing:  # of those who have left
            await asyncio.sleep(0.001)
        assert (beside.waiting, beside.preparing, beside.ahead, batched.queued) == (0, 0, 0, 0)
        await beside.aclose()

    asyncio.run(main())
    assert model.closed == 1


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(5_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came true")


def said(reply: Any) -> str:
    return reply.label if isinstance(reply, Prediction) else f"!{reply.kind}"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=st.lists(st.tuples(st.integers(-2, 40), st.sampled_from(WAYS), st.integers(0, 2)), min_size=1, max_size=40),
    threads=st.integers(1, 3), ahead=st.integers(1, 8), size=st.integers(2, 5), pauses=st.randoms(use_true_random=False),
)  # fmt: skip
def test_everybody_gets_his_own_answer_or_his_own_refusal(
    rows: list[tuple[int, str, int]], threads: int, ahead: int, size: int, pauses: Any
) -> None:
    async def scene(beside: PreparedBeside, model: Model, preparer: Preparer) -> None:
        most = 0
        tasks = []
        for row, way, rank in rows:
            timeout_s = -1.0 if way == "late" else NEVER
            tasks.append(asyncio.ensure_future(beside.aqueue(row, timeout_s, rank)))
            if pauses.random() < 0.5:
                await asyncio.sleep(0)
            most = max(most, beside.ahead)
            if way == "leave":
                tasks[-1].cancel()
        replies = await asyncio.gather(*tasks, return_exceptions=True)
        for (row, way, _), reply in zip(rows, replies, strict=True):
            if way == "leave":
                assert isinstance(reply, asyncio.CancelledError)
            elif way == "late":
                assert said(reply) == "!overloaded"
            else:
                assert said(reply) == (str(row) if row > 0 else "!input_refused" if row < 0 else "!crashed")
        assert most <= max(ahead, threads)
        assert preparer.most <= threads
        assert max((len(call) for call in model.calls), default=0) <= size

    played(scene, threads=threads, ahead=ahead, rows=size)


def test_the_next_rows_are_prepared_while_the_model_computes_but_not_more_than_are_wanted_ahead() -> None:
    async def scene(beside: PreparedBeside, model: Model, preparer: Preparer) -> None:
        model.gate.clear()
        tasks = [asyncio.ensure_future(beside.aqueue(row, NEVER, 1)) for row in range(1, 31)]
        await until(lambda: len(preparer.seen) == 6)
        await asyncio.sleep(0.02)
        assert len(preparer.seen) == 6  # and no more, however long the model takes
        assert (beside.waiting, beside.ahead) == (24, 6)
        model.gate.set()
        assert [said(reply) for reply in await asyncio.gather(*tasks)] == [str(row) for row in range(1, 31)]

    played(scene)


def test_urgent_rows_are_prepared_before_others_that_wait() -> None:
    async def scene(beside: PreparedBeside, _: Model, preparer: Preparer) -> None:
        preparer.gate.clear()
        first = [asyncio.ensure_future(beside.aqueue(row, NEVER, 1)) for row in (1,)]
        await until(lambda: preparer.seen == [1])
        others = [asyncio.ensure_future(beside.aqueue(row, NEVER, rank)) for row, rank in ((2, 2), (3, 1), (4, 0), (5, 1))]
        await asyncio.sleep(0)
        preparer.gate.set()
        await asyncio.gather(*first, *others)
        assert preparer.seen == [1, 4, 3, 5, 2]

    played(scene, threads=1)


def test_who_leaves_before_his_turn_is_not_prepared_and_who_leaves_later_is_not_computed() -> None:
    async def scene(beside: PreparedBeside, model: Model, preparer: Preparer) -> None:
        preparer.gate.clear()
        tasks = [asyncio.ensure_future(beside.aqueue(row, NEVER, 1)) for row in (1, 2, 3)]
        await until(lambda: preparer.seen == [1])
        tasks[0].cancel()
        tasks[1].cancel()
        await asyncio.sleep(0)
        preparer.gate.set()
        assert said(await tasks[2]) == "3"
        assert preparer.seen == [1, 3]
        assert model.calls == [[("ready", 3)]]

    played(scene, threads=1)


def test_a_row_whose_time_is_over_is_not_prepared() -> None:
    async def scene(beside: PreparedBeside, _: Model, preparer: Preparer) -> None:
        preparer.gate.clear()
        first = asyncio.ensure_future(beside.aqueue(1, NEVER, 1))
        await until(lambda: preparer.seen == [1])
        late = asyncio.ensure_future(beside.aqueue(2, 0.01, 1))
        await asyncio.sleep(0.02)
        preparer.gate.set()
        assert said(await late) == "!overloaded"
        assert said(await first) == "1"
        assert preparer.seen == [1]
        assert beside.dropped == 1

    played(scene, threads=1)


def test_closing_answers_everybody() -> None:
    model, preparer = Model(), Preparer()

    async def main() -> list[Any]:
        clock = SystemClock()
        batched = Batched(model, BatchSettings(max_rows=2), clock)
        beside = PreparedBeside(batched, preparer, clock, threads=1, ahead=4)
        preparer.gate.clear()
        tasks = [asyncio.ensure_future(beside.aqueue(row, NEVER, 1)) for row in range(1, 9)]
        await until(lambda: preparer.seen == [1])
        await beside.aclose()
        replies = await asyncio.gather(*tasks)
        preparer.gate.set()
        with pytest.raises(ModelError, match="closed"):
            await beside.aqueue(1, NEVER, 1)
        return replies

    assert {said(reply) for reply in asyncio.run(main())} == {"!unavailable"}
    assert model.closed == 1


def test_many_who_left_leave_nothing_behind() -> None:
    async def scene(beside: PreparedBeside, _: Model, preparer: Preparer) -> None:
        preparer.gate.clear()
        first = asyncio.ensure_future(beside.aqueue(1, NEVER, 1))
        await until(lambda: preparer.seen == [1])
        for _ in range(20):
            tasks = [asyncio.ensure_future(beside.aqueue(row, NEVER, 1)) for row in range(2, 30)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert beside.waiting == 0
        assert len(beside._line) <= 100
        preparer.gate.set()
        assert said(await first) == "1"
        assert preparer.seen == [1]

    played(scene, threads=1)
