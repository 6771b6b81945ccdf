"""A model in processes of its own: real processes, really killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.backends.python import PythonModel
from rheostat.clock import SystemClock
from rheostat.errors import ContractError, ModelError
from rheostat.pool.worker.settings import WorkerSettings
from rheostat.pool.worker.workers import Workers
from rheostat.resilience.restart import STEADY_S, RestartState, ended, pause_s
from rheostat.types import Prediction

HERE = str(Path(__file__).parent)


@asynccontextmanager
async def workers(function: str = "told", patience_s: float = 10.0, **given: Any) -> AsyncIterator[Workers]:
    settings = PythonModel(callable=f"worker_models:{function}", probe=["hello"])
    made, _ = await Workers.open("m", settings, WorkerSettings(**given), HERE, SystemClock(), patience_s=patience_s)
    try:
        yield made
    finally:
        await made.aclose()


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await body()

    asyncio.run(bounded())


async def pid_of(made: Workers) -> int:
    (reply,) = await made.apredict(["who"], 20.0)
    assert isinstance(reply, Prediction)
    found: int = reply.output["pid"]
    return found


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


def test_rows_of_every_kind_arrive_as_they_are_and_large_ones_are_not_copied() -> None:
    async def body() -> None:
        async with workers("seen") as made:
            large, small = np.arange(300_000, dtype=np.float32), np.ones((2, 3))
            sent = [
                "text",
                {"a": 1.5, "b": None},
                [1, "x"],
                b"x" * 200_000,
                large,
                small,
                "long " * 50_000,
                "a\ud800",
                {1, 2}.pop,
            ]
            replies = await made.apredict(sent, 20.0)
            rows = [reply.output["row"] for reply in replies if isinstance(reply, Prediction)]
            assert rows[:4] == ["text", {"a": 1.5, "b": None}, [1, "x"], 200_000]
            assert rows[4] == ["float32", [300_000], float(large.sum()), False]  # it lies where the gateway put it
            assert rows[5][:3] == ["float64", [2, 3], 6.0]
            assert rows[6:] == ["long " * 50_000, "a\ufffd"]
            assert isinstance(replies[8], ModelError)
            assert replies[8].kind == "input_refused"

    run(body)


def test_a_killed_process_loses_what_it_had_begun_and_nothing_else() -> None:
    async def body() -> None:
        async with workers() as made:
            pid = await pid_of(made)
            begun = asyncio.ensure_future(made.apredict(["slow"], 20.0))
            waiting = [asyncio.ensure_future(made.apredict([str(number)], 20.0)) for number in range(20)]
            await asyncio.sleep(0.05)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(ModelError, match="SIGKILL") as caught:
                await begun
            assert caught.value.kind == "crashed"
            answers = [(await each)[0].output for each in waiting]  # type: ignore[union-attr]
            assert [each["row"] for each in answers] == [str(number) for number in range(20)]
            assert {each["pid"] for each in answers} != {pid}
            assert made.restarts == {"ended": 1, "stuck": 0, "memory": 0, "start": 0}
            assert made.status(time.monotonic())["up"] == 1

    run(body)


def test_a_stuck_process_is_replaced_and_a_stopped_one_too() -> None:
    async def body() -> None:
        async with workers(stuck=0.3) as made:
            with pytest.raises(ModelError, match="did not answer within") as caught:
                await made.apredict(["hang"], 20.0)
            assert caught.value.kind == "timeout"
            pid = await pid_of(made)
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(ModelError, match="did not answer within"):
                await made.apredict(["x"], 20.0)
            assert gone(pid)
            assert await pid_of(made) != pid
            assert made.restarts["stuck"] == 2

    run(body)


def test_a_crash_loop_waits_longer_every_time_and_calls_fail_at_once() -> None:
    async def body() -> None:
        async with workers(patience_s=2.0) as made:
            back: list[float] = []
            made.on_back = lambda kept, _now: back.append(kept)
            failed = []
            while "unavailable" not in failed:  # one that will be there soon is waited for
                try:
                    await made.apredict(["exit"], 5.0)
                except ModelError as error:
                    failed.append(error.kind)
            crashed = len(failed) - 1
            assert failed == [*["crashed"] * crashed, "unavailable"]
            assert 2 <= crashed <= 4  # the fourth pause is longer than anybody waits
            state = made.status(time.monotonic())
            assert state["up"] == 0
            assert state["processes"][0]["ends_in_a_row"] == crashed
            assert "status 3" in state["why"]
            assert made.wait_s(time.monotonic()) > 0.0
            assert back == [0.0] * (crashed - 1)

    run(body)


def test_nothing_is_left_of_processes_that_are_gone() -> None:
    others = psutil.Process().children()

    async def body() -> None:
        async with workers(count=2, backoff=0.01) as made:
            await made.apredict([b"x" * 100_000], 20.0)
            before = len(os.listdir("/proc/self/fd"))
            for life in range(5):
                asked = [asyncio.ensure_future(made.apredict([row], 20.0)) for row in ("slow", "a", "exit", "b")]
                if life % 2:
                    asked[0].cancel()
                await asyncio.gather(*asked, return_exceptions=True)
                while made.up < 2:
                    await asyncio.sleep(0.01)
            status = made.status(time.monotonic())
            assert [each["state"] for each in status["processes"]] == ["idle", "idle"]
            assert status["waiting"] == 0
            assert made.restarts["ended"] >= 4
            assert len(set(psutil.Process().children()) - set(others)) == 2
            assert len(os.listdir("/proc/self/fd")) <= before  # what other tests left may go meanwhile
        assert set(psutil.Process().children()) <= set(others)

    run(body)


def test_a_call_that_nobody_waits_for_is_never_begun() -> None:
    async def body() -> None:
        async with workers() as made:
            first = asyncio.ensure_future(made.apredict(["slow"], 20.0))
            await asyncio.sleep(0.05)
            left = asyncio.ensure_future(made.apredict(["hang"], 20.0))
            late = asyncio.ensure_future(made.apredict(["hang"], 0.1))
            after = asyncio.ensure_future(made.apredict(["after"], 20.0))
            await asyncio.sleep(0.01)
            left.cancel()
            await first
            assert (await after)[0].output["row"] == "after"  # type: ignore[union-attr]
            with pytest.raises(ModelError, match="no answer within"):
                await late
            assert made.status(time.monotonic())["processes"][0]["calls"] == 2

    run(body)


def test_limits_are_those_of_the_real_process() -> None:
    async def body() -> None:
        cpu = min(os.sched_getaffinity(0))
        async with workers("limits", cpus=(cpu,), nice=7, threads=3) as made:
            (reply,) = await made.apredict(["x"], 20.0)
            assert isinstance(reply, Prediction)
            assert reply.output == {"cpus": [cpu], "nice": os.nice(0) + 7, "threads": "3"}

    run(body)


def test_memory_has_a_ceiling_and_a_process_that_holds_much_is_relieved() -> None:
    async def body() -> None:
        async with workers(memory="256MiB") as made:
            with pytest.raises(ModelError, match="MemoryError"):
                await made.apredict(["much"], 20.0)
            pid = await pid_of(made)
            assert made.restarts["ended"] == 0  # an allocation failed, not the process
            await made.apredict(["half"], 20.0)
            assert await pid_of(made) == pid
        async with workers(memory="256MiB") as made:
            pid = await pid_of(made)
            await made.apredict(["nearly all"], 20.0)
            while made.restarts["memory"] == 0:
                await made.apredict(["between"], 20.0)  # served all the time
                await asyncio.sleep(0.01)
            assert await pid_of(made) != pid
            assert made.restarts == {"ended": 0, "stuck": 0, "memory": 1, "start": 0}

    run(body)


def test_a_model_that_breaks_its_contract_leaves_no_process() -> None:
    async def body() -> None:
        with pytest.raises(ContractError, match="expected 1 answers"):
            async with workers("broken"):
                pass
        with pytest.raises(ContractError, match="may use"):
            async with workers(cpus=(4096,)):
                pass

    run(body)


def test_processes_end_with_the_gateway_even_while_they_compute() -> None:
    code = f"""
import asyncio, sys
sys.path.insert(0, {HERE!r})
from rheostat.backends.python import PythonModel
from rheostat.clock import SystemClock
from rheostat.pool.worker.settings import WorkerSettings
from rheostat.pool.worker.workers import Workers
async def main():
    made, _ = await Workers.open("m", PythonModel(callable="worker_models:told", probe=["a"]), WorkerSettings(count=2),
                                 {HERE!r}, SystemClock())
    print(*[each["pid"] for each in made.status(0.0)["processes"]], flush=True)
    await made.apredict(["hang"], 60.0)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        pids = [int(each) for each in gateway.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.1)
        gateway.kill()
    until = time.monotonic() + 10.0
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < until, "a worker outlived its gateway"
        time.sleep(0.02)


@given(st.lists(st.floats(0.0, 100.0), max_size=200))
def test_pauses_grow_while_a_process_keeps_ending_and_begin_anew_after_a_good_life(lives: list[float]) -> None:
    state, before = RestartState(), 0.0
    for life in lives:
        state = ended(state, life)
        pause = pause_s(state, 30.0)
        assert 0.0 <= pause <= 30.0
        assert pause == 0.0 if life >= STEADY_S else pause >= before
        before = pause
