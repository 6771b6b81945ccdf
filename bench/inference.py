"""What the forms of the Open Inference Protocol cost: JSON, binary tensors and gRPC, in CPU time.

    python -m bench.inference              # as a client of a real Triton, and as a server beside /v1/predict
    python -m bench.inference --server     # the second part alone, which needs no Triton

Rows of 16 and of 4,096 floats, alone and 32 in a call, one call after another. The forms take turns in every round; a cell
is the median of the rounds. The client's CPU time is this process's (Triton has its own); the server's is the gateway
process's, with the decision and the metrics, over a model that computes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import triton
from bench.gateway import SERVE, Server
from bench.outage_process import free_port
from rheostat.backends.inference import InferenceModel, InputTensor
from rheostat.backends.inference_classifier import InferenceClassifier
from rheostat.tensors.messages import SERVICE, messages
from rheostat.types import Prediction

CELLS = ((16, 1), (16, 32), (4096, 1), (4096, 32))
MODELS = Path(__file__).with_name("inference_models")
CONFIG = """
models:
  sure: {{backend: python, callable: "bench.inference:sure", labels: [a, b], run: inline}}
routes: {{default: {{policy: sure}}}}
server: {{grpc_port: {grpc_port}, max_body: 50000000}}
"""
Call = Callable[[], Any]


def sure(rows: list[Any]) -> list[tuple[str, float]]:
    """Say the same of every row."""
    return [("a", 0.75)] * len(rows)


def names_of(width: int) -> tuple[str, ...]:
    """Return the names of the features of a row."""
    return tuple(f"f{number}" for number in range(width))


def values_of(width: int) -> list[float]:
    """Return the numbers of a row: like measured ones, with all their digits."""
    return [(number * 0.7310585786300049) % 1.0 for number in range(width)]


async def as_client(rounds: int, seconds: float, folder: Path) -> Mapping[tuple[int, int], Mapping[str, float]]:
    """Return the CPU microseconds of a call, by cell and form."""
    port, grpc_port = free_port(), free_port()
    (folder / "sleep").write_text("0")
    process = triton.triton(folder, port, folder / "sleep", grpc_port, load="wide")
    shutil.copytree(MODELS / "wide", folder / "triton/models/wide")
    process.start()
    try:
        await process.until_ready()
        return {
            cell: await _client_cell(*cell, f"http://127.0.0.1:{port}", f"grpc://127.0.0.1:{grpc_port}", rounds, seconds)
            for cell in CELLS
        }
    finally:
        process.kill()
        triton.sweep(port)


async def _client_cell(width: int, batch: int, url: str, grpc_url: str, rounds: int, seconds: float) -> Mapping[str, float]:
    rows = [dict(zip(names_of(width), values_of(width), strict=True))] * batch
    backends = {"JSON": _backend(url, width), "binary": _backend(url, width), "gRPC": _backend(grpc_url, width)}
    try:
        for backend in backends.values():
            await backend.adescribe(10.0)
        plain = backends["JSON"]
        assert plain._facts is not None
        plain._facts = plain._facts._replace(binary=False)  # as if Triton had not offered it
        took: dict[str, list[float]] = {form: [] for form in backends}
        for _ in range(rounds):
            for form, backend in backends.items():
                took[form].append(await _client_us(backend, rows, seconds))
        return {form: statistics.median(each) for form, each in took.items()}
    finally:
        for backend in backends.values():
            await backend.aclose()


def _backend(url: str, width: int) -> InferenceClassifier:
    settings = InferenceModel(
        base_url=url, model="wide", input=InputTensor(name="X", datatype="FP32", features=names_of(width)),
        output="P", labels=("a", "b"),
    )  # fmt: skip
    backend = settings.open("")
    assert isinstance(backend, InferenceClassifier)
    return backend


async def _client_us(backend: InferenceClassifier, rows: list[Any], seconds: float) -> float:
    until, calls, began = time.monotonic() + seconds, 0, time.process_time()
    while time.monotonic() < until:
        replies = await backend.apredict(rows, 30.0)
        assert all(isinstance(reply, Prediction) and reply.label == "b" for reply in replies), replies
        calls += 1
    return (time.process_time() - began) / calls * 1e6


def as_server(rounds: int, seconds: float, folder: Path) -> Mapping[tuple[int, int], Mapping[str, float]]:
    """Return the gateway's CPU microseconds of a call, by cell and form."""
    grpc_port = free_port()
    config = folder / "rheostat.yaml"
    config.write_text(CONFIG.format(grpc_port=grpc_port))
    server = Server(["-c", SERVE, str(config)], "/metrics")
    try:
        return {cell: _server_cell(server, grpc_port, *cell, rounds, seconds) for cell in CELLS}
    finally:
        server.stop()


