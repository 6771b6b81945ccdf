"""What switching a model's weights costs while it serves. `python -m bench.switching [--switches 40]`

An encoder of 112 MiB (`bench.encoder_net`) answers short texts through the Router, to one client that asks without a pause,
while the config is reloaded again and again, each time with other weights: a whole file, a whole model of the store, a
difference (last layer and head), a head. All kinds take turns in one run; files lie in the page cache, and their times of
change are renewed before every switch, so that nothing is remembered of them. Two kinds of requests feel a switch: one that
comes with it and is to be answered by the new weights, which waits for the reload; and those in flight meanwhile, held
against those in flight in a window of the same length without a switch, right after. Then heads and differences take turns
without a pause, to see what the last switch costs against the first, and what becomes of the memory.
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
from rheostat import opening
from rheostat.backends.torch import TorchClassifier
from rheostat.config import load_config
from rheostat.router import Router
from rheostat.weights import WeightStore, make_delta

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
    """What the switches of one kind took, in milliseconds by the clock and of processor: making and trying the new model,
    the reload, the first answer by the new weights; and the latencies of requests that met a switch, or a window of the same
    length without one."""

    def __init__(self) -> None:
        self.loading: list[float] = []
        self.cpu: list[float] = []
        self.tried: list[float] = []
        self.reload: list[float] = []
        self.first: list[float] = []
        self.met: list[float] = []
        self.alone: list[float] = []


class Client:
    """Asks one request after the other without a pause; keeps when each began and ended, in seconds."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.spans: list[tuple[float, float]] = []
        self.failed: list[str] = []
        self.stopped = False

    async def ask(self, turn: int) -> float:
        """Ask one request; return its milliseconds."""
        began = time.perf_counter()
        served = await self.router.serve(self.router.request(TEXTS[turn % len(TEXTS)]))
        if served.error is not None:
            self.failed.append(str(served.error))
        self.spans.append((began, time.perf_counter()))
        return 1000.0 * (time.perf_counter() - began)

    async def run(self) -> None:
        """Ask until it is stopped."""
        turn = 0
        while not self.stopped:
            await self.ask(turn)
            turn += 1

    def met(self, began: float, ended: float) -> list[float]:
        """Return the milliseconds of the requests that were in flight at any time between the two."""
        return [1000.0 * (last - first) for first, last in self.spans[-400:] if first < ended and last > began]


async def run(scene: Scene, switches: int) -> tuple[dict[str, Times], list[float]]:
    """Serve and switch; return times by kind, and what a first request costs when nothing was switched before it."""
    scene.config(scene.written("head", 1)[0])
    router = await Router.open(str(scene.folder / "rheostat.yaml"))
    times: dict[str, Times] = defaultdict(Times)
    client, marks, plain = Client(router), Marks(), []
    asking = asyncio.create_task(client.run())
    await asyncio.sleep(2.0)
    for turn in range(switches):
        for kind in KINDS:
            # Differences and heads begin from the base, as they do where one version of it follows another.
            start, _ = scene.written("head" if kind == "difference" else "difference", 1 + turn % 2)
            scene.config(start)
            assert await router.reload(), router.last_error
            await asyncio.sleep(0.3)
            written, files = scene.written(kind, 2 - turn % 2)
            for path in files:
                os.utime(path)
            scene.config(written)
            each, began = times[kind], time.perf_counter()
            assert await router.reload(), router.last_error
            ended = time.perf_counter()
            await client.ask(turn)
            each.first.append(1000.0 * (time.perf_counter() - began))
            each.reload.append(1000.0 * (ended - began))
            each.loading.append(marks.made[0])
            each.cpu.append(marks.made[1])
            each.tried.append(marks.opened[1])
            await asyncio.sleep(0.3)
            each.met += client.met(began, ended)
            still = time.perf_counter()
            await asyncio.sleep(ended - began)
            plain.append(await client.ask(turn))
            await asyncio.sleep(0.1)
            each.alone += client.met(still, still + ended - began)
        print(f"{turn + 1} of {switches} rounds", file=sys.stderr)
    client.stopped = True
    await asking
    await router.aclose()
    print(f"{len(client.failed)} requests failed {client.failed[:3] or ''}")
    return times, plain


