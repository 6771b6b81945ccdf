"""What four fine-tuned variants of one model take in memory, and how fast they answer. `python -m bench.family`

Four classifiers of 112 MiB that share all but their last layer and head (`bench.encoder_net`) are opened in two processes
each: from one weight store, and as separate copies (`load_state_dict`, as usual). Memory is proportional set size (PSS), so
that a page shared by two processes counts half in each; what the processes take before they load a model is told apart.
Answers are timed in CPU seconds, shared and separate weights in turns within one process. `python -m bench.family workers`
opens them as the gateway does for `workers: 2`: see `bench.family_workers`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import torch
from safetensors.torch import load_file

from bench.encoder_net import LABELS, Classifier, random_state, tuned, write, write_tokenizer
from bench.family_workers import table
from rheostat.backends.torch import TorchClassifier, TorchModel
from rheostat.weights import WeightStore

VARIANTS, PROCESSES = 4, 2
TEXTS = [" ".join(f"w{(11 * row + 17 * word) % 29_000}" for word in range(30)) for row in range(8)]


def opened(folder: Path, number: int) -> TorchClassifier:
    """Open a variant from the store."""
    settings = TorchModel(
        module="bench.encoder_net:encoder",
        weights=f"store/models/v{number}.json",
        tokenizer="tokenizer.json",
        max_length=64,
        labels=LABELS,
    )
    backend = settings.open(str(folder))
    assert isinstance(backend, TorchClassifier)
    return backend


def separated(backend: TorchClassifier, folder: Path, number: int) -> TorchClassifier:
    """Return the same model with a copy of the weights of its own."""
    module = Classifier()
    module.load_state_dict(load_file(folder / f"v{number}.safetensors"))
    backend._module = module.eval()
    backend._files = {}
    return backend


def worker(folder: Path, how: str) -> None:
    """Open all variants, answer with each, say so, and wait for the end of the input."""
    opened(folder, 0).close()  # what torch and the tokenizer take is not the models'
    say(psutil.Process().memory_full_info().pss)
    models = [opened(folder, number) for number in range(VARIANTS)]
    if how == "separate":
        models = [separated(model, folder, number) for number, model in enumerate(models)]
    for model in models:
        model.predict(TEXTS)
    say(0)
    sys.stdin.readline()
    say(psutil.Process().memory_full_info().pss)
    sys.stdin.readline()


def say(number: int) -> None:
    """Tell the parent a number."""
    print(number, flush=True)


def memory(folder: Path, how: str) -> tuple[float, float]:
    """Return MiB of all processes together: before a model was loaded, and with all of them."""
    command = [sys.executable, "-m", "bench.family", "worker", str(folder), how]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(PROCESSES)]
    before = [read(process) for process in processes]
    for process in processes:
        read(process)
    for process in processes:
        write_line(process)
    after = [read(process) for process in processes]
    for process in processes:
        write_line(process)
        process.wait()
    return sum(before) / 2**20, sum(after) / 2**20


def read(process: subprocess.Popen[str]) -> int:
    """Return the next number a worker says."""
    assert process.stdout is not None
    return int(process.stdout.readline())


def write_line(process: subprocess.Popen[str]) -> None:
    """Let a worker go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def speed(folder: Path, rounds: int = 40) -> tuple[list[float], list[float]]:
    """Return milliseconds of CPU per text, round by round, of shared weights and of separate ones."""
    shared, own = opened(folder, 1), separated(opened(folder, 1), folder, 1)
    assert shared.predict(TEXTS) == own.predict(TEXTS)
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(2 * rounds):
        which = turn % 2 if turn % 4 < 2 else 1 - turn % 2  # which goes first changes, so that neither gains by it
        model: Any = (shared, own)[which]
        began = time.process_time()
        for text in TEXTS:
            model.predict([text])
        times[which].append(1000.0 * (time.process_time() - began) / len(TEXTS))
    return times


def main(arguments: Sequence[str]) -> int:
    """Run and print both tables."""
    torch.set_num_threads(1)
    if arguments[:1] == ["worker"]:
        worker(Path(arguments[1]), arguments[2])
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tokenizer(folder)
        base, store = random_state(0), WeightStore(folder / "store")
        for number in range(VARIANTS):
            store.add(write(folder / f"v{number}.safetensors", tuned(base, number)), f"v{number}")
        size = (folder / "v0.safetensors").stat().st_size / 2**20
        kept = sum(path.stat().st_size for path in (folder / "store" / "blobs").glob("*/*")) / 2**20
        if arguments[:1] == ["workers"]:
            asyncio.run(table(folder))
            return 0
        print(f"{VARIANTS} variants of {size:.0f} MiB in {PROCESSES} processes; on disk {kept:.0f} MiB "
              f"instead of {VARIANTS * size:.0f}\n")  # fmt: skip
        print(
            "| weights | PSS before loading, MiB | PSS with all models, MiB | models alone, MiB |",
            "|---|---|---|---|",
            sep="\n",
        )
        found = {how: memory(folder, how) for how in ("separate", "shared")}
        for how, (before, after) in found.items():
            print(f"| {how} | {before:.0f} | {after:.0f} | {after - before:.0f} |")
        whole = 1.0 - found["shared"][1] / found["separate"][1]
        alone = 1.0 - (found["shared"][1] - found["shared"][0]) / (found["separate"][1] - found["separate"][0])
        print(f"\nless memory: {whole:.1%} of the whole processes, {alone:.1%} of what the models take")
        shared, own = speed(folder)
        print(f"CPU per text: shared {median(shared):.2f} ms, separate {median(own):.2f} ms "
              f"({median(shared) / median(own) - 1.0:+.1%}, {len(own)} rounds each)")  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
