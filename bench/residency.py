"""Ten models in the memory of four: does memory come back, does any request fail, does a switch stay as cheap as the first?

    python -m bench.residency [--cycles 500] [--clients 4]

A real gateway process serves ten ONNX models (files of 20 to 60 MiB), all with `resident: false`, under a `memory.limit`
that holds about four of them, while clients send requests over kept-alive connections. Most ask two models whose turn it is,
some ask any. Every load has to unload something and counts as one cycle. It begins to count when every model has been loaded
and unloaded under traffic; after every hundred loads all models are unloaded and memory is looked at, so that its course is
seen and not its end only. The picture is in `bench-out/residency.png`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import numpy as np
import onnx
import psutil
from onnx import TensorProto, helper, numpy_helper

from bench.reload import SECRET, start

MODELS = tuple(f"m{number}" for number in range(10))
WIDTH = 1024
ROW = {"a": 0.3, "b": -1.0, "c": 2.0, "d": 0.1}
OUT = Path("bench-out")
WARM = 50
"""Loads under traffic, every model's among them, before anything counts: threads, connections and caches come with the first
requests."""
STEP = 100
"""Loads between two looks at the memory without models."""
_LOADED = re.compile(r"model (m\d) is loaded: (\d+) MiB in ([\d.]+) s, ([\d.]+) s of it")


def write_model(path: Path, mib: int, seed: int) -> None:
    """Write a classifier of four features and two labels whose weights fill `mib` MiB."""
    chance = np.random.default_rng(seed)
    weights = [numpy_helper.from_array(_matrix(chance, len(ROW), WIDTH), "w0")]
    weights += [numpy_helper.from_array(_matrix(chance, WIDTH, WIDTH), f"w{layer}") for layer in range(1, mib // 4 + 1)]
    nodes, last = [], "X"
    for layer in range(len(weights)):
        nodes += [helper.make_node("MatMul", [last, f"w{layer}"], [f"h{layer}"])]
        nodes += [helper.make_node("Relu", [f"h{layer}"], [f"r{layer}"])]
        last = f"r{layer}"
    weights.append(numpy_helper.from_array(_matrix(chance, WIDTH, 2), "last"))
    nodes += [
        helper.make_node("MatMul", [last, "last"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"]),
    ]
    given = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, len(ROW)])
    made = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, 2])
    graph = helper.make_graph(nodes, "g", [given], [made], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))


def _matrix(chance: np.random.Generator, rows: int, columns: int) -> np.ndarray[Any, Any]:
    made = chance.standard_normal((rows, columns), dtype=np.float32)
    made *= np.float32((2.0 / rows) ** 0.5)
    return made


def write_config(path: Path, limit: str) -> None:
    """Write a config with a route for every model; nobody stands in for anybody, so that what fails is seen to fail."""
    models = "\n".join(
        f"  {name}: {{backend: onnx, path: {name}.onnx, features: [{', '.join(ROW)}], labels: ['no', 'yes'], "
        "resident: false, keep: 0s, run: thread, max_concurrency: 4, queue: 100}"
        for name in MODELS
    )
    fallback = "fallback: {retry: 0, peer: false, lighter: false}"
    routes = "\n".join(f"  {name}: {{policy: {name}, models: [{name}], deadline: 30s, {fallback}}}" for name in MODELS)
    head = f"memory: {{limit: {limit}}}\nserver: {{port: 0}}\nadmin: {{secret: {SECRET}, port: 0}}\n"
    path.write_text(f"models:\n{models}\nroutes:\n{routes}\n{head}")


class Run:
    """One run: what the clients and a watcher of the process saw."""

    def __init__(self, url: str, admin: str, pid: int) -> None:
        self.url, self.admin = url, admin
        self.process = psutil.Process(pid)
        self.statuses: Counter[int] = Counter()
        self.wrong: Counter[str] = Counter()
        self.times: list[float] = []
        self.seen: list[tuple[float, float, int]] = []  # seconds, resident MiB, loads so far
        self.began = time.perf_counter()
        self.empties: list[tuple[int, float]] = []  # loads so far, MiB with every model unloaded
        self.done = False
        self.loads = 0

    @property
    def memory(self) -> float:
        """Resident memory of the gateway in MiB."""
        return float(self.process.memory_info().rss) / 2**20

    async def client(self, session: aiohttp.ClientSession, number: int) -> None:
        """Send requests until the run is over: most to the two models whose turn it is."""
        chance = random.Random(number)
        while not self.done:
            turn = int(time.perf_counter() - self.began)
            hot = (MODELS[(3 * turn) % 10], MODELS[(3 * turn + 5) % 10])
            name = chance.choice(MODELS) if chance.random() < 0.15 else chance.choice(hot)
            began = time.perf_counter()
            async with session.post(f"{self.url}/v1/predict", json={"data": ROW, "route": {"name": name}}) as answer:
                body = await answer.json()
            self.times.append(time.perf_counter() - began)
            self.statuses[answer.status] += 1
            if answer.status != 200:
                self.wrong[str(body["error"]["message"])] += 1

    async def ask(self, session: aiohttp.ClientSession, method: str, path: str) -> Any:
        """Ask the admin port."""
        headers = {"authorization": f"Bearer {SECRET}"}
        async with session.request(method, self.admin + path, headers=headers) as answer:
            return await answer.json()

    async def watch(self, session: aiohttp.ClientSession, since: int, cycles: int) -> None:
        """Look at memory and loads until there were `cycles` more than `since`."""
        self.done = False
        while self.loads < cycles:
            await asyncio.sleep(0.1)
            self.loads = await self.loaded(session) - since
            self.seen.append((time.perf_counter() - self.began, self.memory, self.loads))
            if len(self.seen) % 100 == 0:
                print(f"  {self.loads:4} loads, {len(self.times):6,} answers, {self.memory:.0f} MiB", flush=True)
        self.done = True

    async def loaded(self, session: aiohttp.ClientSession) -> int:
        """Return the loads since the gateway started."""
        return sum(int(each["loads"]) for each in (await self.ask(session, "GET", "/admin/models"))["models"])

    async def empty(self, session: aiohttp.ClientSession) -> float:
        """Unload every model and return what is left in MiB."""
        for name in MODELS:
            assert (await self.ask(session, "POST", f"/admin/models/{name}/unload"))["done"]
        await asyncio.sleep(0.5)
        return self.memory

    async def traffic(self, session: aiohttp.ClientSession, clients: int, cycles: int) -> None:
        """Send requests until there were `cycles` more loads; look at the memory without models on the way."""
        since = await self.loaded(session)
        self.empties.append((0, await self.empty(session)))
        for goal in [*range(STEP, cycles, STEP), cycles]:
            senders = [asyncio.ensure_future(self.client(session, goal + number)) for number in range(clients)]
            await self.watch(session, since, goal)
            await asyncio.gather(*senders)
            self.empties.append((self.loads, await self.empty(session)))


async def measure(cycles: int, clients: int, folder: Path) -> bool:
    """Run it, print what was seen, and return whether it was as promised."""
    for number, name in enumerate(MODELS):
        write_model(folder / f"{name}.onnx", 20 + 40 * number // 9, number)
    config = folder / "rheostat.yaml"
    write_config(config, "100%")
    process, url, admin = await start(config)
    async with aiohttp.ClientSession() as session:
        run = Run(url, admin, process.pid)
        idle, sizes = (
            await run.empty(session),
            [each["bytes"] / 2**20 for each in (await run.ask(session, "GET", "/admin/models"))["models"]],
        )
    process.terminate()
    await process.wait()
    limit = idle + 4.5 * sum(sizes) / len(sizes)
    write_config(config, f"{limit:.0f}MiB")
    print(f"ten models take {min(sizes):.0f} to {max(sizes):.0f} MiB, {sum(sizes):.0f} together; "
          f"the gateway without them {idle:.0f} MiB, its limit {limit:.0f} MiB")  # fmt: skip
    process, url, admin = await start(config)
    async with aiohttp.ClientSession() as session:
        warm = Run(url, admin, process.pid)
        cold = await warm.empty(session)
        await warm.traffic(session, clients, WARM)
        models = (await warm.ask(session, "GET", "/admin/models"))["models"]
        assert min(each["loads"] for each in models) > 1, "not every model was asked for"
        run, since = Run(url, admin, process.pid), await warm.loaded(session)
        await run.traffic(session, clients, cycles)
        models = (await run.ask(session, "GET", "/admin/models"))["models"]
    process.terminate()
    log = (await process.log).decode()  # type: ignore[attr-defined]
    await process.wait()
    loads = [(int(mib), float(all_s), float(room_s)) for _, mib, all_s, room_s in _LOADED.findall(log)][since:]
    _plot(OUT / "residency.png", run, limit)
    return _tell(run, models, loads, cold)


def _tell(run: Run, models: list[dict[str, Any]], loads: list[tuple[int, float, float]], cold: float) -> bool:
    peak = max(memory for _, memory, _ in run.seen)
    order = sorted(run.times)
    first, last = (_each(part) for part in (loads[:50], loads[-50:]))
    begin, end = run.empties[0][1], run.empties[-1][1]
    print(f"{len(loads)} loads, {sum(each['evictions'] for each in models)} evictions, {len(run.times):,} requests "
          f"in {run.seen[-1][0]:.0f} s; by status {dict(run.statuses)} {dict(run.wrong) or ''}")  # fmt: skip
    print(f"resident memory without models: {cold:.1f} MiB at the start, {begin:.1f} MiB after {WARM} loads under traffic, "
          f"{end:.1f} MiB at the end ({end / begin - 1:+.1%}, against the start {end / cold - 1:+.1%}); "
          f"at most {peak:.0f} MiB under load")  # fmt: skip
    print("on the way: " + ", ".join(f"{loads} loads {memory:.1f}" for loads, memory in run.empties))
    half = [each for each in run.empties if each[0] >= run.loads / 2]
    print(f"that is {_slope(run.empties):+.2f} MiB a hundred loads, {_slope(half):+.2f} over the second half")
    for what, index in (
        ("a switch (unload, load, first answer)", 0),
        ("of it to make room", 1),
        ("a switch for 100 MiB", 2),
    ):
        print(f"{what}: P50 of the first 50 {first[index] * 1000:.0f} ms, of the last 50 {last[index] * 1000:.0f} ms, "
              f"ratio {last[index] / first[index]:.2f}")  # fmt: skip
    print(f"request P50 {order[len(order) // 2] * 1000:.1f} ms, P99 {order[len(order) * 99 // 100] * 1000:.0f} ms")
    return set(run.statuses) == {200} and abs(end / begin - 1) <= 0.05


def _each(loads: list[tuple[int, float, float]]) -> tuple[float, float, float]:
    return (
        median(all_s for _, all_s, _ in loads),
        median(room_s for _, _, room_s in loads),
        median(100 * all_s / mib for mib, all_s, _ in loads),
    )


def _slope(points: list[tuple[int, float]]) -> float:
    """MiB a hundred loads, by least squares."""
    loads, memory = np.array(points, dtype=float).T
    return 100.0 * float(np.polyfit(loads, memory, 1)[0]) if len(points) > 1 else 0.0


def _plot(path: Path, run: Run, limit: float) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(12, 4.5))
    axis.plot([loads for _, _, loads in run.seen], [memory for _, memory, _ in run.seen], lw=0.8, color="#4477aa")
    for height, what in ((limit, "limit"), (0.85 * limit, "high"), (0.7 * limit, "low")):
        axis.axhline(height, lw=0.8, ls="--", color="#ee6677" if what == "limit" else "gray")
        axis.annotate(what, (0, height), fontsize=8, va="bottom")
    axis.plot(*zip(*run.empties, strict=True), "o-", ms=3, lw=1.2, color="#228833", label="every model unloaded")
    axis.legend()
    axis.set_xlabel("loads so far")
    axis.set_ylabel("resident memory of the gateway, MiB")
    axis.set_ylim(0, None)
    axis.set_title("Ten models loaded and unloaded under traffic")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)


def main() -> None:
    """Read the arguments and run; the exit status is 1 when a request failed or memory did not come back within 5 %."""
    arguments = argparse.ArgumentParser(description="Ten models in the memory of four.")
    arguments.add_argument("--cycles", type=int, default=500)
    arguments.add_argument("--clients", type=int, default=4)
    options = arguments.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as folder:
        raise SystemExit(0 if asyncio.run(measure(options.cycles, options.clients, Path(folder))) else 1)


if __name__ == "__main__":
    main()
