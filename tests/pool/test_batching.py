"""Rows of several requests in one call: everybody gets his own answer, and nobody waits for what will not come."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.clock import SystemClock
from rheostat.errors import ModelError
from rheostat.pool import Reply
from rheostat.pool.batching import Batched
from rheostat.pool.shape import any_shape, shape_of
from rheostat.resilience.batch import BatchSettings
from rheostat.testing import VirtualLoop, run_virtual
from rheostat.types import Prediction
from rheostat.types.duration import Duration

NEVER = float("inf")
EIGHT = BatchSettings(max_rows=8, max_wait=Duration(0.05))


class Model:
    """Answers every row with itself after `fixed + per_row * rows` seconds; rows named bad make the whole call fail."""

    labels = None

    def __init__(self, fixed: float = 0.01, per_row: float = 0.001, bad: Sequence[Any] = (), error: Any = None) -> None:
        self.fixed, self.per_row, self.bad = fixed, per_row, tuple(bad)
        self.error = error or ValueError("this row cannot be read")
        self.batches: list[list[Any]] = []
        self.cancelled = 0
        self.timeouts: list[float] = []
        self.closed = 0

    async def apredict(self, rows: Sequence[Any], timeout_s: float) -> Sequence[Reply]:
        self.batches.append(list(rows))
        self.timeouts.append(timeout_s)
        try:
            await asyncio.sleep(self.fixed + self.per_row * len(rows))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if any(row in self.bad for row in rows):
            raise self.error
        return [Prediction(str(row)) for row in rows]

    async def aclose(self) -> None:
        self.closed += 1


class Lopsided(Model):
    """Loses its last answer."""

    async def apredict(self, rows: Sequence[Any], timeout_s: float) -> Sequence[Reply]:
        return (await super().apredict(rows, timeout_s))[1:]


def played(scene: Callable[[Batched, VirtualLoop], Awaitable[None]], model: Any, rules: BatchSettings = EIGHT,
           **options: Any) -> Batched:  # fmt: skip
    loop = VirtualLoop()
    batched = Batched(model, rules, loop, name="m", **options)

    async def main() -> None:
        await scene(batched, loop)
        assert batched.queued == 0
        await batched.aclose()

    run_virtual(main(), loop)
    assert model.closed == 1
    return batched


async def ask(batched: Batched, row: Any, timeout_s: float = NEVER, rank: int = 1) -> Any:
    return await batched.aqueue(row, timeout_s, rank)


async def together(batched: Batched, rows: Sequence[Any], timeout_s: float = NEVER) -> list[Any]:
    return await asyncio.gather(*[ask(batched, row, timeout_s) for row in rows])


def test_rows_that_come_while_the_model_computes_go_together() -> None:
    model = Model()

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        replies = await together(batched, [f"r{number}" for number in range(20)])
        assert [reply.label for reply in replies] == [f"r{number}" for number in range(20)]

    batched = played(scene, model)
    assert [len(rows) for rows in model.batches] == [1, 8, 8, 3]
    assert (batched.tally.executions, batched.tally.inferences) == (4, 20)
    assert batched.tally.reasons == {"alone": 1, "full": 2, "enough": 1}


def test_once_it_is_known_to_pay_a_row_waits_for_company_that_is_coming() -> None:
    model = Model(fixed=0.02, per_row=0.0001)

    async def scene(batched: Batched, loop: VirtualLoop) -> None:
        for size in (1, 8, 2, 7, 4, 8, 1, 6):
            await together(batched, range(size))
        model.batches.clear()
        tasks = []
        for number in range(8):  # one every millisecond: waiting saves calls of twenty
            tasks.append(asyncio.ensure_future(ask(batched, number)))
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)
        assert len(model.batches) <= 3
        model.batches.clear()
        for number in range(20):  # now and then one: nobody waits for the next
            began = loop.time()
            await ask(batched, number)
            assert number < 8 or loop.time() - began == pytest.approx(0.0201)
            await asyncio.sleep(1.0)
        assert [len(rows) for rows in model.batches] == [1] * 20

    played(scene, model)


def test_rows_of_unlike_shape_never_share_a_call_and_take_turns() -> None:
    model = Model()
    rows = [{"vector": [1.0] * length} for length in (10, 17, 10, 3, 17, 10)]

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        replies = await together(batched, rows)
        assert [reply.label for reply in replies] == [str(row) for row in rows]

    played(scene, model)
    assert [[len(row["vector"]) for row in batch] for batch in model.batches] == [[10], [17, 17], [10, 10], [3]]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("text", "", True),
        ({"a": 1, "b": 2.5}, {"b": None, "a": True}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"v": [1, 2]}, {"v": [3, 4]}, True),
        ({"v": [1, 2]}, {"v": [1, 2, 3]}, False),
        ({"v": [[1, 2]]}, {"v": [[1, 2, 3]]}, False),
        ("text", {"text": "text"}, False),
        ({"v": []}, {"v": [1]}, False),
    ],
)
def test_what_is_alike(one: Any, other: Any, alike: bool) -> None:
    assert (shape_of(one) == shape_of(other)) is alike
    assert any_shape(one) == any_shape(other)


def test_a_bad_row_fails_alone_and_its_neighbours_are_answered() -> None:
    model = Model(bad=["r5"])

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        await ask(batched, "first")
        replies = await together(batched, [f"r{number}" for number in range(9)])
        assert [str(getattr(reply, "label", reply)) for reply in replies] == [
            "r0", "r1", "r2", "r3", "r4", "ValueError: this row cannot be read", "r6", "r7", "r8",
        ]  # fmt: skip
        assert isinstance(replies[5], ModelError)
        assert replies[5].kind == "crashed"
        before = len(model.batches)
        await ask(batched, "next")
        assert len(model.batches) == before + 1

    batched = played(scene, model)
    assert len(model.batches) <= 3 + 1 + 2 * 3
    assert batched.tally.isolated == 6


def test_with_side_effects_nothing_is_asked_twice() -> None:
    model = Model(bad=["r5"])

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        replies = await together(batched, [f"r{number}" for number in range(9)])
        assert [isinstance(reply, ModelError) for reply in replies] == [False] + [True] * 8
        assert [reply.shared for reply in replies[1:]] == [False] + [True] * 7  # one failure, told eight times

    played(scene, model, repeat=False)
    assert [len(rows) for rows in model.batches] == [1, 8]


@pytest.mark.parametrize("kind", ["timeout", "connection", "bad_output", "rate_limited", "misconfigured"])
def test_a_failure_that_no_row_is_to_blame_for_is_not_taken_apart(kind: str) -> None:
    model = Model(bad=["r5"], error=ModelError(kind, "told"))

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        replies = await together(batched, [f"r{number}" for number in range(9)])
        assert {reply.kind for reply in replies[1:]} == {kind}

    played(scene, model)
    assert len(model.batches) == 2


def test_a_reply_too_few_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    model = Lopsided()

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        replies = await together(batched, [f"r{number}" for number in range(6)])
        assert {reply.kind for reply in replies} == {"bad_output"}
        assert "5 rows gave 4 replies" in str(replies[5])

    played(scene, model)
    assert len(model.batches) == 2
    assert "5 rows gave 4 replies" in caplog.text


def test_who_leaves_before_the_batch_is_not_computed_and_a_batch_without_anybody_is_stopped() -> None:
    model = Model(fixed=0.5, per_row=0.0)

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        for number in range(10):
            first = asyncio.ensure_future(ask(batched, f"{number} first"))
            await asyncio.sleep(0)
            waiting = [asyncio.ensure_future(ask(batched, f"{number}.{place}")) for place in range(8)]
            await asyncio.sleep(0.1)
            waiting[0].cancel()
            await first
            await asyncio.sleep(0.1)  # the seven compute
            waiting[1].cancel()
            await asyncio.sleep(0.399)
            waiting[2].cancel()
            replies = await asyncio.gather(*waiting[3:])
            assert [reply.label for reply in replies] == [f"{number}.{place}" for place in range(3, 8)]
        assert all(f"{number}.0" not in batch for batch in model.batches for number in range(10))
        assert all(f"{number}.1" in model.batches[2 * number + 1] for number in range(10))
        assert len(await together(batched, range(100))) == 100
        alone = asyncio.ensure_future(ask(batched, "alone"))
        await asyncio.sleep(0.1)
        alone.cancel()
        await asyncio.sleep(0)
        assert batched.status()["running"] == 1
        await asyncio.sleep(0)
        assert (model.cancelled, (await ask(batched, "last")).label) == (1, "last")

    played(scene, model, BatchSettings(max_rows=8, max_wait=Duration(0.0)))


def test_one_who_leaves_in_the_same_moment_is_not_computed() -> None:
    model = Model()

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        first = asyncio.ensure_future(ask(batched, "first"))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(ask(batched, "second"))
        third = asyncio.ensure_future(ask(batched, "third"))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_at(asyncio.get_running_loop().time() + 0.011, second.cancel)
        await asyncio.gather(first, third)
        assert second.cancelled()

    played(scene, model)
    assert model.batches == [["first"], ["third"]]


def test_urgent_rows_go_first() -> None:
    model = Model()

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        tasks = [asyncio.ensure_future(ask(batched, "first"))]
        await asyncio.sleep(0)
        tasks += [asyncio.ensure_future(ask(batched, f"low {number}", rank=2)) for number in range(8)]
        tasks += [asyncio.ensure_future(ask(batched, f"high {number}", rank=0)) for number in range(3)]
        await asyncio.gather(*tasks)

    played(scene, model)
    assert model.batches[1][:4] == ["high 0", "high 1", "high 2", "low 0"]


def test_rows_that_cannot_be_answered_in_time_make_room() -> None:
    model = Model(fixed=0.1, per_row=0.0)

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        await ask(batched, "teaches")
        first = asyncio.ensure_future(ask(batched, "first"))
        await asyncio.sleep(0)
        hurried = asyncio.ensure_future(ask(batched, "hurried", 0.15))
        patient = asyncio.ensure_future(ask(batched, "patient", 0.5))
        replies = await asyncio.gather(first, hurried, patient)
        assert isinstance(replies[1], ModelError)
        assert (replies[1].kind, replies[2].label) == ("overloaded", "patient")
        assert (await ask(batched, "hurried, with nobody else", 0.05)).label == "hurried, with nobody else"

    batched = played(scene, model)
    assert batched.tally.dropped == 1
    assert ["patient"] in model.batches
    assert model.timeouts[2] == pytest.approx(0.4)


def test_memory_that_does_not_suffice_halves_the_batches_and_everybody_is_answered() -> None:
    class Small(Model):
        async def apredict(self, rows: Sequence[Any], timeout_s: float) -> Sequence[Reply]:
            answers = await super().apredict(rows, timeout_s)
            if len(rows) > 3:
                raise MemoryError
            return answers

    model = Small()

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        replies = await together(batched, range(25))
        assert [reply.label for reply in replies] == [str(number) for number in range(25)]
        assert batched.limit < 8

    played(scene, model)
    assert max(len(rows) for rows in model.batches[12:]) <= 5


def test_a_fault_of_the_dispatcher_is_told_and_later_rows_are_served(caplog: pytest.LogCaptureFixture) -> None:
    model = Model()
    faults = iter([True])

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        start = batched._start

        def broken(*args: Any) -> None:
            if next(faults, False):
                raise RuntimeError("a fault of ours")
            start(*args)

        batched._start = broken  # type: ignore[method-assign]
        reply = await ask(batched, "unlucky")
        assert (reply.kind, str(reply)) == ("crashed", "RuntimeError: a fault of ours")
        assert (await ask(batched, "next")).label == "next"

    played(scene, model)
    assert "failed inside" in caplog.text


def test_a_row_whose_shape_cannot_be_told_harms_nobody() -> None:
    def picky(row: Any) -> str:
        if row == "odd":
            raise KeyError(row)
        return "even"

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        replies = await asyncio.gather(*[ask(batched, row) for row in ("a", "odd", "b")], return_exceptions=True)
        assert [type(reply) for reply in replies] == [Prediction, KeyError, Prediction]

    played(scene, Model(), kind_of=picky)


def test_a_closed_model_says_so() -> None:
    model = Model(fixed=5.0)

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        running = asyncio.ensure_future(ask(batched, "running"))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(ask(batched, "waiting"))
        await asyncio.sleep(1.0)
        await batched.aclose()
        replies = await asyncio.gather(running, waiting)
        assert [reply.kind for reply in replies] == ["unavailable"] * 2
        with pytest.raises(ModelError, match="closed"):
            await ask(batched, "late")
        model.closed = 0

    played(scene, model)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.floats(0.0, 0.02), st.floats(0.0, 0.03))
def test_whatever_happens_everybody_gets_his_own(seed: int, instances: int, fixed: float, spread: float) -> None:
    chance = random.Random(seed)
    count = 60
    bad = {f"{number}" for number in range(count) if chance.random() < 0.1}
    rules = BatchSettings(max_rows=6, max_wait=Duration(0.02), instances=instances)
    model = Model(fixed=fixed, bad=sorted(bad))

    async def one(batched: Batched, number: int) -> None:
        await asyncio.sleep(chance.uniform(0.0, spread))
        row = {"n": f"{number}", "v": [0] * chance.randrange(3)} if chance.random() < 0.2 else f"{number}"
        task = asyncio.ensure_future(ask(batched, row, chance.choice([NEVER, 0.05]), chance.randrange(3)))
        if chance.random() < 0.2:
            await asyncio.sleep(chance.uniform(0.0, 0.05))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return
        reply = await task
        if isinstance(reply, ModelError):
            assert reply.kind == "overloaded" or row in bad
        else:
            assert reply.label == str(row)

    async def scene(batched: Batched, _: VirtualLoop) -> None:
        await asyncio.gather(*[one(batched, number) for number in range(count)])
        await asyncio.sleep(1.0)
        assert batched.status()["running"] == 0
        assert (await ask(batched, "after")).label == "after"

    played(scene, model, rules)
    assert all(len(rows) <= 6 and len({shape_of(row) for row in rows}) == 1 for rows in model.batches)


class Local:
    """A model of this process that takes a while; notes in which threads it was called."""

    labels = None

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.running = self.most = self.closed = 0
        self.sizes: list[int] = []
        self._lock = threading.Lock()

    def predict(self, rows: Sequence[Any]) -> Sequence[Reply]:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.threads.add(threading.current_thread().name)
        self.sizes.append(len(rows))
        time.sleep(0.002)
        with self._lock:
            self.running -= 1
        if "exit" in rows:
            raise SystemExit(3)
        return [Prediction(str(row)) for row in rows]

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("instances", [1, 2])
def test_a_local_model_computes_in_threads_of_its_own_and_the_event_loop_goes_on(instances: int) -> None:
    model = Local()

    async def main() -> None:
        batched = Batched(model, BatchSettings(max_rows=16, instances=instances), SystemClock(), name="m")
        ticks = 0

        async def ticking() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        ticker = asyncio.ensure_future(ticking())
        replies = await together(batched, range(200))
        ticker.cancel()
        assert [reply.label for reply in replies] == [str(number) for number in range(200)]
        assert ticks > len(model.sizes)
        replies = await together(batched, ["a", "exit", "b"])
        assert [getattr(reply, "label", None) for reply in replies] == ["a", None, "b"]
        assert (await batched.apredict(["x", "y"], 1.0))[1].label == "y"  # type: ignore[union-attr]
        await batched.aclose()

    asyncio.run(main())
    assert model.most <= instances
    assert max(model.sizes) == 16
    assert all(name.startswith("batch-m") for name in model.threads)
    assert model.closed == 1


def test_an_event_loop_that_is_gone_harms_no_thread() -> None:
    model = Local()
    errors: list[Any] = []
    hook, threading.excepthook = threading.excepthook, errors.append

    async def main() -> None:
        batched = Batched(model, EIGHT, SystemClock())
        await asyncio.wait((asyncio.ensure_future(ask(batched, "nobody waits for this")),), timeout=0.0)

    try:
        asyncio.run(main())
        time.sleep(0.05)
    finally:
        threading.excepthook = hook
    assert not errors
