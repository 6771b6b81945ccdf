"""What it costs requests that freed memory is given back. `python -m bench.heaps [--requests 3000] [--rounds 6]`

A gateway process answers by a resident ONNX model in threads, 4 clients, over kept-alive connections. First with the C
library as it is, and with the settings that models on demand bring (buffers of 1 MiB and more mapped one by one, as many
heaps as processors), in turns, both set from outside: CPU a request, P50 and P99. Then with a neighbour of 60 MiB on demand,
which lies still, or is loaded and unloaded without a pause: its `malloc_trim` holds every heap for a moment.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import psutil

from bench.reload import SECRET, start
from bench.residency import ROW, write_model

MODEL = "backend: onnx, features: [a, b, c, d], labels: ['no', 'yes']"
CLIENTS = 4
SETTINGS = {
    "as it is": {},
    "as with models on demand": {"MALLOC_ARENA_MAX": str(os.cpu_count()), "MALLOC_MMAP_THRESHOLD_": str(2**20)},
}
Seen = tuple[float, float, float]  # milliseconds of CPU a request, P50, P99


def write(folder: Path, neighbour: bool) -> Path:
    """Write a config, with or without a model that is loaded on demand."""
    path = folder / "rheostat.yaml"
    other = f"  other: {{{MODEL}, path: other.onnx, resident: false, keep: 0s}}\n" if neighbour else ""
    path.write_text(
        f"models:\n  here: {{{MODEL}, path: here.onnx, run: thread}}\n{other}"
        f"routes: {{default: {{policy: here, models: [here]}}}}\n"
        f"server: {{port: 0}}\nadmin: {{secret: {SECRET}, port: 0}}\n"
    )
    return path


async def load(url: str, pid: int, requests: int) -> Seen:
    """Send requests from all clients, one after another each, and return what was seen."""
    times: list[float] = []
    process = psutil.Process(pid)

    async def client(session: aiohttp.ClientSession, count: int) -> None:
        for _ in range(count):
            began = time.perf_counter()
            async with session.post(f"{url}/v1/predict", json={"data": ROW}) as answer:
                await answer.read()
                assert answer.status == 200
            times.append(1000.0 * (time.perf_counter() - began))

    async with aiohttp.ClientSession() as session:
        used = sum(process.cpu_times()[:2])
        await asyncio.gather(*(client(session, requests // CLIENTS) for _ in range(CLIENTS)))
        used = sum(process.cpu_times()[:2]) - used
    times.sort()
    return 1000.0 * used / len(times), times[len(times) // 2], times[len(times) * 99 // 100]


async def by_settings(folder: Path, requests: int, rounds: int) -> dict[str, list[Seen]]:
    """Measure both settings in turns, each round in processes of its own."""
    config, found = write(folder, False), defaultdict(list)
    for turn in range(rounds):
        for name in (list(SETTINGS), list(reversed(SETTINGS)))[turn % 2]:
            os.environ.update(SETTINGS[name])
            process, url, _ = await start(config)
            for key in SETTINGS[name]:
                del os.environ[key]
            await load(url, process.pid, requests // 5)
            found[name].append(await load(url, process.pid, requests))
            process.terminate()
            await process.wait()
    return found


async def by_neighbour(folder: Path, requests: int, rounds: int) -> tuple[dict[str, list[Seen]], float]:
    """Measure with a neighbour that lies still and with one that comes and goes; and how often it did a second."""
    process, url, admin = await start(write(folder, True))
    found, moves, moving = defaultdict(list), 0, 0.0
    await load(url, process.pid, requests // 5)
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {SECRET}"}) as session:

        async def ask(action: str) -> None:
            async with session.post(f"{admin}/admin/models/other/{action}") as answer:
                body: Any = await answer.json()
                assert body["done"], body

        async def move() -> None:
            nonlocal moves
            while True:
                await ask("load")
                await ask("unload")
                moves += 1

        for _ in range(rounds):
            found["lies still"].append(await load(url, process.pid, requests))
            began, task = time.perf_counter(), asyncio.create_task(move())
            found["is loaded and unloaded"].append(await load(url, process.pid, requests))
            moving += time.perf_counter() - began
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await ask("unload")
    process.terminate()
    await process.wait()
    return found, moves / moving


def told(what: str, found: dict[str, list[Seen]], cpu: bool) -> None:
    """Print a table of medians over the rounds."""
    head = (what, *(["CPU a request, ms"] if cpu else []), "P50, ms", "P99, ms")
    print(f"\n| {' | '.join(head)} |", "|---" * len(head) + "|", sep="\n")
    for name, seen in found.items():
        cells = [f"{median(each):.2f}" for each in zip(*seen, strict=True)]
        print(f"| {' | '.join((name, *cells[0 if cpu else 1 :]))} |")


async def measure(requests: int, rounds: int) -> None:
    """Run both and print their tables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "here.onnx", 4, 0)
        write_model(folder / "other.onnx", 60, 1)
        told("C library", await by_settings(folder, requests, rounds), True)
        found, rate = await by_neighbour(folder, requests, rounds)
        told("neighbour", found, False)
        print(f"\nit was loaded and unloaded {rate:.1f} times a second")


def main() -> None:
    """Read the arguments and run."""
    arguments = argparse.ArgumentParser(description="What it costs requests that freed memory is given back.")
    arguments.add_argument("--requests", type=int, default=3000)
    arguments.add_argument("--rounds", type=int, default=6)
    options = arguments.parse_args()
    asyncio.run(measure(options.requests, options.rounds))


if __name__ == "__main__":
    main()
