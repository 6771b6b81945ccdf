"""The Open Inference Protocol over HTTP: a route is a model there, and what is wrong is named with its status."""

import json
import struct
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rheostat.gateway.handle import ServerHandle

KEY = "a key that may force models"
OTHER = "a key that may not force them"


def send(url: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(url + path, data=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, {k.lower(): v for k, v in response.headers.items()}, response.read()
    except urllib.error.HTTPError as error:
        return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read()


def infer(url: str, body: Any, name: str = "default", **headers: str) -> tuple[int, Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, _, content = send(url, f"/v2/models/{name}/infer", raw, content_type="application/json", **headers)
    return status, json.loads(content)


def texts(*given: str) -> dict[str, Any]:
    return {"name": "text", "datatype": "BYTES", "shape": [len(given)], "data": list(given)}


def outputs(answer: Any) -> dict[str, Any]:
    return {each["name"]: each["data"] for each in answer["outputs"]}


def test_the_server_and_its_routes_say_what_they_are(gateway: ServerHandle) -> None:
    for path, told in (("/v2/health/live", {"live": True}), ("/v2/health/ready", {"ready": True})):
        status, _, body = send(gateway.url, path)
        assert (status, json.loads(body)) == (200, told)
    _, _, body = send(gateway.url, "/v2")
    assert "binary_tensor_data" in json.loads(body)["extensions"]
    status, _, body = send(gateway.url, "/v2/models/default")
    about = json.loads(body)
    assert status == 200
    assert about["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert {"label", "confidence", "scores"} <= {each["name"] for each in about["outputs"]}
    assert send(gateway.url, f"/v2/models/default/versions/{about['versions'][0]}/ready")[0] == 200
    assert send(gateway.url, "/v2/models/default/versions/9/ready")[0] == 404
    assert send(gateway.url, "/v2/models/default/infer")[0] == 405


def test_each_text_is_a_request_with_a_record_of_its_own(gateway: ServerHandle) -> None:
    status, answer = infer(gateway.url, {"id": "mine", "inputs": [texts("hello", "what?")], "outputs": [
        {"name": "label"}, {"name": "model"}, {"name": "request_id"}]})  # fmt: skip
    assert status == 200
    assert (answer["id"], answer["parameters"]) == ("mine", {"request_id": "mine"})
    assert outputs(answer) == {
        "label": ["yes", "no"], "model": ["fast", "large"], "request_id": ["mine.0", "mine.1"],
    }  # fmt: skip


def test_binary_goes_both_ways(gateway: ServerHandle) -> None:
    raw = struct.pack("<I", 5) + b"what?"
    tensor = {"name": "t", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    status, headers, body = send(
        gateway.url, "/v2/models/default/infer", head + raw, content_type="application/octet-stream",
        inference_header_content_length=str(len(head)),
    )  # fmt: skip
    assert status == 200
    length = int(headers["inference-header-content-length"])
    answer = json.loads(body[:length])
    assert answer["parameters"]["selected_model"] == headers["x-rheostat-model"] == "large"
    assert [each["name"] for each in answer["outputs"]] == ["label", "confidence", "scores", "labels"]
    assert body[length:][:6] == struct.pack("<I", 2) + b"no"
    assert sum(each["parameters"]["binary_data_size"] for each in answer["outputs"]) == len(body) - length


def test_features_come_as_tensors_and_as_a_named_matrix(gateway: ServerHandle) -> None:
    body = {
        "inputs": [
            {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["a", "b?"]},
            {
                "name": "m",
                "datatype": "FP64",
                "shape": [2, 2],
                "data": [[1.5, 2.0], [3.0, 4.0]],
                "parameters": {"names": "x,y"},
            },
        ]
    }
    status, answer = infer(gateway.url, body)
    assert (status, outputs(answer)["label"]) == (200, ["yes", "no"])


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"", 400, "no inference request"),
        (b"[" * 100_00, 400, ""),
        (b'{"inputs":' + b"[" * 9000 + b"]" * 9000 + b"}", 400, ""),
        (b"\xff\xfe", 400, "no inference request"),
        ({}, 400, "inputs"),
        ({"inputs": []}, 400, "nothing to predict"),
        ({"inputs": [texts()]}, 400, "0 rows"),
        ({"inputs": [texts(*"a" * 51)]}, 400, "from 1 to 50"),
        ({"inputs": [{"name": "t", "datatype": "BYTES", "shape": [], "data": ["a"]}]}, 400, "first dimension"),
        ({"inputs": [{"name": "t", "datatype": "FP32", "shape": [-1], "data": [1.0]}]}, 400, "a shape"),
        ({"inputs": [{"name": "t", "datatype": "FP32", "shape": [1 << 62, 4], "data": [1.0]}]}, 400, "in the shape"),
        ({"inputs": [{"name": "t", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]}, 400, "names"),
        ({"inputs": [texts("a")], "outputs": [{"name": "nix"}]}, 400, "no output 'nix'"),
        ({"inputs": [texts("a")], "parameters": {"timeout": -1}}, 400, "microseconds"),
        ({"inputs": [texts("a")], "parameters": {"sequence_id": 3}}, 400, "sequences"),
        (
            {"inputs": [texts("a")], "outputs": [{"name": "label", "parameters": {"classification": 2}}]},
            400,
            "classification",
        ),
        (
            {"inputs": [{"name": "t", "datatype": "FP32", "shape": [1], "parameters": {"shared_memory_region": "r"}}]},
            400,
            "shared memory",
        ),
        ({"inputs": [{"name": "t", "datatype": "FP32", "shape": [2, 0], "data": []}]}, 400, "the shape [2, 0]"),
        ({"inputs": [texts("a")], "id": 5}, 400, "id: expected str"),
        ({"inputs": [texts("a")], "outputs": [{"name": "label", "parameters": None}]}, 400, "parameters: expected object"),
        (b'{"inputs":[{"name":"t","datatype":"FP32","shape":[1],"data":[NaN]}]}', 400, "malformed"),
        (b'{"inputs":[{"name":"t","datatype":"BYTES","shape":[1],"data":["\\ud800"]}]}', 400, "whole characters"),
        (b'{"inputs":[]}' + b" " * 20_001, 413, "too large"),
    ],
)
def test_what_is_wrong_is_named(gateway: ServerHandle, body: Any, status: int, told: str) -> None:
    got, answer = infer(gateway.url, body)
    assert got == status
    assert set(answer) == {"error"}
    assert told in answer["error"]


@pytest.mark.parametrize("length", ["-1", "99999", "x", "9" * 400])
def test_a_lie_about_the_length_of_the_json_is_refused(gateway: ServerHandle, length: str) -> None:
    status, answer = infer(gateway.url, {"inputs": [texts("a")]}, inference_header_content_length=length)
    assert status == 400
    assert "Inference-Header-Content-Length" in answer["error"]


NUMBER = st.one_of(st.none(), st.booleans(), st.integers(-3, 60), st.integers(), st.floats(), st.text(max_size=3))
JSON = st.recursive(
    NUMBER, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner))
)
TENSOR = st.fixed_dictionaries(
    {},
    optional={
        "name": st.one_of(st.sampled_from(["text", "a", ""]), JSON),
        "datatype": st.one_of(st.sampled_from(["BYTES", "FP32", "FP64", "INT8", "UINT64", "BOOL", "FP16"]), JSON),
        "shape": st.one_of(st.lists(st.integers(-1, 4), max_size=3), JSON),
        "data": st.one_of(st.lists(st.one_of(st.text(max_size=3), st.floats(), st.integers()), max_size=4), JSON),
        "parameters": st.one_of(st.fixed_dictionaries({"binary_data_size": st.integers(-1, 12)}), JSON),
    },
)
BODY = st.fixed_dictionaries(
    {"inputs": st.one_of(st.lists(TENSOR, max_size=3), JSON)},
    optional={"id": JSON, "outputs": st.one_of(st.lists(st.fixed_dictionaries({"name": JSON})), JSON), "parameters": JSON},
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=BODY, rest=st.binary(max_size=12), lie=st.sampled_from([None, 0, 0, 0, 1, -1, 5]), cut=st.integers(0, 3))
def test_no_body_is_an_internal_error(
    gateway: ServerHandle, body: dict[str, Any], rest: bytes, lie: int | None, cut: int
) -> None:
    head = json.dumps(body).encode()
    raw = (head + rest)[: len(head) + len(rest) - cut]
    headers = {} if lie is None else {"inference_header_content_length": str(len(head) + lie)}
    status, _, content = send(gateway.url, "/v2/models/default/infer", raw, content_type="application/json", **headers)
    assert status in (200, 400, 413), (status, content)
    if status == 200:
        assert content.startswith(b'{"model_name":')
    else:
        assert set(json.loads(content)) == {"error"}


@settings(max_examples=100, deadline=None)
@given(raw=st.binary(max_size=60), length=st.one_of(st.none(), st.text("0123456789 +-x,", max_size=4)))
def test_no_bytes_are_an_internal_error(gateway: ServerHandle, raw: bytes, length: str | None) -> None:
    headers = {} if length is None else {"inference_header_content_length": length}
    status, _, _ = send(gateway.url, "/v2/models/default/infer", raw, content_type="application/octet-stream", **headers)
    assert status == 400


def test_its_own_time_limit_and_names_that_are_not_there(gateway: ServerHandle) -> None:
    assert infer(gateway.url, {"inputs": [texts("a")], "parameters": {"timeout": 1}}, "slow")[0] == 504
    status, answer = infer(gateway.url, {"inputs": [texts("a")]}, "nobody")
    assert status == 404
    assert "routes: default" in answer["error"]


def test_a_model_by_name_is_for_those_who_may_force(start: Callable[[str], ServerHandle]) -> None:
    url = start(f"keys: [{{key: {KEY}, may_force: true}}, {{key: {OTHER}, routes: [default]}}]\n").url
    body = {"inputs": [texts("a")]}
    assert infer(url, body)[0] == 401
    assert infer(url, body, x_api_key=OTHER)[0] == 200
    assert infer(url, body, "slow", x_api_key=OTHER)[0] == 403
    assert infer(url, body, "large", x_api_key=OTHER)[0] == 403
    status, answer = infer(url, body, "large", x_api_key=KEY)
    assert (status, answer["parameters"]["selected_model"], answer["model_version"]) == (200, "large", "7")
    assert send(url, "/v2/models/default")[0] == 401
    assert send(url, "/v2/health/ready")[0] == 200
