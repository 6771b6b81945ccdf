"""What variants of one ONNX model take in memory when they name one external-data file. `python -m bench.onnx_family`

Four classifiers of 112 MiB (28 square layers) that differ in their last layer only are opened in two processes each: as
whole files, and as small files that name the same file beside them for the common layers (ONNX external data), which the
onnx backend leaves mapped and unpacked with `share: true`. Memory is proportional set size (PSS), so that a page shared by
two processes counts half in each. Answers are timed in CPU seconds in one process, both kinds in turns, for one row and for
batches: ONNX Runtime packs weights for speed where they are not shared.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import psutil
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from rheostat.backends.onnx import OnnxModel
from rheostat.pool.backend import Backend

WIDTH, LAYERS, VARIANTS, PROCESSES = 1024, 28, 4, 2
BATCHES = (1, 8, 64)
NAMES = tuple(f"f{number}" for number in range(8))
HOW = ("whole files", "one external file")


def write_family(folder: Path) -> None:
    """Write `whole NUMBER.onnx`, and `shared NUMBER.onnx` with `trunk.bin`."""
    chance = np.random.default_rng(0)
    sides = [(len(NAMES), WIDTH), *[(WIDTH, WIDTH)] * LAYERS]
    trunk = {f"w{n}": chance.standard_normal(each, dtype=np.float32) * (2 / each[0]) ** 0.5 for n, each in enumerate(sides)}
    with (folder / "trunk.bin").open("wb") as file:
        for values in trunk.values():
            file.write(values.astype(np.float32).tobytes())
            file.write(b"\0" * (-file.tell() % 4096))
    for number in range(VARIANTS):
        head = numpy_helper.from_array(chance.standard_normal((WIDTH, 2), dtype=np.float32) / 32, "head")
        for how in ("whole", "shared"):
            tensors, at = [], 0
            for name, values in trunk.items():
                tensor = numpy_helper.from_array(values.astype(np.float32), name)
                if how == "shared":
                    set_external_data(tensor, "trunk.bin", offset=at, length=values.nbytes)
                    tensor.ClearField("raw_data")
                    at += values.nbytes + (-values.nbytes % 4096)
                tensors.append(tensor)
            (folder / f"{how} {number}.onnx").write_bytes(_model([*tensors, head]).SerializeToString())


def _model(tensors: list[TensorProto]) -> onnx.ModelProto:
    nodes, last = [], "X"
    for layer in range(LAYERS + 1):
        nodes.append(helper.make_node("MatMul", [last, f"w{layer}"], [f"h{layer}"]))
        nodes.append(helper.make_node("Relu", [f"h{layer}"], [f"r{layer}"]))
        last = f"r{layer}"
    nodes.append(helper.make_node("MatMul", [last, "head"], ["logits"]))
    nodes.append(helper.make_node("Softmax", ["logits"], ["probabilities"]))
    given = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, len(NAMES)])
    made = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, 2])
    graph = helper.make_graph(nodes, "g", [given], [made], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def opened(folder: Path, how: str, number: int) -> Backend:
    """Open a variant."""
    return OnnxModel(path=f"{how} {number}.onnx", features=NAMES, labels=("no", "yes"), share=how == "shared").open(
        str(folder)
    )


def rows(count: int) -> list[dict[str, float]]:
    """Return rows to ask."""
    return [{name: float((7 * row + place) % 5) for place, name in enumerate(NAMES)} for row in range(count)]


def worker(folder: Path, how: str) -> None:
    """Open all variants, answer with each, say so, and wait for the end of the input."""
    models = [opened(folder, how, number) for number in range(VARIANTS)]
    for model in models:
        model.predict(rows(1))
    print("open", flush=True)
    sys.stdin.readline()
    print(psutil.Process().memory_full_info().pss, flush=True)
    sys.stdin.readline()


def memory(folder: Path, how: str) -> float:
    """Return the MiB of all processes with all models open."""
    command = [sys.executable, "-m", "bench.onnx_family", "worker", str(folder), how]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(PROCESSES)]
    for process in processes:
        read(process)
    for process in processes:
        go_on(process)
    seen = [int(read(process)) for process in processes]
    for process in processes:
        go_on(process)
        process.wait()
    return sum(seen) / 2**20


def read(process: subprocess.Popen[str]) -> str:
    """Return the next line a worker says."""
    assert process.stdout is not None
    return process.stdout.readline()


def go_on(process: subprocess.Popen[str]) -> None:
    """Let a worker go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def speed(folder: Path, batch: int, rounds: int = 30) -> tuple[float, float]:
    """Return the milliseconds of CPU of a call of whole files and of the shared one, medians."""
    models = [opened(folder, how, 1) for how in ("whole", "shared")]
    asked = rows(batch)
    said = [model.predict(asked) for model in models]
    assert all(one.label == other.label for one, other in zip(*said, strict=True))
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(2 * rounds):
        which = turn % 2 if turn % 4 < 2 else 1 - turn % 2
        began = time.process_time()
        for _ in range(5):
            models[which].predict(asked)
        times[which].append(200.0 * (time.process_time() - began))
    return median(times[0]), median(times[1])


def main(arguments: list[str]) -> int:
    """Run and print the tables."""
    if arguments[:1] == ["worker"]:
        worker(Path(arguments[1]), arguments[2])
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_family(folder)
        whole, shared = memory(folder, "whole"), memory(folder, "shared")
        disk = [sum(path.stat().st_size for path in folder.glob(each)) / 2**20 for each in ("whole*", "[st][hr]*")]
        print(f"{VARIANTS} variants of {disk[0] / VARIANTS:.0f} MiB in {PROCESSES} processes\n")
        print("| weights | on disk, MiB | PSS of all processes, MiB |", "|---|---|---|", sep="\n")
        for how, size, pss in zip(HOW, disk, (whole, shared), strict=True):
            print(f"| {how} | {size:.0f} | {pss:.0f} |")
        print(f"\nless memory: {1.0 - shared / whole:.1%}\n")
        print("| rows a call | whole files, ms of CPU | one external file | |", "|---|---|---|---|", sep="\n")
        for batch in BATCHES:
            one, other = speed(folder, batch)
            print(f"| {batch} | {one:.2f} | {other:.2f} | {other / one - 1:+.1%} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
