"""The Open Inference Protocol over gRPC: what HTTP says, in the same words, with gRPC's codes and deadlines."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gateway_wire import until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_gateway_inference import infer as infer_http

from conftest import write_config
from rheostat.backends.inference import InferenceModel, InputTensor
from rheostat.gateway.handle import ServerHandle
from rheostat.gateway.inference_service import Call
from rheostat.tensors.message_form import from_messages, from_parameters
from rheostat.tensors.messages import SERVICE, messages
from rheostat.types import Prediction

grpc = pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'rheostat[grpc]'")

KEY = "a key that may force models"
OTHER = "a key that may not force them"
GRPC = "server: {grpc_port: 0, max_body: 20000, max_batch: 50, body_timeout: 300ms}\n"


class Client:
    """Calls a gateway with the messages of the protocol, or with any bytes."""

    def __init__(self, handle: ServerHandle, **options: Any) -> None:
        self.channel = grpc.insecure_channel(f"127.0.0.1:{handle.server.grpc_port}", options=tuple(options.items()))

    def send(
        self, method: str, body: bytes, *, timeout: float | None = 10.0, **metadata: str
    ) -> tuple[bytes, dict[str, Any]]:
        """Call with bytes; returns the answer's bytes and the trailing metadata."""
        call = self.channel.unary_unary(f"/{SERVICE}/{method}")
        answer, ended = call.with_call(body, timeout=timeout, metadata=pairs(metadata))
        return answer, dict(ended.trailing_metadata())

    def ask(self, method: str, message: Any = None, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Call with a message, by default an empty one; returns the answer and the trailing metadata."""
        given = message if message is not None else getattr(messages(), f"{method}Request")()
        answer, trailing = self.send(method, given.SerializeToString(), **options)
        return getattr(messages(), f"{method}Response").FromString(answer), trailing

    def refused(self, method: str, message: Any = None, **options: Any) -> tuple[str, str]:
        """Call with a message that is refused; returns the code and the text."""
        with pytest.raises(grpc.RpcError) as told:
            self.ask(method, message, **options)
        return told.value.code().name, told.value.details()


def pairs(metadata: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name.replace("_", "-"), value) for name, value in metadata.items())


def request(body: dict[str, Any], name: str = "default") -> Any:
    """Return a JSON request as the message that says the same."""
    fields = {"BYTES": "bytes_contents", "FP32": "fp32_contents", "FP64": "fp64_contents"}
    message = messages().ModelInferRequest(model_name=name, id=body.get("id", ""))
    for key, value in body.get("parameters", {}).items():
        setattr(message.parameters[key], "int64_param" if isinstance(value, int) else "string_param", value)
    for each in body.get("inputs", ()):
        tensor = message.inputs.add(name=each["name"], datatype=each["datatype"], shape=each["shape"])
        for key, value in each.get("parameters", {}).items():
            tensor.parameters[key].string_param = value
        data = [value.encode() if isinstance(value, str) else value for value in each["data"]]
        getattr(tensor.contents, fields[each["datatype"]]).extend(data)
    for each in body.get("outputs", ()):
        output = message.outputs.add(name=each["name"])
        for key, value in each.get("parameters", {}).items():
            output.parameters[key].int64_param = value
    return message


def texts(*given: str) -> dict[str, Any]:
    return {"name": "text", "datatype": "BYTES", "shape": [len(given)], "data": list(given)}


def outputs(response: Any) -> dict[str, Any]:
    return {each.name: list(each.values) for each in from_messages(response.outputs, response.raw_output_contents)}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with ServerHandle(write_config(tmp_path_factory.mktemp("grpc"), GRPC)) as handle:
        yield handle


@pytest.fixture(scope="module")
def client(served: ServerHandle) -> Client:
    return Client(served)


def test_the_server_and_its_routes_say_what_they_are(client: Client) -> None:
    assert client.ask("ServerLive")[0].live
    assert client.ask("ServerReady")[0].ready
    assert client.ask("ServerMetadata")[0].name == "rheostat"
    about, _ = client.ask("ModelMetadata", messages().ModelMetadataRequest(name="default"))
    assert [(each.name, each.datatype, list(each.shape)) for each in about.inputs] == [("text", "BYTES", [-1])]
    assert {"label", "confidence", "scores"} <= {each.name for each in about.outputs}
    named = messages().ModelReadyRequest(name="default", version=about.versions[0])
    assert client.ask("ModelReady", named)[0].ready
    assert client.refused("ModelReady", messages().ModelReadyRequest(name="default", version="9"))[0] == "NOT_FOUND"


def test_each_text_is_a_request_with_a_record_of_its_own(client: Client) -> None:
    wanted = [{"name": "label"}, {"name": "model"}, {"name": "request_id"}]
    answer, trailing = client.ask(
        "ModelInfer", request({"id": "mine", "inputs": [texts("hello", "what?")], "outputs": wanted})
    )
    assert (answer.id, trailing["x-rheostat-request-id"]) == ("mine", "mine")
    assert from_parameters(answer.parameters) == {"request_id": "mine"}
    assert outputs(answer) == {"label": ["yes", "no"], "model": ["fast", "large"], "request_id": ["mine.0", "mine.1"]}


def test_an_answer_comes_in_the_form_of_its_question(client: Client) -> None:
    plain, trailing = client.ask("ModelInfer", request({"inputs": [texts("what?")]}), x_request_id="wire")
    raw = messages().ModelInferRequest(model_name="default", raw_input_contents=[b"\x05\0\0\0what?"])
    raw.inputs.add(name="t", datatype="BYTES", shape=[1, 1])
    binary, _ = client.ask("ModelInfer", raw)
    assert (len(plain.raw_output_contents), len(binary.raw_output_contents)) == (0, 4)
    assert outputs(plain) == outputs(binary)
    assert outputs(plain)["label"] == ["no"]
    told = from_parameters(plain.parameters)
    assert (told["selected_model"], told["request_id"], trailing["x-rheostat-request-id"]) == ("large", "wire", "wire")


TWO = {"name": "t", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"inputs": []}, "default"),
        ({"inputs": [texts()]}, "default"),
        ({"inputs": [texts(*"a" * 51)]}, "default"),
        ({"inputs": [{"name": "t", "datatype": "BYTES", "shape": [], "data": ["a"]}]}, "default"),
        ({"inputs": [{"name": "t", "datatype": "FP32", "shape": [-1], "data": [1.0]}]}, "default"),
        ({"inputs": [TWO]}, "default"),
        ({"inputs": [texts("a"), texts("b")]}, "default"),
        ({"inputs": [texts("a")], "outputs": [{"name": "nix"}]}, "default"),
        ({"inputs": [texts("a")], "parameters": {"timeout": -1}}, "default"),
        ({"inputs": [texts("a")], "parameters": {"max_cost": "much"}}, "default"),
        ({"inputs": [texts("a")], "parameters": {"sequence_id": 3}}, "default"),
        ({"inputs": [texts("a")], "outputs": [{"name": "label", "parameters": {"classification": 2}}]}, "default"),
        ({"inputs": [texts("a")]}, "nobody"),
        ({"inputs": [texts("a")]}, "large"),
        ({"inputs": [texts("secret")]}, "odd"),
        ({"inputs": [texts("a")], "parameters": {"timeout": 1}}, "slow"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_http(
    served: ServerHandle, client: Client, body: dict[str, Any], name: str
) -> None:
    status, told = infer_http(served.url, body, name)
    codes = {
        400: "INVALID_ARGUMENT",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        502: "UNAVAILABLE",
        504: "DEADLINE_EXCEEDED",
    }
    code, details = client.refused("ModelInfer", request(body, name))
    assert (code, details) == (codes[status], told["error"])
    assert "hunter2" not in details


def test_a_message_that_is_none_or_too_large_is_the_clients_mistake(client: Client) -> None:
    for body in (b"\xff\xff\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x2a\x05abc"):
        with pytest.raises(grpc.RpcError) as told:
            client.send("ModelInfer", body)
        assert told.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "ModelInferRequest" in told.value.details()
    code, details = client.refused("ModelInfer", request({"inputs": [texts("x" * 20_001)]}))
    assert code == "RESOURCE_EXHAUSTED"
    assert "20000" in details
    assert client.refused("RepositoryModelLoad")[0] == "UNIMPLEMENTED"


def test_tensors_in_shared_memory_are_refused_by_name(client: Client) -> None:
    message = request({"inputs": [texts("a")]})
    message.inputs[0].parameters["shared_memory_region"].string_param = "region"
    code, details = client.refused("ModelInfer", message)
    assert (code, details) == ("INVALID_ARGUMENT", "classification and tensors in shared memory are not served")


def test_a_compressed_message_is_refused_before_it_is_unpacked(client: Client) -> None:
    call = client.channel.unary_unary(f"/{SERVICE}/ModelInfer")
    with pytest.raises(grpc.RpcError) as told:
        call(bytes(10_000_000), compression=grpc.Compression.Gzip, timeout=10)
    assert told.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_call_without_a_message_and_one_that_never_comes_do_not_hang(client: Client) -> None:
    call = client.channel.stream_unary(f"/{SERVICE}/ModelInfer")
    with pytest.raises(grpc.RpcError) as told:
        call(iter(()), timeout=10)
    assert (told.value.code().name, told.value.details()) == ("INVALID_ARGUMENT", "the call came without a message")

    def never() -> Iterator[bytes]:
        time.sleep(5)
        yield b""

    start = time.monotonic()
    with pytest.raises(grpc.RpcError) as late:
        call(never(), timeout=10)
    assert (late.value.code().name, late.value.details()) == ("INVALID_ARGUMENT", "the request did not arrive in time")
    assert time.monotonic() - start < 4


def rows(log: Path, seconds: float) -> dict[str, Any]:
    return {"inputs": [
        {"name": "s", "datatype": "FP64", "shape": [1], "data": [seconds]},
        {"name": "log", "datatype": "BYTES", "shape": [1], "data": [str(log)]},
    ]}  # fmt: skip


def test_the_deadline_of_the_call_is_the_requests(client: Client, tmp_path: Path) -> None:
    code, _ = client.refused("ModelInfer", request(rows(tmp_path / "log", 5.0), "slow"), timeout=1.0)
    assert code == "DEADLINE_EXCEEDED"
    until((tmp_path / "log").exists)
    assert (tmp_path / "log").read_text() == "cancelled"


@pytest.mark.parametrize(("left", "used"), [(None, None), (10.0, 9.98), (0.1, 0.09), (0.0, 1e-4)])
def test_a_little_of_the_deadline_is_left_for_the_way_back(left: float | None, used: float | None) -> None:
    call = Call(SimpleNamespace(time_remaining=lambda: left))
    assert call.left_s == (used if used is None else pytest.approx(used))


def test_a_client_that_leaves_stops_the_work(served: ServerHandle, client: Client, tmp_path: Path) -> None:
    log = tmp_path / "log"
    call = client.channel.unary_unary(f"/{SERVICE}/ModelInfer")
    future = call.future(request(rows(log, 5.0), "slow").SerializeToString())
    models = served.server.router.plan.pool.models.values()
    until(lambda: sum(model.in_flight for model in models) == 1)  # only a call that has begun can be stopped
    future.cancel()
    until(log.exists)
    assert log.read_text() == "cancelled"


def test_keys_tenants_and_metadata_count_as_over_http(start: Callable[[str], ServerHandle]) -> None:
    keys = f"keys: [{{key: {KEY}, may_force: true}}, {{key: {OTHER}, routes: [default, ruled]}}]\n"
    client = Client(start(GRPC + keys))
    message = request({"inputs": [texts("a")]})
    assert client.refused("ModelInfer", message)[0] == "UNAUTHENTICATED"
    assert client.refused("ModelInfer", message, x_api_key="nobody's")[0] == "UNAUTHENTICATED"
    assert client.refused("ModelMetadata", messages().ModelMetadataRequest(name="default"))[0] == "UNAUTHENTICATED"
    assert client.refused("ModelReady", messages().ModelReadyRequest(name="default"))[0] == "UNAUTHENTICATED"
    assert client.ask("ServerReady")[0].ready
    assert outputs(client.ask("ModelInfer", message, authorization=f"Bearer {OTHER}")[0])["label"] == ["yes"]
    assert client.refused("ModelInfer", request({"inputs": [texts("a")]}, "slow"), x_api_key=OTHER)[0] == "PERMISSION_DENIED"
    forced = request({"inputs": [texts("a")]}, "large")
    assert client.refused("ModelInfer", forced, x_api_key=OTHER)[0] == "PERMISSION_DENIED"
    assert outputs(client.ask("ModelInfer", forced, x_api_key=KEY)[0])["label"] == ["no"]
    ruled = request({"inputs": [texts("a")]}, "ruled")
    gold, _ = client.ask("ModelInfer", ruled, x_api_key=OTHER, x_tier="gold")
    plain, _ = client.ask("ModelInfer", ruled, x_api_key=OTHER)
    assert (outputs(gold)["label"], outputs(plain)["label"]) == (["no"], ["yes"])


def test_no_room_says_when_to_come_back(start: Callable[[str], ServerHandle], tmp_path: Path) -> None:
    handle = start(GRPC.replace("{", "{max_in_flight: 1, "))
    client = Client(handle)
    call = client.channel.unary_unary(f"/{SERVICE}/ModelInfer")
    first = call.future(request(rows(tmp_path / "log", 1.0), "slow").SerializeToString())
    until(lambda: handle.server.gateway.active == 1)
    with pytest.raises(grpc.RpcError) as told:
        client.ask("ModelInfer", request({"inputs": [texts("a")]}))
    trailing = dict(told.value.trailing_metadata())
    assert told.value.code() is grpc.StatusCode.UNAVAILABLE
    assert (trailing["retry-after"], trailing["grpc-retry-pushback-ms"]) == ("1", "1000")
    first.result()


def test_a_stop_lets_calls_finish_and_takes_no_more(start: Callable[[str], ServerHandle], tmp_path: Path) -> None:
    handle = start(GRPC)
    client, log = Client(handle), tmp_path / "log"
    call = client.channel.unary_unary(f"/{SERVICE}/ModelInfer")
    running = call.future(request(rows(log, 1.0), "slow").SerializeToString(), timeout=10)
    until(lambda: handle.server.gateway.active == 1)
    stopping = threading.Thread(target=handle.stop)
    stopping.start()
    until(lambda: handle.server.gateway.predict.draining)
    code, details = client.refused("ModelInfer", request({"inputs": [texts("a")]}))
    assert (code, details) == ("UNAVAILABLE", "the gateway is stopping; ask another one")
    assert not client.ask("ServerReady")[0].ready
    assert outputs(messages().ModelInferResponse.FromString(running.result()))["label"] == ["slept"]
    stopping.join()
    assert client.refused("ModelInfer", request({"inputs": [texts("a")]}), timeout=2)[0] == "UNAVAILABLE"


def test_the_time_to_drain_is_limited(start: Callable[[str], ServerHandle], tmp_path: Path) -> None:
    handle = start(GRPC.replace("{", "{drain: 200ms, "))
    client, log = Client(handle), tmp_path / "log"
    call = client.channel.unary_unary(f"/{SERVICE}/ModelInfer")
    running = call.future(request(rows(log, 7.0), "slow").SerializeToString(), timeout=10)
    until(lambda: handle.server.gateway.active == 1)
    handle.stop()
    with pytest.raises(grpc.RpcError) as told:
        running.result()
    assert (told.value.code().name, told.value.details()) == ("UNAVAILABLE", "the gateway is stopping")
    assert log.read_text() == "cancelled"


def test_a_port_that_is_taken_and_a_part_that_is_missing_are_named(
    served: ServerHandle, start: Callable[[str], ServerHandle], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="in use") as taken:
        start(f"server: {{grpc_port: {served.server.grpc_port}}}\n")
    assert taken.value.filename == f"127.0.0.1:{served.server.grpc_port}"
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(Exception, match=r"server.grpc_port.*pip install 'rheostat\[grpc\]'"):
        start(GRPC)


small = st.integers(-2, 3)
tensor = st.fixed_dictionaries({
    "name": st.sampled_from(["text", "a", "", "\x00"]),
    "datatype": st.sampled_from(["BYTES", "FP32", "FP16", "INT8", "UINT64", "BOOL", "", "fp32"]),
    "shape": st.lists(st.one_of(small, st.integers(-(1 << 63), (1 << 63) - 1)), max_size=3),
})  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tensors=st.lists(tensor, max_size=3),
    raw=st.lists(st.binary(max_size=20), max_size=3),
    contents=st.lists(st.floats(width=32), max_size=4),
    tail=st.binary(max_size=6),
)
def test_no_message_is_an_internal_error(
    client: Client, tensors: list[dict[str, Any]], raw: list[bytes], contents: list[float], tail: bytes
) -> None:
    message = messages().ModelInferRequest(model_name="default", raw_input_contents=raw)
    for each in tensors:
        message.inputs.add(**each)
    if contents and tensors:
        message.inputs[0].contents.fp32_contents.extend(contents)
    try:
        client.send("ModelInfer", message.SerializeToString() + tail)
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error  # noqa: PT017 - an answer is as good


@pytest.mark.parametrize("over", ["http", "grpc"])
def test_a_gateway_can_be_a_model_of_another(served: ServerHandle, over: str) -> None:
    url = served.url if over == "http" else f"grpc://127.0.0.1:{served.server.grpc_port}"

    async def ask(rows: list[Any], name: str = "default", within_s: float = 5.0) -> list[str]:
        settings = InferenceModel(base_url=url, model=name, input=InputTensor(name="text"), output="label")
        backend = settings.open("")
        await backend.adescribe(5.0)  # type: ignore[attr-defined]
        try:
            replies = await backend.apredict(rows, within_s)
        finally:
            await backend.aclose()  # type: ignore[attr-defined]
        return [reply.label if isinstance(reply, Prediction) else reply.kind for reply in replies]

    assert asyncio.run(ask(["hello", "what?", "好"] * 20)) == ["yes", "no", "yes"] * 20
    assert asyncio.run(ask(["a", "exits"], "odd")) == ["yes", "upstream_error"]
    assert asyncio.run(ask(["a"], "large")) == ["misconfigured"], "a model by name needs a key"


def test_every_call_of_a_burst_is_answered(served: ServerHandle) -> None:
    body = request({"inputs": [texts("a")]}).SerializeToString()
    clients = [Client(served, **{"rheostat.test": number}) for number in range(10)]
    calls = [each.channel.unary_unary(f"/{SERVICE}/ModelInfer") for each in clients]
    futures = [calls[number % 10].future(body, timeout=60) for number in range(3000)]
    assert {future.code() for future in futures} == {grpc.StatusCode.OK}
    for each in clients:
        each.channel.close()
