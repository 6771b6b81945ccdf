"""What a server says of itself: binary where it reads that, rows together where it takes them, and the contract it keeps."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rheostat.backends.check import check_remote_contract
from rheostat.backends.inference import InferenceModel, InputTensor
from rheostat.backends.inference_classifier import InferenceClassifier
from rheostat.errors import ConfigError, ContractError, ModelError
from rheostat.pool.backend import Reply
from rheostat.tensors import Tensor
from rheostat.tensors.http_body import HEADER, read_tensors, split, written
from rheostat.types import Prediction

LABELS = ("even", "odd")


class Server:
    """Says for each text whether its length is even; refuses a call with the text `bad`."""

    def __init__(self) -> None:
        self.extensions = ["binary_tensor_data"]
        self.inputs: Any = [{"name": "TEXT", "datatype": "BYTES", "shape": [-1, 1]}]
        self.outputs: Any = [{"name": "P", "datatype": "FP32", "shape": [-1, 2]}]
        self.loaded = True
        self.asked: list[str] = []
        self.calls: list[Tensor] = []
        self.types: list[str] = []
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.Response:
        path = request.path
        if not path.endswith("/infer"):
            self.asked.append(f"{request.method} {path}")
        if path == "/v2":
            return web.json_response({"name": "s", "extensions": self.extensions})
        if path.endswith("/load"):
            self.loaded = True
            return web.Response()
        if path.endswith("/unload"):
            self.loaded = False
            return web.Response()
        if not self.loaded:
            return web.json_response({"error": "unknown model"}, status=404)
        if path.endswith("/ready"):
            return web.Response()
        if not path.endswith("/infer"):
            return web.json_response({"name": "k", "inputs": self.inputs, "outputs": self.outputs})
        return self._infer(await request.read(), request)

    def _infer(self, body: bytes, request: web.Request) -> web.Response:
        head, rest = split(body, request.headers.get(HEADER))
        asked = json.loads(head)
        (tensor,) = read_tensors(asked["inputs"], rest)
        self.calls.append(tensor)
        self.types.append(request.headers["content-type"])
        if "bad" in tensor.values:
            return web.json_response({"error": "bad text"}, status=500)
        scores = [value for text in tensor.values for value in ((0.75, 0.25) if len(text) % 2 == 0 else (0.25, 0.75))]
        binary = asked["outputs"][0].get("parameters", {}).get("binary_data", False)
        objects, parts = written((Tensor("P", "FP32", (len(tensor.values), 2), scores),), (binary,))
        front = json.dumps({"model_name": "k", "outputs": objects}).encode()
        return web.Response(body=b"".join((front, *parts)), headers={HEADER: str(len(front))} if parts else {})


def model(server: Server, **settings: Any) -> InferenceModel:
    fixed: dict[str, Any] = {"model": "k", "input": InputTensor(name="TEXT"), "output": "P", "labels": LABELS}
    return InferenceModel(**{"base_url": f"http://127.0.0.1:{server.port}", **fixed, **settings})


def run(test: Callable[[Server], Awaitable[None]]) -> None:
    async def go() -> None:
        server = Server()
        await server.start()
        try:
            await test(server)
        finally:
            await server.stop()

    asyncio.run(go())


async def ask(server: Server, rows: list[Any], **settings: Any) -> list[Reply]:
    backend = model(server, **settings).open("")
    assert isinstance(backend, InferenceClassifier)
    try:
        return list(await backend.apredict(rows, 5.0))
    finally:
        await backend.aclose()


def said(replies: list[Reply]) -> list[str]:
    return [reply.label if isinstance(reply, Prediction) else reply.kind for reply in replies]


@pytest.mark.parametrize("binary", [True, False])
def test_tensors_are_binary_where_the_server_reads_that(binary: bool) -> None:
    async def test(server: Server) -> None:
        server.extensions = ["binary_tensor_data"] if binary else []
        (reply,) = await ask(server, ["好 a\x00"])
        assert reply == Prediction("even", 0.75, {"even": 0.75, "odd": 0.25})
        assert server.calls == [("TEXT", "BYTES", (1, 1), ["好 a\x00"], {"binary_data_size": 10} if binary else {})]
        assert server.types == ["application/octet-stream" if binary else "application/json"]

    run(test)


def test_rows_go_together_where_the_server_takes_them_and_one_that_cannot_be_sent_fails_alone() -> None:
    async def test(server: Server) -> None:
        rows = ["a", "bb", 7, "ccc", "dddd", ""]
        assert said(await ask(server, rows, max_rows=3)) == ["odd", "even", "input_refused", "odd", "even", "even"]
        assert sorted(len(call.values) for call in server.calls) == [2, 3]

    run(test)


def test_after_a_failed_call_each_row_is_asked_by_itself() -> None:
    async def test(server: Server) -> None:
        assert said(await ask(server, ["a", "bad", "cc"])) == ["odd", "upstream_error", "even"]
        assert [list(call.values) for call in server.calls] == [["a", "bad", "cc"], ["a"], ["bad"], ["cc"]]

    run(test)


@pytest.mark.parametrize("settings", [{"side_effects": True}, {"max_rows": 1}])
def test_rows_that_must_not_be_asked_twice_go_alone(settings: dict[str, Any]) -> None:
    async def test(server: Server) -> None:
        assert said(await ask(server, ["a", "bad", "cc"], **settings)) == ["odd", "upstream_error", "even"]
        assert sorted(call.values[0] for call in server.calls) == ["a", "bad", "cc"]

    run(test)


def test_texts_without_a_second_dimension_and_a_fixed_batch() -> None:
    async def test(server: Server) -> None:
        server.inputs = [{"name": "TEXT", "datatype": "BYTES", "shape": [-1]}]
        assert said(await ask(server, ["a", "bb"])) == ["odd", "even"]
        server.inputs = [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1]}]
        assert said(await ask(server, ["a", "bb"])) == ["odd", "even"]
        assert sorted(tuple(call.shape) for call in server.calls) == [(1, 1), (1, 1), (2,)]

    run(test)


def declared(name: str = "P", datatype: str = "FP32", shape: Any = (-1, 2)) -> list[dict[str, Any]]:
    return [{"name": name, "datatype": datatype, "shape": list(shape)}]


NUMBERS = InputTensor(name="TEXT", datatype="FP32", features=("a", "b"))


@pytest.mark.parametrize(
    ("inputs", "outputs", "settings", "told"),
    [
        (declared("X", "BYTES", (-1, 1)), declared(), {}, "no input 'TEXT': set `input.name` to one of ['X']"),
        (declared("TEXT", "FP32", (-1, 1)), declared(), {}, "takes FP32: `input.datatype` says BYTES"),
        (declared("TEXT", "BYTES", (-1, 1, 1)), declared(), {}, "`input.batched`"),
        (declared("TEXT", "FP32", (-1, 3)), declared(), {"input": NUMBERS}, "a row is [1, 2]: correct `input.features`"),
        (declared("TEXT", "BYTES", (-1, 1)), declared("Q"), {}, "no output 'P': set `output` to one of ['Q']"),
        (declared("TEXT", "BYTES", (-1, 1)), declared(datatype="INT64"), {}, "is INT64: expected floats"),
        (declared("TEXT", "BYTES", (-1, 1)), declared(shape=(-1, 3)), {}, "holds 3 numbers a row, and there are 2 labels"),
        (declared("TEXT", "BYTES", (-1, 1)), declared(), {"labels": ()}, "`labels` or `label_file`"),
        (declared("TEXT", "BYTES", (-1, 1)), declared(datatype="BYTES"), {"softmax": True}, "`softmax` is for numbers"),
    ],
)
def test_what_the_server_declares_otherwise_is_named_at_load(
    inputs: Any, outputs: Any, settings: dict[str, Any], told: str
) -> None:
    async def test(server: Server) -> None:
        server.inputs, server.outputs = inputs, outputs
        made = model(server, **settings)
        backend = made.open("")
        assert isinstance(backend, InferenceClassifier)
        with pytest.raises(ContractError) as caught:
            await check_remote_contract("m", backend, made)
        assert told in str(caught.value)
        assert server.calls == []
        await backend.aclose()

    run(test)


def test_a_server_that_declares_nothing_is_taken_at_the_configs_word() -> None:
    async def test(server: Server) -> None:
        server.inputs, server.outputs, server.extensions = [], None, []
        made = model(server)
        backend = made.open("")
        assert isinstance(backend, InferenceClassifier)
        await check_remote_contract("m", backend, made)
        assert said(list(await backend.apredict(["a"], 5.0))) == ["odd"]
        await backend.aclose()

    run(test)


def test_a_server_that_is_away_at_load_is_held_to_its_contract_when_it_comes() -> None:
    async def test(server: Server) -> None:
        await server.stop()
        made = model(server)
        backend = made.open("")
        assert isinstance(backend, InferenceClassifier)
        assert "could not be asked" in (await check_remote_contract("m", backend, made)).skipped
        with pytest.raises(ModelError, match="Cannot connect"):
            await backend.apredict(["a"], 5.0)
        server.outputs = declared(shape=(-1, 3))
        await server.start()
        with pytest.raises(ModelError, match="3 numbers a row") as caught:
            await backend.apredict(["a"], 5.0)
        assert caught.value.kind == "misconfigured"
        with pytest.raises(ModelError, match="3 numbers a row"):
            await backend.acheck(5.0)
        assert server.calls == []
        server.outputs = declared()
        await asyncio.sleep(1.1)  # it is asked again after a second
        assert said(list(await backend.apredict(["a"], 5.0))) == ["odd"]
        await backend.acheck(5.0)
        await backend.aclose()

    run(test)


def test_a_server_that_comes_back_as_another_one_is_asked_again() -> None:
    async def test(server: Server) -> None:
        backend = model(server).open("")
        assert isinstance(backend, InferenceClassifier)
        assert said(list(await backend.apredict(["a"], 5.0))) == ["odd"]
        await server.stop()
        (reply,) = await backend.apredict(["a"], 5.0)
        assert isinstance(reply, ModelError)
        server.inputs, server.extensions = declared("TEXT", "BYTES", (-1,)), []
        await server.start()
        assert said(list(await backend.apredict(["a"], 5.0))) == ["odd"]
        assert server.calls[-1] == ("TEXT", "BYTES", (1,), ["a"], {})
        await backend.aclose()

    run(test)


def test_many_who_wait_for_what_the_server_says_ask_it_once() -> None:
    async def test(server: Server) -> None:
        backend = model(server, load=True).open("")
        assert isinstance(backend, InferenceClassifier)
        server.loaded = False
        replies = await asyncio.gather(*(backend.apredict(["a"], 5.0) for _ in range(20)))
        assert [said(list(each)) for each in replies] == [["odd"]] * 20
        assert server.asked == ["GET /v2/models/k/ready", "POST /v2/repository/models/k/load", "GET /v2/models/k", "GET /v2"]
        await backend.aclose()

    run(test)


def test_a_model_is_loaded_and_unloaded_by_hand_and_health_says_so() -> None:
    async def test(server: Server) -> None:
        backend = model(server).open("")
        assert isinstance(backend, InferenceClassifier)
        await backend.aunload(5.0)
        with pytest.raises(ModelError):
            await backend.acheck(5.0)
        assert said(list(await backend.apredict(["a"], 5.0))) == ["misconfigured"]
        await backend.aload(5.0)
        await backend.acheck(5.0)
        assert said(list(await backend.apredict(["a"], 5.0))) == ["odd"]
        await backend.aclose()

    run(test)


def test_labels_may_come_from_a_file(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        (tmp_path / "labels.txt").write_text("even\nodd\n\n", encoding="utf-8")
        backend = model(server, labels=(), label_file="labels.txt").open(str(tmp_path))
        assert backend.labels == LABELS
        with pytest.raises(ContractError, match="missing"):
            model(server, labels=("a", "b"), label_file="labels.txt").open(str(tmp_path))
        with pytest.raises(ConfigError, match="label_file"):
            model(server, labels=(), label_file="none.txt").open(str(tmp_path))

    run(test)


def test_whole_numbers_are_sent_as_such() -> None:
    given = InputTensor(name="X", datatype="INT64", features=("a",))
    assert given.of({"a": 3.0}) == [3]
    with pytest.raises(ModelError, match="no whole number"):
        given.of({"a": 3.5})
