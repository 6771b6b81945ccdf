"""A model in processes of its own: killed under load, its large rows, and threads in a container's place.

    python -m bench.workers [kill] [rows] [threads]

`kill`: a real gateway at 500 requests a second, sent at their own times whatever comes back; a worker process is killed with
SIGKILL every few seconds. Counted: requests without an answer, those answered by another try or by the lighter model, and
how long it takes until all processes serve again. `rows`: what one call costs by the size of its row, through the socket and
through shared memory. `threads`: three ONNX models, 16 clients, by the number of threads inside a call; meanwhile the health
page is asked.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import numpy as np

from bench.reload import SECRET, start
from bench.residency import ROW, write_model
from rheostat.backends.python import PythonModel
from rheostat.clock import SystemClock
from rheostat.pool.worker import arena
from rheostat.pool.worker.settings import WorkerSettings
from rheostat.pool.worker.workers import Workers

RATE, KILLS, EVERY_S = 500, 4, 12.0
MODELS = """
import time

def large(rows):
    until = time.perf_counter() + 0.0005 * len(rows)
    while time.perf_counter() < until:
        pass
    return [("large", 0.9) for _ in rows]

def small(rows):
    return [("small", 0.6) for _ in rows]

def seen(rows):
    return [("seen", float(len(row)) * 0.0) for row in rows]
"""
KILL = """
models:
  large: {{backend: python, callable: "bench_workers_models:large", probe: hello, workers: {count}, lighter: small}}
  small: {{backend: python, callable: "bench_workers_models:small", probe: hello}}
routes:
  default: {{policy: large, deadline: 2s, fallback: {{retry: 1, lighter: true}}}}
server: {{port: 0}}
admin: {{secret: {secret}, port: 0}}
"""
SIZES = (1 << 10, 1 << 13, 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
ROUNDS = 200


class Load:
    """Requests at a fixed rate, and what came of each."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url = session, url
        self.statuses: Counter[int | str] = Counter()
        self.by: Counter[str] = Counter()
        self.times: list[tuple[float, float, str]] = []  # when it was sent, seconds, how it ended
        self.done = False

    async def one(self, number: int) -> None:
        """Send one request."""
        began, what = time.perf_counter(), "nothing"
        try:
            async with self.session.post(f"{self.url}/v1/predict", json={"data": f"row {number}"}) as answer:
                body = await answer.json()
                self.statuses[answer.status] += 1
                what = how(body["data"]["route_info"]) if answer.status == 200 else str(answer.status)
                self.by[what] += 1
        except aiohttp.ClientError as error:
            self.statuses[type(error).__name__] += 1
        self.times.append((began, time.perf_counter() - began, what))

    async def run(self) -> None:
        """Send until told to stop, late ones at once."""
        began, tasks, number = time.perf_counter(), set(), 0
        while not self.done:
            due = int((time.perf_counter() - began) * RATE)
            while number < due:
                task = asyncio.ensure_future(self.one(number))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                number += 1
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)


def how(told: dict[str, Any]) -> str:
    """Say how an answer came about, from its `route_info`."""
    if told["selected_model"] == "large":
        return "another try" if told["attempts"] > 1 else "at once"
    reason = str(told.get("fallback_reason", ""))
    return f"small: {reason.rpartition(': ')[2] or 'as decided'}"


