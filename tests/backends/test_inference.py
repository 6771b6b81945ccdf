"""Open Inference Protocol v2: what is sent, and what is read of every form of reply."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from rheostat.backends.inference import InferenceModel, InputTensor
from rheostat.config import load_config
from rheostat.errors import ConfigError, ModelError
from rheostat.pool.backend import RemoteBackend, Reply
from rheostat.types import Prediction

SECRET = "sk-very-secret/key+1"
LABELS = ("x", "y")


def ask(
    body: object, rows: list[Any], *, status: int = 200, **settings: Any
) -> tuple[list[Reply], list[web.Request], list[Any]]:
    """Ask a server that always answers `body`; returns the replies, and what the server was asked."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    asked: list[web.Request] = []
    bodies: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        if request.method == "GET":  # it says nothing of itself
            return web.Response(status=404)
        asked.append(request)
        bodies.append(await request.json())
        return web.Response(body=raw, status=status)

    async def go() -> list[Reply]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        backend = model(f"http://127.0.0.1:{runner.addresses[0][1]}", **settings).open("")
        assert isinstance(backend, RemoteBackend)
        try:
            return list(await backend.apredict(rows, 5.0))
        finally:
            await backend.aclose()
            await runner.cleanup()

    return asyncio.run(go()), asked, bodies


def model(root: str = "http://127.0.0.1:1", **settings: Any) -> InferenceModel:
    fixed: dict[str, Any] = {"model": "k", "input": InputTensor(name="TEXT"), "output": "probs", "labels": LABELS}
    return InferenceModel(**{"base_url": root, "api_key": SECRET, **fixed, **settings})


def output(
    data: object, shape: object = (1, 2), datatype: object = "FP32", name: str = "probs", **more: Any
) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data, **more}


def one(*outputs: Mapping[str, Any], **settings: Any) -> Reply:
    (reply,), _, _ = ask({"model_name": "k", "outputs": list(outputs)}, ["a text"], **settings)
    return reply


def refused(reply: Reply, *parts: str) -> None:
    assert isinstance(reply, ModelError), reply
    assert reply.kind == "bad_output"
    for part in parts:
        assert part in str(reply)


def test_a_text_is_one_string_in_a_batch_of_one() -> None:
    replies, asked, bodies = ask({"outputs": [output([0.9, 0.1])]}, ["great \ud800 film"], version_path="3")
    assert asked[0].path == "/v2/models/k/versions/3/infer"
    assert asked[0].headers["authorization"] == f"Bearer {SECRET}"
    assert 0 < int(asked[0].headers["x-rheostat-timeout-ms"]) <= 5000
    assert bodies == [
        {
            "inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["great \ufffd film"]}],
            "outputs": [{"name": "probs"}],
        }
    ]
    assert replies == [Prediction("x", 0.9, {"x": 0.9, "y": 0.1})]


def test_without_a_batch_dimension_and_with_an_odd_name() -> None:
    _, asked, bodies = ask({"outputs": []}, [{"text": "t"}], model="a/b c", input=InputTensor(name="T", batched=False))
    assert asked[0].raw_path == "/v2/models/a%2Fb%20c/infer"
    assert bodies[0]["inputs"] == [{"name": "T", "shape": [1], "datatype": "BYTES", "data": ["t"]}]


def test_features_go_in_the_declared_order_and_none_may_be_missing() -> None:
    features = InputTensor(name="input-0", datatype="FP32", features=("b", "a"))
    rows = [{"a": 1, "b": 2.5}, {"a": 1}, {"a": "1", "b": 2}, "a text"]
    replies, _, bodies = ask({"outputs": [output([[0.4, 0.6]])]}, rows, input=features)
    assert [body["inputs"][0] for body in bodies] == [
        {"name": "input-0", "shape": [1, 2], "datatype": "FP32", "data": [2.5, 1.0]}
    ]
    assert isinstance(replies[0], Prediction)
    kinds = [reply.kind if isinstance(reply, ModelError) else reply.label for reply in replies]
    assert kinds == ["y", "input_refused", "input_refused", "input_refused"]
    assert "'b' is missing" in str(replies[1])


@pytest.mark.parametrize("data", [[0.9, 0.1], [[0.9, 0.1]]])
def test_flat_and_nested_data_are_the_same(data: object) -> None:
    assert one(output(data)) == Prediction("x", 0.9, {"x": 0.9, "y": 0.1})


@pytest.mark.parametrize("data", [["y"], [["y"]]])
def test_text_is_a_label(data: object) -> None:
    assert one(output(data, [1, 1], "BYTES")) == Prediction("y")
    assert one(output(data, [1, 1], "BYTES"), labels=()) == Prediction("y")


def test_an_extra_output_is_no_matter() -> None:
    assert one(output([3], [1], "INT64", "tokens"), output([0.2, 0.8])) == Prediction("y", 0.8, {"x": 0.2, "y": 0.8})


def test_logits_become_probabilities() -> None:
    reply = one(output([1000.0, 1001.0]), softmax=True)
    assert isinstance(reply, Prediction)
    assert reply.scores == pytest.approx({"x": 0.2689414, "y": 0.7310586})