def _server_cell(server: Server, grpc_port: int, width: int, batch: int, rounds: int, seconds: float) -> Mapping[str, float]:
    import grpc

    plain = http.client.HTTPConnection(server.url.removeprefix("http://"))
    channel = grpc.insecure_channel(
        f"127.0.0.1:{grpc_port}", options=(("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
    )
    send = channel.unary_unary(f"/{SERVICE}/ModelInfer")
    message = _message(width, batch)
    calls: dict[str, Call] = {
        "/v1/predict": _post(plain, "/v1/predict", _rows(width, batch)),
        "/v2 JSON": _post(plain, "/v2/models/default/infer", _tensor(width, batch)),
        "/v2 binary": _post(plain, "/v2/models/default/infer", *_binary(width, batch)),
        "/v2 gRPC": lambda: send(message, timeout=30),
    }
    took: dict[str, list[float]] = {form: [] for form in calls}
    for _ in range(rounds):
        for form, call in calls.items():
            call()
            count, before, until = 0, server.cpu_s(), time.monotonic() + seconds
            while time.monotonic() < until:
                call()
                count += 1
            took[form].append((server.cpu_s() - before) / count * 1e6)
    plain.close()
    channel.close()
    return {form: statistics.median(each) for form, each in took.items()}


def _post(connection: http.client.HTTPConnection, path: str, body: bytes, head: int = 0) -> Call:
    headers = {"content-type": "application/json"}
    if head:
        headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(head)}

    def call() -> None:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        told = response.read()
        assert response.status == 200, told

    return call


def _rows(width: int, batch: int) -> bytes:
    row = {"data": dict(zip(names_of(width), values_of(width), strict=True))}
    return json.dumps(row if batch == 1 else {"items": [row] * batch}).encode()


def _described(width: int, batch: int) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [batch, width]}


def _tensor(width: int, batch: int) -> bytes:
    tensor = {**_described(width, batch), "parameters": {"names": ",".join(names_of(width))}}
    return json.dumps({"inputs": [{**tensor, "data": values_of(width) * batch}]}).encode()


def _raw(width: int, batch: int) -> bytes:
    return struct.pack(f"<{width * batch}f", *(values_of(width) * batch))


def _binary(width: int, batch: int) -> tuple[bytes, int]:
    raw = _raw(width, batch)
    parameters = {"names": ",".join(names_of(width)), "binary_data_size": len(raw)}
    tensor = {**_described(width, batch), "parameters": parameters}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return head + raw, len(head)


def _message(width: int, batch: int) -> bytes:
    message = messages().ModelInferRequest(model_name="default", raw_input_contents=[_raw(width, batch)])
    message.inputs.add(**_described(width, batch)).parameters["names"].string_param = ",".join(names_of(width))
    written: bytes = message.SerializeToString()
    return written


def show(title: str, found: Mapping[tuple[int, int], Mapping[str, float]]) -> None:
    """Print a table: microseconds, and in brackets the ratio to the first form."""
    forms = list(next(iter(found.values())))
    print(f"\n{title}\n\n| floats a row | rows a call | " + " | ".join(forms) + " |\n" + "|---" * (len(forms) + 2) + "|")
    for (width, batch), cell in found.items():
        first = cell[forms[0]]
        print(
            f"| {width} | {batch} | " + " | ".join(f"{cell[form]:,.0f} ({cell[form] / first:.2f})" for form in forms) + " |"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="store_true", help="only what the gateway costs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rheostat-inference-") as name:
        if not asked.server:
            found = asyncio.run(as_client(asked.rounds, asked.seconds, Path(name)))
            show("CPU microseconds of a call, as a client of Triton", found)
        show("CPU microseconds of a call in the gateway", as_server(asked.rounds, asked.seconds, Path(name)))


if __name__ == "__main__":
    main()
