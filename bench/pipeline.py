"""What does preparation beside inference bring? `python -m bench.pipeline [--seconds N] [images] [tokens]`

The same model in this process, batched, with its rows prepared in its own call and in one or two threads beside it, in turns
within one run; 32 requests at a time through the router (no HTTP), each with its own row. Images: photographs of a third of
a megapixel (noise over gradients, JPEG) to 224 x 224, for nets of three sizes with random weights: what they say does not
matter here; each line tells the processor time of both parts for a row, and what the best possible overlap would bring.
Texts: MiniLM with its tokenizer, on SST-2 sentences or, without them, Python's own documentation.
"""

from __future__ import annotations

import asyncio
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.embeddings import encoder_folder
from bench.labelled import read_set, why_absent
from rheostat.config import load_config
from rheostat.pool import Backend
from rheostat.pool.prepared import preparation
from rheostat.router import Router

CLIENTS, ROUNDS, SECONDS = 32, 5, 3.0
WAYS = {"in the call": "0", "one thread beside": "1", "two threads beside": "2"}
NETS = {"light net": (16, 2), "middle net": (64, 4), "heavy net": (64, 8)}
"""By channels and layers: about a tenth of, as much as, and three times the time that decoding takes."""


def main(arguments: Sequence[str]) -> int:
    """Run the named parts, both by default; return the exit status."""
    arguments = list(arguments)
    seconds = SECONDS
    if "--seconds" in arguments:
        at = arguments.index("--seconds")
        seconds = float(arguments[at + 1])
        del arguments[at : at + 2]
    unknown = [name for name in arguments if name not in ("images", "tokens")]
    if unknown:
        print(f"unknown part {unknown[0]!r}; known: images, tokens")
        return 2
    print("| model | preparation | rows/s | P50 ms | P99 ms | rows/s, times in the call | P99, times in the call |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not arguments or "images" in arguments:
            rows = [{"image": each} for each in _photographs(64)]
            for net, (width, depth) in NETS.items():
                _write_net(folder / "net.onnx", width, depth)
                model = "backend: onnx, path: net.onnx, output: logits, labels: [a, b], chunk: 16, timeout: 30s"
                _compare(net, folder, model, "image: {size: [224, 224], fit: crop}", rows, seconds)
        if not arguments or "tokens" in arguments:
            encoder = encoder_folder(_tell).absolute()
            _write_head(folder / "head.onnx")
            model = f"backend: onnx, path: {encoder}/encoder.onnx, head: head.onnx, tokenizer: {encoder}/tokenizer.json"
            model += ", output: logits, labels: [a, b], chunk: 16, timeout: 30s"
            _compare("MiniLM", folder, model, "tokens: true", _texts(), seconds)
    return 0


def _compare(name: str, folder: Path, model: str, what: str, rows: Sequence[Any], seconds: float) -> None:
    """Run the ways in turns, so that what else the machine does meets all of them, and print a line each."""
    found: dict[str, list[tuple[float, list[float]]]] = {way: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way, threads in WAYS.items():
            prepare = f", prepare: {{{what}, threads: {threads}}}"
            if threads == "0" and what.startswith("tokens"):
                prepare = ""  # as the model does anyway
            config = folder / "rheostat.yaml"
            config.write_text(
                f"models: {{m: {{{model}, batch: {{max_rows: 16, max_wait: 5ms}}{prepare}}}}}\n"
                "routes: {default: {policy: m, deadline: 30s, fallback: {retry: 0}}}\n"
            )
            found[way].append(asyncio.run(_loaded(config, rows, seconds)))
    base = _figures(found["in the call"])
    first, then = _alone(folder / "rheostat.yaml", rows)
    name += f" ({first:.1f} + {then:.1f} ms, at best {(first + then) / max(first, then):.2f})"
    for way, runs in found.items():
        figures = _figures(runs)
        ratios = f"{figures[0] / base[0]:.2f} | {figures[2] / base[2]:.2f}"
        print(
            f"| {name} | {way} | {figures[0]:.0f} | {figures[1] * 1e3:.1f} | {figures[2] * 1e3:.1f} | {ratios} |", flush=True
        )


def _alone(config: Path, rows: Sequence[Any]) -> tuple[float, float]:
    """Processor milliseconds a row of preparation and of the model, whatever else the machine does."""
    loaded = load_config(str(config))
    settings = loaded.config.models["m"]
    backend = settings.open(loaded.base)
    made = preparation(settings, backend)
    assert made is not None
    assert isinstance(backend, Backend)
    began = time.process_time()
    ready = [made.prepare(row) for row in rows[:64]]
    prepared = time.process_time()
    for at in range(0, len(ready), 16):
        backend.predict(ready[at : at + 16])
    ended = time.process_time()
    backend.close()
    return 1e3 * (prepared - began) / len(ready), 1e3 * (ended - prepared) / len(ready)


def _figures(runs: Sequence[tuple[float, list[float]]]) -> tuple[float, float, float]:
    waits = np.concatenate([waits for _, waits in runs])
    return statistics.median(rate for rate, _ in runs), float(np.quantile(waits, 0.5)), float(np.quantile(waits, 0.99))


async def _loaded(config: Path, rows: Sequence[Any], seconds: float) -> tuple[float, list[float]]:
    """Return rows a second and every wait, after a warm-up; every request has to be answered."""
    router = await Router.open(str(config))
    waits: list[float] = []
    until = time.perf_counter() + 1.0 + seconds

    async def client(number: int) -> None:
        at = number
        while (now := time.perf_counter()) < until:
            served = await router.serve(router.request(rows[at % len(rows)]))
            assert served.error is None, served.error
            if now > until - seconds:
                waits.append(time.perf_counter() - now)
            at += CLIENTS

    try:
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    finally:
        await router.aclose()
    return len(waits) / seconds, waits


def _photographs(count: int) -> list[str]:
    from base64 import b64encode

    from PIL import Image

    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((640, 480))
        pixels = np.asarray(coarse, dtype=np.int16) + rng.integers(-12, 13, (480, 640, 3))
        file = io.BytesIO()
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
        found.append(b64encode(file.getvalue()).decode())
    return found


def _texts() -> list[str]:
    if why_absent("sst2") is None:
        return [str(text) for text in read_set("sst2")["test"].inputs[:512]]
    from pydoc_data.topics import topics

    return [line for page in topics.values() for line in page.splitlines() if len(line) > 30][:512]


def _write_net(path: Path, width: int, depth: int) -> None:
    """A convolutional net with random weights: `depth` layers of `width` channels at a quarter of the size, two logits."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, weights, at, channels = [], [], "image", 3
    for number in range(depth):
        kernel = rng.normal(0, 0.1, (width, channels, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(kernel, f"w{number}"))
        strides = [4, 4] if number == 0 else [1, 1]
        nodes.append(helper.make_node("Conv", [at, f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1], strides=strides))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        at, channels = f"r{number}", width
    weights.append(numpy_helper.from_array(rng.normal(0, 0.1, (width, 2)).astype(np.float32), "w"))
    nodes.append(helper.make_node("GlobalAveragePool", [at], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    nodes.append(helper.make_node("MatMul", ["flat", "w"], ["logits"]))
    put = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net", [put("image", TensorProto.FLOAT, ["n", 3, 224, 224])],
        [put("logits", TensorProto.FLOAT, ["n", 2])], weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def _write_head(path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.random.default_rng(0).normal(0, 1, (384, 2)).astype(np.float32), "w")
    put = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["logits"])], "head", [put("x", TensorProto.FLOAT, ["n", 384])],
        [put("logits", TensorProto.FLOAT, ["n", 2])], [weight],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
