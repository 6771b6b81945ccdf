"""Case O-MLT-08: every form of a server's reply, over HTTP in JSON and in binary and over gRPC, through a whole router."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rheostat.engine.engine import Served
from rheostat.errors import http_status
from rheostat.router import Router

CONFIG = """
models:
  far: {{backend: inference_protocol, base_url: "{url}", model: k, output: P, labels: [even, odd], lighter: near,
        input: {input}, breaker: {{failureThreshold: 0}}}}
  near: {{backend: python, callable: "near_model:near", labels: [even, odd]}}
routes: {{default: {{policy: far, fallback: {{retry: 0, lighter: true}}}}}}
"""
NEAR = "def near(rows):\n    return [('odd', 0.5) for _ in rows]\n"
TEXT = "{name: TEXT}"
NUMBERS = "{name: X, datatype: FP32, features: [a, b]}"
INPUTS = {
    TEXT: {"name": "TEXT", "datatype": "BYTES", "shape": [-1, 1]},
    NUMBERS: {"name": "X", "datatype": "FP32", "shape": [-1, 2]},
}
OUTPUT = {"name": "P", "datatype": "FP32", "shape": [-1, 2]}
Reply = tuple[bytes, dict[str, str]]


class Http:
    """A server that declares what the config says, and always gives the same reply."""

    def __init__(self, declared: dict[str, Any], reply: Reply) -> None:
        self.declared, self.reply, self.asked = declared, reply, 0
        self.runner: Any = None

    async def start(self) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self.runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        if request.path == "/v2":
            return web.json_response({"name": "s", "extensions": ["binary_tensor_data"]})
        if not request.path.endswith("/infer"):
            return web.json_response({"name": "k", "inputs": [self.declared], "outputs": [OUTPUT]})
        self.asked += 1
        body, headers = self.reply
        return web.Response(body=body, headers=headers)


class Grpc:
    """The same over gRPC; the reply is the bytes of a message."""

    def __init__(self, declared: dict[str, Any], reply: bytes) -> None:
        self.declared, self.reply, self.asked = declared, reply, 0
        self.server: Any = None

    async def start(self) -> str:
        import grpc

        from rheostat.tensors.messages import SERVICE, messages

        about = messages().ModelMetadataResponse(name="k", inputs=[self.declared], outputs=[OUTPUT]).SerializeToString()

        async def metadata(_: bytes, context: Any) -> bytes:  # noqa: ARG001
            return about

        async def infer(_: bytes, context: Any) -> bytes:  # noqa: ARG001
            self.asked += 1
            return self.reply

        self.server = grpc.aio.server()
        handlers = {"ModelMetadata": metadata, "ModelInfer": infer}
        self.server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    SERVICE, {name: grpc.unary_unary_rpc_method_handler(each) for name, each in handlers.items()}
                ),
            )
        )
        port = self.server.add_insecure_port("127.0.0.1:0")
        await self.server.start()
        return f"grpc://127.0.0.1:{port}"

    async def stop(self) -> None:
        await self.server.stop(0)


def served(server: Http | Grpc, folder: Path, row: Any, given: str = TEXT) -> Served:
    """Ask a router whose model is the server."""

    async def go() -> Served:
        (folder / "near_model.py").write_text(NEAR)
        (folder / "rheostat.yaml").write_text(CONFIG.format(url=await server.start(), input=given))
        router = await Router.open(str(folder / "rheostat.yaml"))
        try:
            return await router.serve(router.request(row))
        finally:
            await router.aclose()
            await server.stop()

    return asyncio.run(go())


def in_json(*outputs: dict[str, Any], **more: Any) -> Reply:
    return json.dumps({"model_name": "k", "outputs": list(outputs), **more}).encode(), {}


def tensor(data: Any, shape: Any = (1, 2), datatype: str = "FP32", name: str = "P") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape), "data": data}


def in_binary(raw: bytes, *, size: int | None = None, shape: Any = (1, 2), datatype: str = "FP32", off: int = 0) -> Reply:
    described = {"name": "P", "datatype": datatype, "shape": list(shape)}
    declared = {**described, "parameters": {"binary_data_size": len(raw) if size is None else size}}
    head = json.dumps({"outputs": [declared]}).encode()
    return head + raw, {"Inference-Header-Content-Length": str(len(head) + off)}


def message(
    raw: list[bytes] | None = None, *, shape: Any = (1, 2), datatype: str = "FP32", name: str = "P", **contents: Any
) -> bytes:
    from rheostat.tensors.messages import messages

    response = messages().ModelInferResponse(model_name="k", raw_output_contents=raw or [])
    added = response.outputs.add(name=name, datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(added.contents, field).extend(values)
    written: bytes = response.SerializeToString()
    return written


GOOD = struct.pack("<2f", 0.75, 0.25)
NAN = struct.pack("<2f", 0.75, float("nan"))
HTTP_GOOD = {
    "flat": in_json(tensor([0.75, 0.25])),
    "nested": in_json(tensor([[0.75, 0.25]])),
    "an output more": in_json(tensor([7], [1], "INT64", "tokens"), tensor([0.75, 0.25])),
    "binary": in_binary(GOOD),
}
HTTP_BAD: dict[str, tuple[Reply, list[str]]] = {
    "an output missing": (in_json(tensor([0.75, 0.25], name="Q")), ["'P'", "['Q']"]),
    "a length that does not fit": (in_json(tensor([0.75])), ["shape [1, 2]", "[0.75]"]),
    "not a number": ((b'{"outputs":[{"name":"P","datatype":"FP32","shape":[1,2],"data":[0.5,NaN]}]}', {}), ["finite"]),
    "null": (in_json(tensor([0.75, None])), ["finite numbers", "None"]),
    "another datatype": (in_json(tensor(["0.75", "0.25"], datatype="BYTES")), ["one label", "'0.75'"]),
    "whole numbers": (in_json(tensor([1, 0], datatype="INT64")), ["floats", "INT64"]),
    "an error with status 200": (in_json(error="out of memory"), ["'P'", "[]"]),
    "only an error": ((b'{"error":"out of memory"}', {}), ["outputs", "out of memory"]),
    "too few bytes": (in_binary(GOOD[:4]), ["takes 8 bytes, got 4"]),
    "bytes that are not there": (in_binary(GOOD[:4], size=8), ["4 bytes are left"]),
    "bytes too many": (in_binary(GOOD + b"\0", size=8), ["belong to no tensor"]),
    "not a number in binary": (in_binary(NAN), ["finite numbers", "nan"]),
    "a head too short": (in_binary(GOOD, off=-1), ["JSON"]),
    "a head too long": (in_binary(GOOD, off=99), ["Inference-Header-Content-Length"]),
    "a text that is none": (in_binary(b"\1\0\0\0\xff", shape=[1, 1], datatype="BYTES"), ["not UTF-8"]),
}


@pytest.mark.parametrize("form", HTTP_GOOD)
def test_every_good_form_over_http_says_the_same(form: str, tmp_path: Path) -> None:
    good(served(Http(INPUTS[TEXT], HTTP_GOOD[form]), tmp_path, "ab"))


@pytest.mark.parametrize("form", HTTP_BAD)
def test_every_bad_form_over_http_is_a_failed_attempt_and_another_model_answers(form: str, tmp_path: Path) -> None:
    reply, parts = HTTP_BAD[form]
    bad(served(Http(INPUTS[TEXT], reply), tmp_path, "ab"), parts)


GRPC_GOOD: dict[str, Callable[[], bytes]] = {
    "contents": lambda: message(fp32_contents=[0.75, 0.25]),
    "raw": lambda: message([GOOD]),
}
GRPC_BAD: dict[str, tuple[Callable[[], bytes], list[str]]] = {
    "an output missing": (lambda: message([GOOD], name="Q"), ["'P'", "['Q']"]),
    "nothing": (lambda: b"", ["'P'", "[]"]),
    "contents too few": (lambda: message(fp32_contents=[0.75]), ["2 values", "got 1"]),
    "too few bytes": (lambda: message([GOOD[:4]]), ["takes 8 bytes, got 4"]),
    "one part too many": (lambda: message([GOOD, GOOD]), ["1 tensors and 2 raw contents"]),
    "both forms": (lambda: message([GOOD], fp32_contents=[0.75, 0.25]), ["contents and raw contents"]),
    "not a number": (lambda: message([NAN]), ["finite numbers", "nan"]),
    "another datatype": (lambda: message([b"\1\0\0\0a\1\0\0\0b"], datatype="BYTES"), ["one label", "'a'"]),
    "the contents of another datatype": (lambda: message(fp64_contents=[0.75, 0.25]), ["2 values", "fp32_contents"]),
    "a shape that cannot be": (lambda: message([GOOD], shape=[1 << 62, 4]), ["takes"]),
}


@pytest.mark.parametrize("form", GRPC_GOOD)
def test_every_good_form_over_grpc_says_the_same(form: str, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'rheostat[grpc]'")
    good(served(Grpc(INPUTS[TEXT], GRPC_GOOD[form]()), tmp_path, "ab"))


@pytest.mark.parametrize("form", GRPC_BAD)
def test_every_bad_form_over_grpc_is_a_failed_attempt_and_another_model_answers(form: str, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'rheostat[grpc]'")
    make, parts = GRPC_BAD[form]
    bad(served(Grpc(INPUTS[TEXT], make()), tmp_path, "ab"), parts)


@pytest.mark.parametrize("over", ["http", "grpc"])
@pytest.mark.parametrize(
    ("given", "row"), [(NUMBERS, {"a": 1.0}), (NUMBERS, {"a": 1.0, "b": "much"}), (NUMBERS, "a text"), (TEXT, {"a": 1.0})]
)
def test_a_clients_mistake_is_its_own_and_nobody_is_asked(over: str, given: str, row: Any, tmp_path: Path) -> None:
    if over == "grpc":
        pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'rheostat[grpc]'")
    server = Http(INPUTS[given], HTTP_GOOD["flat"]) if over == "http" else Grpc(INPUTS[given], GRPC_GOOD["raw"]())
    got = served(server, tmp_path, row, given)
    assert got.error is not None
    assert http_status(got.error) == 400, got.error
    assert server.asked == 0


def good(got: Served) -> None:
    assert got.prediction is not None, got.error
    assert got.record.selected_model == "far"
    assert (got.prediction.label, got.prediction.scores) == ("even", {"even": 0.75, "odd": 0.25})


def bad(got: Served, parts: list[str]) -> None:
    assert got.prediction is not None
    assert got.record.selected_model == "near"
    (attempt,) = got.record.outcomes[0].attempts
    assert attempt.failure is not None
    assert attempt.failure.kind == "bad_output"
    for part in parts:
        assert part in attempt.failure.message
