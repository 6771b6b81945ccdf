"""What switching a model's weights costs while it serves. `python -m bench.switching [--switches 40]`

An encoder of 112 MiB (`bench.encoder_net`) answers short texts at a steady rate through the Router, while the config is
reloaded again and again, each time with other weights: a whole file, a whole model of the store, a difference (last layer
and head), a head. All kinds take turns in one run; files lie in the page cache, and their times of change are renewed
before every switch, so that nothing is remembered of them. A switch's own requests are those in flight while it runs. Then
heads and differences take turns without a pause, to see what the last switch costs against the first, and what becomes of
the memory.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import torch

from bench.encoder_net import encoder, random_state, tuned, write, write_tokenizer
from rheostat.backends.torch import TorchClassifier
from rheostat.config import load_config
from rheostat.router import Router
from rheostat.weights import WeightStore, make_delta

RATE = 20.0  # requests a second
TEXTS = [" ".join(f"w{(7 * row + 13 * word) % 29_000}" for word in range(14)) for row in range(50)]
KINDS = ("whole file", "whole model of the store", "difference", "head")


class Scene:
    """The files of all kinds, two of each, and the config that names one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = 0
        write_tokenizer(folder)
        base = random_state(0)
        write(folder / "base.safetensors", base)
        store = WeightStore(folder / "store")
        store.add(folder / "base.safetensors", "base")
        for turn in (1, 2):
            other = write(folder / f"other{turn}.safetensors", random_state(turn))
            store.add(other, f"other{turn}")
            new = tuned(base, turn)
            make_delta(
                folder / "base.safetensors", write(folder / "new.safetensors", new), folder / f"delta{turn}.safetensors"
            )
            write(folder / f"head{turn}.safetensors", {name: each for name, each in new.items() if name.startswith("head.")})
        self.delta_bytes = (folder / "delta1.safetensors").stat().st_size
        self.head_bytes = (folder / "head1.safetensors").stat().st_size
        self.bytes = (folder / "base.safetensors").stat().st_size

    def written(self, kind: str, turn: int) -> tuple[str, list[Path]]:
        """Return what the config says, and the files that are new in it."""
        if kind == "whole file":
            return f"weights: other{turn}.safetensors", [self.folder / f"other{turn}.safetensors"]
        if kind == "whole model of the store":
            return f"weights: store/models/other{turn}.json", list((self.folder / "store" / "blobs").glob("*/*"))
        if kind == "difference":
            return f"weights: store/models/base.json, delta: delta{turn}.safetensors", [
                self.folder / f"delta{turn}.safetensors"
            ]
        return f"weights: store/models/base.json, head: head{turn}.safetensors", [self.folder / f"head{turn}.safetensors"]

    def config(self, written: str) -> Path:
        """Write the config; every one has a version of its own."""
        self.number += 1
        path = self.folder / "rheostat.yaml"
        net = "backend: torch, module: 'bench.encoder_net:encoder', tokenizer: tokenizer.json, max_length: 64"
        path.write_text(
            f"models:\n  net: {{{net}, {written}, version: '{self.number}'}}\nroutes: {{default: {{policy: net}}}}\n"
        )
        return path


class Times:
    """How long the steps of one kind of switch took, in milliseconds, and the latencies of requests meanwhile."""

    def __init__(self) -> None:
        self.loading: list[float] = []
        self.cpu: list[float] = []
        self.reload: list[float] = []
        self.latency: list[float] = []


async def run(scene: Scene, switches: int) -> tuple[dict[str, Times], list[float]]:
    """Serve and switch; return times by kind, and the latencies of requests that met no switch."""
    scene.config(scene.written("head", 1)[0])
    router = await Router.open(str(scene.folder / "rheostat.yaml"))
    times: dict[str, Times] = defaultdict(Times)
    quiet: list[float] = []
    current: list[str] = [""]
    done = False
    marks: list[tuple[float, float]] = []
    failed: list[str] = []

    async def one(text: str) -> None:
        began, kind = time.perf_counter(), current[0]
        served = await router.serve(router.request(text))
        took = 1000.0 * (time.perf_counter() - began)
        if served.error is not None:
            failed.append(str(served.error))
        kind = kind or current[0]
        (times[kind].latency if kind else quiet).append(took)

    async def traffic() -> None:
        tasks, due, turn = set(), time.perf_counter(), 0
        while not done:
            task = asyncio.create_task(one(TEXTS[turn % len(TEXTS)]))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            turn, due = turn + 1, due + 1.0 / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await asyncio.gather(*tasks)

    timed(marks)
    asking = asyncio.create_task(traffic())
    await asyncio.sleep(2.0)
    for turn in range(switches):
        for kind in KINDS:
            # Differences and heads begin from the base, as they do where one version of it follows another.
            start, _ = scene.written("head" if kind == "difference" else "difference", 1 + turn % 2)
            scene.config(start)
            assert await router.reload(), router.last_error
            await asyncio.sleep(0.4)
            written, files = scene.written(kind, 2 - turn % 2)
            for path in files:
                os.utime(path)
            scene.config(written)
            marks.clear()
            current[0] = kind
            began = time.perf_counter()
            assert await router.reload(), router.last_error
            times[kind].reload.append(1000.0 * (time.perf_counter() - began))
            times[kind].loading.append(1000.0 * marks[0][0])
            times[kind].cpu.append(1000.0 * marks[0][1])
            current[0] = ""
            await asyncio.sleep(0.4)
        print(f"{turn + 1} of {switches} rounds", file=sys.stderr)
    done = True
    await asking
    await router.aclose()
    print(f"{len(failed)} requests failed {failed[:3] or ''}")
    return times, quiet