@pytest.mark.parametrize(
    ("outputs", "parts"),
    [
        ([output([0.9])], ["shape [1, 2]", "[0.9]"]),
        ([output([[0.9], [0.1]])], ["shape [1, 2]"]),
        ([output([[0.9, 0.1]], [2])], ["shape [2]"]),
        ([output([0.5, 0.3, 0.2], [1, 3])], ["labels ['x', 'y']", "[0.5, 0.3, 0.2]"]),
        ([], ["one output named 'probs'", "[]"]),
        ([output([0.9, 0.1], name="other")], ["'probs'", "['other']"]),
        ([output([0.9, 0.1]), output([0.1, 0.9])], ["one name"]),
        ([output([0.9, float("nan")])], ["finite numbers", "nan"]),
        ([output([0.9, None])], ["finite numbers", "None"]),
        ([output([0.9, True])], ["finite numbers"]),
        ([output([0.9, "0.1"])], ["finite numbers"]),
        ([output([0.9, 10**400])], ["finite numbers"]),
        ([output([9.0, 1.0])], ["scores in [0, 1]"]),
        ([output(["0.9", "0.1"], datatype="BYTES")], ["one label", "['0.9', '0.1']"]),
        ([output(["z"], [1], "BYTES")], ["labels ['x', 'y']", "'z'"]),
        ([output([1], [1], "BYTES")], ["text in 'probs'", "[1]"]),
        ([output([1, 0], datatype="INT64")], ["floats", "INT64"]),
        ([output([0.9, 0.1], datatype="FLOAT")], ["numbers or text", "FLOAT"]),
        ([output([0.9, 0.1], datatype=["FP32"])], ["numbers or text"]),
        ([output([0.9, 0.1], [1, -2])], ["a shape"]),
        ([output([0.9, 0.1], None)], ["a shape"]),
        ([output(None)], ["as a list"]),
        ([output(None, parameters={"binary_data_size": 8})], ["binary_data_size", "0 bytes are left"]),
        (["probs"], ["'probs'"]),
    ],
)
def test_what_does_not_fit_is_a_fault_that_says_what_came(outputs: list[Any], parts: list[str]) -> None:
    refused(one(*outputs), *parts)


@pytest.mark.parametrize(
    "body",
    [{"error": f"out of memory, says {SECRET}"}, [], "text", b"", b"\x00\x00\x80?", b'{"outputs":[{]}', {"outputs": {}}],
)
def test_a_body_that_is_no_response_is_bad_output(body: object) -> None:
    (reply,), _, _ = ask(body, ["a text"])
    refused(reply)
    assert SECRET not in str(reply)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "misconfigured"),
        (404, "misconfigured"),
        (413, "input_too_large"),
        (422, "input_refused"),
        (500, "upstream_error"),
    ],
)
def test_a_refusal_of_the_form_is_the_operators_fault(status: int, kind: str) -> None:
    (reply,), _, _ = ask({"error": "unexpected inference input 'TEXT' for model 'k'"}, ["a text"], status=status)
    assert isinstance(reply, ModelError)
    assert (reply.kind, reply.upstream_status) == (kind, status)
    assert "unexpected inference input" in str(reply)


def test_what_a_status_means_can_be_said_for_400_too() -> None:
    (reply,), _, _ = ask({"error": "text too odd"}, ["a text"], status=400, on_status={400: "input_refused"})
    assert isinstance(reply, ModelError)
    assert (reply.kind, reply.upstream_status) == ("input_refused", 400)
    (other,), _, _ = ask({"error": "no model"}, ["a text"], status=404, on_status={400: "input_refused"})
    assert isinstance(other, ModelError)
    assert other.kind == "misconfigured"


def test_text_where_logits_are_declared_is_refused() -> None:
    refused(one(output(["x"], [1], "BYTES"), softmax=True), "floats", "BYTES")


def test_numbers_without_labels_are_the_operators_fault() -> None:
    reply = one(output([0.9, 0.1]), labels=())
    assert isinstance(reply, ModelError)
    assert reply.kind == "misconfigured"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"base_url": "ftp://host"}, "base_url"),
        ({"model": ""}, "model"),
        ({"output": ""}, "output"),
        ({"input": InputTensor(name="")}, "input.name"),
        ({"parallel": 0}, "parallel"),
        ({"softmax": True, "labels": ()}, "labels"),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        model(**settings).open("")
    assert field in str(caught.value)


def test_a_config_may_name_it_and_is_told_what_is_wrong(tmp_path: Any) -> None:
    place = tmp_path / "rheostat.yaml"
    text = (
        "models:\n"
        "  k: {{backend: inference_protocol, base_url: 'http://127.0.0.1:1', model: k, output: probs, labels: [x, y],\n"
        "      input: {{name: IN, {}}}}}\n"
        "routes:\n  default: {{policy: k}}\n"
    )
    place.write_text(text.format("datatype: FP32, features: [a, b]"))
    settings = load_config(place).config.models["k"]
    assert isinstance(settings, InferenceModel)
    assert settings.input.features == ("a", "b")
    for wrong, told in (
        ("datatype: FP32", "`features` and a `datatype` of numbers"),
        ("datatype: FP8", "datatype"),
        ("shape: [1]", "shape"),
    ):
        place.write_text(text.format(wrong))
        with pytest.raises(ConfigError) as caught:
            load_config(place)
        assert told in str(caught.value)