async def soak(scene: Scene, switches: int = 400) -> tuple[list[float], list[float]]:
    """Return the milliseconds of CPU of every switch, and the resident MiB after every tenth."""
    scene.config(scene.written("head", 1)[0])
    router = await Router.open(str(scene.folder / "rheostat.yaml"))
    process, used, resident = psutil.Process(), [], []
    marks = Marks()
    for turn in range(switches):
        scene.config(scene.written(KINDS[2 + turn % 2], 1 + turn // 2 % 2)[0])
        assert await router.reload(), router.last_error
        await router.apredict(TEXTS[turn % len(TEXTS)])
        used.append(marks.opened[1])
        if turn % 10 == 9:
            resident.append(process.memory_info().rss / 2**20)
    await router.aclose()
    return used, resident


class Marks:
    """Milliseconds, by the clock and of processor, of the last making of a successor, and of that with its trial."""

    def __init__(self) -> None:
        self.made = self.opened = (0.0, 0.0)
        make, open_it = TorchClassifier.successor, opening._opened

        def successor(it: TorchClassifier, settings: Any, base: str) -> Any:
            made, self.made = _timed(lambda: make(it, settings, base))
            assert made is not None
            return made

        def opened(*given: Any) -> Any:
            model, self.opened = _timed(lambda: open_it(*given))
            return model

        TorchClassifier.successor = successor  # type: ignore[method-assign,assignment]
        opening._opened = opened  # type: ignore[assignment]


def _timed(work: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    began, used = time.perf_counter(), time.thread_time()
    made = work()
    return made, (1000.0 * (time.perf_counter() - began), 1000.0 * (time.thread_time() - used))


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


HEAD = (
    "switch",
    "MiB that differ",
    "weights in place, ms: median (worst)",
    "CPU",
    "CPU with the trial",
    "reload, ms: P50 (P99)",
    "waits for the new weights, added ms: P50",
    "P99",
    "requests in flight",
    "their added ms: P50",
    "P99",
)


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
        times, plain = asyncio.run(run(scene, given.switches))
        print(f"{scene.bytes / 2**20:.0f} MiB of weights, one client without a pause; opened anew {median(anew):.0f} ms")
        print(f"a second request without a switch: P50 {at(plain, 0.5):.1f}, P99 {at(plain, 0.99):.1f} ms ({len(plain)})\n")
        print(f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|", sep="\n")
        sizes = {"difference": scene.delta_bytes, "head": scene.head_bytes}
        for kind in KINDS:
            print(f"| {' | '.join(cells(kind, sizes.get(kind, scene.bytes), times[kind], plain))} |")
        waits = {kind: waited(times[kind], plain, 0.5) for kind in KINDS}
        for kind in KINDS[2:]:
            shares = [median(times[whole].cpu) / median(times[kind].cpu) for whole in KINDS[:2]]
            print(f"{kind}: {shares[1]:.1f} times less CPU to put in place than a whole model whose hashes are checked, "
                  f"{shares[0]:.1f} times less than a whole file of which nothing is known; who waits for it waits "
                  f"{waits[KINDS[1]] / waits[kind]:.1f} and {waits[KINDS[0]] / waits[kind]:.1f} times less")  # fmt: skip
        used, resident = asyncio.run(soak(scene))
        print(f"{len(used)} switches on end: the first hundred {median(used[:100]):.1f} ms of CPU each, the last "
              f"{median(used[-100:]):.1f}; resident after 50 {resident[4]:.0f} MiB, last {resident[-1]:.0f}")  # fmt: skip
    return 0


def waited(times: Times, plain: Sequence[float], share: float) -> float:
    """Return the added milliseconds of requests that come with the switch and are answered by the new weights."""
    return at(times.first, share) - at(plain, share)


def cells(kind: str, size: int, times: Times, plain: Sequence[float]) -> list[str]:
    """Return one line of the table."""
    loading = f"{median(times.loading):.1f} ({max(times.loading):.1f})"
    reload = f"{median(times.reload):.1f} ({at(times.reload, 0.99):.1f})"
    waits = [f"{waited(times, plain, share):+.1f}" for share in (0.5, 0.99)]
    added = [f"{at(times.met, share) - at(times.alone, share):+.1f}" for share in (0.5, 0.99)]
    processor = (f"{median(times.cpu):.1f}", f"{median(times.tried):.1f}")
    return [kind, f"{size / 2**20:.1f}", loading, *processor, reload, *waits, str(len(times.met)), *added]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