async def soak(scene: Scene, switches: int = 400) -> tuple[list[float], list[float]]:
    """Return the milliseconds of CPU of every switch, and the resident MiB after every tenth."""
    scene.config(scene.written("head", 1)[0])
    router = await Router.open(str(scene.folder / "rheostat.yaml"))
    process, used, resident = psutil.Process(), [], []
    marks: list[tuple[float, float]] = []
    timed(marks)
    for turn in range(switches):
        scene.config(scene.written(KINDS[2 + turn % 2], 1 + turn // 2 % 2)[0])
        assert await router.reload(), router.last_error
        await router.apredict(TEXTS[turn % len(TEXTS)])
        used.append(1000.0 * marks[-1][1])
        if turn % 10 == 9:
            resident.append(process.memory_info().rss / 2**20)
    await router.aclose()
    return used, resident


def timed(marks: list[tuple[float, float]]) -> None:
    """Keep the seconds, and the seconds of CPU, that every making of a successor takes."""
    make: Callable[..., Any] = TorchClassifier.successor

    def successor(self: TorchClassifier, settings: Any, base: str) -> Any:
        began, used = time.perf_counter(), time.thread_time()
        made = make(self, settings, base)
        assert made is not None
        marks.append((time.perf_counter() - began, time.thread_time() - used))
        return made

    TorchClassifier.successor = successor  # type: ignore[method-assign]


def opened_anew(scene: Scene, times: int = 9) -> list[float]:
    """Return the milliseconds of making the module and loading its weights without one in service to share with."""
    scene.config(scene.written("whole file", 1)[0])
    settings = load_config(str(scene.folder / "rheostat.yaml")).config.models["net"]
    found = []
    for _ in range(times):
        began = time.perf_counter()
        backend = settings.open(str(scene.folder))
        found.append(1000.0 * (time.perf_counter() - began))
        assert isinstance(backend, TorchClassifier)
        backend.close()
    return found


def at(values: Sequence[float], share: float) -> float:
    """Return the quantile."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main(arguments: Sequence[str]) -> int:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--switches", type=int, default=40)
    given = parser.parse_args(list(arguments))
    torch.set_num_threads(1)
    encoder()
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder))
        anew = opened_anew(scene)
        times, quiet = asyncio.run(run(scene, given.switches))
        sizes = {"difference": scene.delta_bytes, "head": scene.head_bytes}
        print(f"{scene.bytes / 2**20:.0f} MiB of weights, {RATE:g} requests/s; opened anew {median(anew):.0f} ms")
        print(f"without a switch P50 {at(quiet, 0.5):.1f}, P99 {at(quiet, 0.99):.1f} ms ({len(quiet)} requests)\n")
        loading = "weights in place, ms: median (worst)"
        head = (
            "switch",
            "MiB that differ",
            loading,
            "CPU",
            "whole reload, ms: median (worst)",
            "requests met",
            "added ms, P50",
            "added ms, P99",
        )
        print(f"| {' | '.join(head)} |", "|---" * len(head) + "|", sep="\n")
        for kind in KINDS:
            each = times[kind]
            cells = (
                kind,
                f"{sizes.get(kind, scene.bytes) / 2**20:.1f}",
                f"{median(each.loading):.1f} ({max(each.loading):.1f})",
                f"{median(each.cpu):.1f}",
                f"{median(each.reload):.0f} ({max(each.reload):.0f})",
                str(len(each.latency)),
                *(f"{at(each.latency, share) - at(quiet, share):+.1f}" for share in (0.5, 0.99)),
            )
            print(f"| {' | '.join(cells)} |")
        for kind in KINDS[2:]:
            shares = [median(times[whole].cpu) / median(times[kind].cpu) for whole in KINDS[:2]]
            print(f"{kind}: {shares[1]:.1f} times less CPU than a whole model whose hashes are checked, "
                  f"{shares[0]:.1f} times less than a whole file of which nothing is known")  # fmt: skip
        used, resident = asyncio.run(soak(scene))
        print(f"{len(used)} switches on end: the first hundred {median(used[:100]):.1f} ms of CPU each, the last "
              f"{median(used[-100:]):.1f}; resident after 50 {resident[4]:.0f} MiB, last {resident[-1]:.0f}")  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