async def kill(count: int) -> None:
    """Kill processes of a model that has `count` of them, one every few seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bench_workers_models.py").write_text(MODELS)
        config = folder / "rheostat.yaml"
        config.write_text(KILL.format(count=count, secret=SECRET))
        process, url, admin = await start(config)
        headers = {"authorization": f"Bearer {SECRET}"}
        try:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

                async def state() -> dict[str, Any]:
                    async with session.get(f"{admin}/admin/status", headers=headers) as answer:
                        found: dict[str, Any] = (await answer.json())["models"]["large"]
                        return found

                load = Load(session, url)
                running = asyncio.ensure_future(load.run())
                await asyncio.sleep(3.0)
                gaps, shares, killed_at = [], [], []
                for _ in range(KILLS):
                    victims = [each["pid"] for each in (await state())["workers"]["processes"] if "pid" in each]
                    at = time.perf_counter()
                    os.kill(victims[0], signal.SIGKILL)
                    killed_at.append(at)
                    while True:
                        now = await state()
                        pids = [each.get("pid") for each in now["workers"]["processes"]]
                        if None not in pids and victims[0] not in pids:
                            break
                        await asyncio.sleep(0.005)
                    gaps.append(time.perf_counter() - at)
                    shares.append(now["ramp"])
                    await asyncio.sleep(max(0.0, at + EVERY_S - time.perf_counter()))
                load.done = True
                await running
        finally:
            process.terminate()
            await process.wait()
    slow = Counter(what for _, took, what in load.times if took > 0.5)
    print("slower than 0.5 s: " + (told(slow) or "none"))
    near = sorted(took for sent, took, _ in load.times if any(at - 0.1 <= sent <= at + 1.0 for at in killed_at))
    far = sorted(took for sent, took, _ in load.times if not any(at - 0.1 <= sent <= at + 3.0 for at in killed_at))
    sent = sum(load.statuses.values())
    print(f"\n{count} process(es), {sent} requests, {KILLS} kills: " + told(load.statuses))
    print(f"answered: {told(load.by)}")
    print(f"all processes in service again after {median(gaps):.2f} s (longest {max(gaps):.2f}), with "
          f"{100 * min(shares):.0f} to {100 * max(shares):.0f} % of its traffic")  # fmt: skip
    print(f"P50 / P99 / longest in ms: within 1 s of a kill {percentiles(near)}, otherwise {percentiles(far)}")


def told(counts: Counter[Any]) -> str:
    """Return counts in words, the most frequent first."""
    return ", ".join(f"{what}: {number:,}" for what, number in counts.most_common())


def percentiles(times: Sequence[float]) -> str:
    """Return P50, P99 and the longest of sorted seconds, in milliseconds."""
    picked = [times[len(times) // 2], times[int(len(times) * 0.99)], times[-1]] if times else [0.0] * 3
    return " / ".join(f"{1000 * each:.1f}" for each in picked)


async def rows() -> None:
    """Time a call with one row of each size, as it goes through the socket and through shared memory."""
    print("\n| row, KiB | array: socket, us | array: shared, us | bytes: socket, us | bytes: shared, us |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "bench_workers_models.py").write_text(MODELS)
        settings = PythonModel(callable="bench_workers_models:seen", probe=["hello"])
        workers, _ = await Workers.open("m", settings, WorkerSettings(), name, SystemClock())
        usual = arena.SHARED_FROM
        try:
            for size in SIZES:
                array = np.zeros(size // 4, dtype=np.float32)
                found = []
                for row in (array, array.tobytes()):
                    for least in (1 << 40, 1):
                        arena.SHARED_FROM = least
                        found.append(await timed(workers, row))
                    arena.SHARED_FROM = usual
                print(f"| {size >> 10} | " + " | ".join(f"{1e6 * each:.0f}" for each in found) + " |", flush=True)
        finally:
            arena.SHARED_FROM = usual
            await workers.aclose()
    print(f"shared memory is used from {usual >> 10} KiB on")


async def timed(workers: Workers, row: Any) -> float:
    """Return the median seconds of a call."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await workers.apredict([row], 10.0)
        times.append(time.perf_counter() - began)
    return median(times)


async def threads(seconds: float = 6.0) -> None:
    """Load three ONNX models with 16 clients, by threads inside a call, and ask for the health page meanwhile."""
    print("\n| threads inside a call | where | requests/s | health page, ms: P50 / P99 / longest |")
    print("|---|---|---|---|")
    for inside, where in ((1, "thread"), (2, "thread"), (4, "thread"), (1, "process")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for number in range(3):
                write_model(folder / f"m{number}.onnx", 16, number)
            models = "\n".join(
                f"  m{number}: {{backend: onnx, path: m{number}.onnx, features: [{', '.join(ROW)}], labels: ['no', 'yes'], "
                f"threads: {inside}, run: {where}}}"
                for number in range(3)
            )
            routes = "\n".join(
                f"  r{number}: {{policy: m{number}, models: [m{number}], deadline: 30s}}" for number in range(3)
            )
            config = folder / "rheostat.yaml"
            ends = f"server: {{port: 0}}\nadmin: {{secret: {SECRET}, port: 0}}\n"
            config.write_text(f"models:\n{models}\nroutes:\n{routes}\n{ends}")
            process, url, _ = await start(config)
            try:
                rate, pages = await loaded(url, seconds)
            finally:
                process.terminate()
                await process.wait()
        print(f"| {inside} | {where} | {rate:.0f} | {percentiles(pages)} |", flush=True)


async def loaded(url: str, seconds: float) -> tuple[float, list[float]]:
    """Return requests a second of 16 clients, and the sorted times of the health page."""
    until = time.perf_counter() + seconds
    answered: Counter[int] = Counter()
    pages: list[float] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def client(number: int) -> None:
            while time.perf_counter() < until:
                body = {"data": ROW, "route": {"name": f"r{number % 3}"}}
                async with session.post(f"{url}/v1/predict", json=body) as answer:
                    await answer.read()
                    answered[answer.status] += 1

        async def page() -> None:
            while time.perf_counter() < until:
                began = time.perf_counter()
                async with session.get(f"{url}/health/ready") as answer:
                    await answer.read()
                pages.append(time.perf_counter() - began)
                await asyncio.sleep(0.02)

        await asyncio.gather(page(), *(client(number) for number in range(16)))
    assert set(answered) == {200}, answered
    return answered[200] / seconds, sorted(pages)


def main(arguments: Sequence[str]) -> int:
    """Run the parts that are named, or all."""
    wanted = arguments or ("kill", "rows", "threads")
    if "kill" in wanted:
        for count in (1, 2):
            asyncio.run(kill(count))
    if "rows" in wanted:
        asyncio.run(rows())
    if "threads" in wanted:
        asyncio.run(threads())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
