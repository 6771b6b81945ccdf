"""The family of `bench.family`, each of its four variants with `workers: 2`. `python -m bench.family workers`

Eight processes, opened as the gateway opens them: with weights from one store, and with copies of their own. PSS of all
processes together; what eight processes take that have torch and the tokenizer but no model is told apart. Run time is CPU
seconds of the processes a text, in turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench.encoder_net import LABELS
from rheostat.backends.python import PythonModel
from rheostat.backends.torch import TorchModel
from rheostat.clock import SystemClock
from rheostat.pool.backend import ModelSettings
from rheostat.pool.worker.settings import WorkerSettings
from rheostat.pool.worker.workers import Workers

VARIANTS, COUNT = 4, 2
TEXTS = [" ".join(f"w{(11 * row + 17 * word) % 29_000}" for word in range(30)) for row in range(8)]


class Separate:
    """A variant with a copy of its weights of its own."""

    def __init__(self, folder: str, number: int) -> None:
        from bench.family import opened, separated

        self.labels = LABELS
        self._model = separated(opened(Path(folder), number), Path(folder), number)

    def __call__(self, rows: Sequence[Any]) -> list[Any]:
        return [{"label": each.label, "scores": each.scores} for each in self._model.predict(rows)]  # type: ignore[union-attr]


class Nothing:
    """What every such process has: torch and the tokenizer, and no model any more."""

    def __init__(self, folder: str, number: int) -> None:
        from bench.family import opened

        opened(Path(folder), number).close()

    def __call__(self, rows: Sequence[Any]) -> list[Any]:
        return [(LABELS[0], 0.5) for _ in rows]


def settings_of(how: str, folder: Path, number: int) -> ModelSettings:
    """Return the settings of a variant."""
    if how == "shared":
        return TorchModel(
            module="bench.encoder_net:encoder",
            weights=f"store/models/v{number}.json",
            tokenizer="tokenizer.json",
            max_length=64,
            labels=LABELS,
        )
    made = {"separate": Separate, "nothing": Nothing}[how]
    return PythonModel(
        callable=f"bench.family_workers:{made.__name__}", args={"folder": str(folder), "number": number}, probe=TEXTS[:1]
    )


async def opened_in_processes(how: str, folder: Path, number: int, count: int = COUNT) -> Workers:
    """Open a variant in processes of its own."""
    settings = settings_of(how, folder, number)
    found, _ = await Workers.open(f"v{number}", settings, WorkerSettings(count=count), str(folder), SystemClock())
    return found


def pids_of(models: Sequence[Workers]) -> list[int]:
    """Return the processes of all models."""
    return [each["pid"] for model in models for each in model.status(0.0)["processes"]]


async def memory(how: str, folder: Path) -> float:
    """Return the PSS of all processes in MiB, when every one of them has answered."""
    models = [await opened_in_processes(how, folder, number) for number in range(VARIANTS)]
    try:
        for model in models:
            await asyncio.gather(*(model.apredict(TEXTS, 60.0) for _ in range(COUNT)))
        return float(sum(psutil.Process(pid).memory_full_info().pss for pid in pids_of(models))) / 2**20
    finally:
        await asyncio.gather(*(model.aclose() for model in models))


async def speed(folder: Path, rounds: int = 15) -> tuple[list[float], list[float]]:
    """Return CPU milliseconds of the process a text, round by round, of shared weights and of separate ones."""
    models = [await opened_in_processes(how, folder, 1, 1) for how in ("shared", "separate")]
    processes = [psutil.Process(pid) for pid in pids_of(models)]
    times: tuple[list[float], list[float]] = ([], [])
    try:
        for turn in range(2 * rounds):
            which = turn % 2 if turn % 4 < 2 else 1 - turn % 2  # which goes first changes, so that neither gains by it
            before = sum(processes[which].cpu_times()[:2])
            for text in 4 * TEXTS:
                await models[which].apredict([text], 60.0)
            times[which].append(1000.0 * (sum(processes[which].cpu_times()[:2]) - before) / (4 * len(TEXTS)))
    finally:
        await asyncio.gather(*(model.aclose() for model in models))
    return times


async def table(folder: Path) -> None:
    """Print what was found."""
    found = {how: await memory(how, folder) for how in ("nothing", "separate", "shared")}
    empty = found["nothing"]
    print(f"\n{VARIANTS} variants with `workers: {COUNT}`, {VARIANTS * COUNT} processes, PSS in MiB\n")
    print("| weights | without a model | with all models | models alone |", "|---|---|---|---|", sep="\n")
    for how in ("separate", "shared"):
        print(f"| {how} | {empty:.0f} | {found[how]:.0f} | {found[how] - empty:.0f} |")
    whole = 1.0 - found["shared"] / found["separate"]
    alone = 1.0 - (found["shared"] - empty) / (found["separate"] - empty)
    print(f"\nless memory: {whole:.1%} of the whole processes, {alone:.1%} of what the models take")
    shared, own = await speed(folder)
    print(f"CPU per text: shared {median(shared):.2f} ms, separate {median(own):.2f} ms "
          f"({median(shared) / median(own) - 1.0:+.1%}, {len(own)} rounds each)")  # fmt: skip
