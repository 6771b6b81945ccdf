"""The pages beside the request path: models, feedback, health, metrics, the OpenAPI document."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gateway_wire import Reply, ask

from conftest import SECRET
from rheostat.gateway.handle import ServerHandle
from rheostat.telemetry import SqliteReader


def test_models_without_what_clients_need_not_know(gateway: ServerHandle) -> None:
    reply = ask(gateway.url, "/v1/models")
    assert reply.status == 200
    models = {model["id"]: model for model in reply.json["data"]}
    assert set(models) == {"fast", "large", "odd", "sleepy"}
    assert (models["large"]["version"], models["large"]["tier"], models["large"]["cost"]) == ("7", 2, 10.0)
    assert models["fast"]["tags"] == ["cheap"]
    assert models["fast"]["weak_at"] == "irony"
    assert b"callable" not in reply.body


def test_health(gateway: ServerHandle) -> None:
    assert (ask(gateway.url, "/health/live").status, ask(gateway.url, "/health/ready").json) == (200, {"status": "ready"})


def test_head_has_no_body(gateway: ServerHandle) -> None:
    for path in ("/v1/models", "/health/live", "/metrics"):
        reply = ask(gateway.url, path, method="HEAD")
        assert (reply.status, reply.body) == (200, b"")
        assert int(reply.headers["content-length"]) > 0


def test_wrong_methods_name_the_right_ones(gateway: ServerHandle) -> None:
    for path, method, allowed in (("/v1/predict", "GET", "POST"), ("/v1/feedback", "PUT", "POST"),
                                  ("/v1/models", "POST", "GET, HEAD"), ("/metrics", "DELETE", "GET, HEAD")):  # fmt: skip
        reply = ask(gateway.url, path, method=method)
        assert (reply.status, reply.headers["allow"]) == (405, allowed)


def test_feedback_is_joined_to_its_record(gateway: ServerHandle) -> None:
    made = ask(gateway.url, body={"data": "judge me"}).json["request_id"]
    reply = ask(gateway.url, "/v1/feedback", body={"request_id": made, "label": "yes", "reward": 0.5, "source": "test"})
    assert (reply.status, reply.json) == (202, {"code": 0, "request_id": made})
    router = gateway.server.router
    assert router.recorder.flush(5.0)
    reader = SqliteReader(Path(gateway.config_path).with_name("records.db"))
    try:
        stored = reader.feedback_for(made)
    finally:
        reader.close()
    assert [(found.label, found.reward, found.source) for found in stored] == [("yes", 0.5, "test")]


@pytest.mark.parametrize(
    "body",
    [{}, {"request_id": "r"}, {"request_id": "", "label": "a"}, {"request_id": "r" * 81, "label": "a"},
     {"request_id": "r", "reward": "much"}, {"request_id": "r", "lable": "a"}, {"request_id": 5, "label": "a"}, []],
)  # fmt: skip
def test_wrong_feedback_is_refused(gateway: ServerHandle, body: Any) -> None:
    assert ask(gateway.url, "/v1/feedback", body=body).status == 400


def series(page: bytes) -> set[str]:
    return {line.rsplit(b" ", 1)[0].decode() for line in page.splitlines() if line and not line.startswith(b"#")}


def test_clients_cannot_create_metric_series(gateway: ServerHandle) -> None:
    ask(gateway.url, body={"data": "a"})
    ask(gateway.url, body={"data": "a", "route": {"name": "no such route"}})
    before = series(ask(gateway.url, "/metrics").body)
    for number in range(60):
        ask(gateway.url, f"/random/{number}")
        ask(gateway.url, body={"data": f"text {number}", "route": {"name": f"route {number}"}})
        ask(gateway.url, body={"data": "a", "meta": {"tenant": f"t{number}"}}, headers={"x-rheostat-tenant": f"t{number}"})
        ask(gateway.url, "/v1/feedback", body={"request_id": f"r{number}", "label": f"label {number}"})
    reply = ask(gateway.url, "/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    assert len(series(reply.body) - before) < 20
    assert re.search(rb'rheostat_requests_total\{route="default",status="ok"\} \d+', reply.body)
    assert b"route 7" not in reply.body


def schema_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}", "components": document["components"]}


TENSOR = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a?"]}


def test_the_openapi_document_describes_what_is_really_said(gateway: ServerHandle) -> None:
    document = ask(gateway.url, "/openapi.json").json
    assert document["openapi"] == "3.1.0"
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    said: list[tuple[str, Reply]] = [
        ("PredictAnswer", ask(gateway.url, body={"data": "a?"})),
        ("BatchAnswer", ask(gateway.url, body={"items": [{"data": "a"}, {"data": None}]})),
        ("ErrorAnswer", ask(gateway.url, body={"data": None})),
        ("ErrorAnswer", ask(gateway.url, "/nowhere")),
        ("InferResponse", ask(gateway.url, "/v2/models/default/infer", body={"inputs": [TENSOR]})),
        ("InferError", ask(gateway.url, "/v2/models/default/infer", body={"inputs": []})),
    ]
    for name, reply in said:
        jsonschema.validate(reply.json, schema_of(document, name))
    for body in ({"data": "a"}, {"text": "a", "meta": {"k": 1}}, {"data": {"f": 1}}, {"items": [{"data": "a"}]}):
        jsonschema.validate(body, schema_of(document, "PredictBody"))
    for body in ({"data": 5}, {"dat": "a"}, {"items": [{"dat": 1}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(body, schema_of(document, "PredictBody"))


def test_every_page_of_the_document_exists(gateway: ServerHandle) -> None:
    for path, methods in ask(gateway.url, "/openapi.json").json["paths"].items():
        for method in methods:
            reply = ask(gateway.url, path, method=method.upper())
            if path.startswith("/v2/models"):
                assert reply.status in (400, 404)
                assert "no route and no model" in reply.json["error"] or method == "post"
            elif "{" in path:  # the page is there, the thing of this name is not
                assert (reply.status, reply.error["message"]) == (404, "there is no such result")
            else:
                assert reply.status not in (404, 405)


def test_client_text_is_data_everywhere(gateway: ServerHandle) -> None:
    hostile = "<img src=x onerror=alert(1)>\"'<script>"
    replies = [
        ask(gateway.url, body={"data": hostile, "meta": {"session": hostile}}),
        ask(gateway.url, body={"data": "a", "route": {"name": hostile}}),
        ask(gateway.url, body={hostile: 1}),
        ask(gateway.url, "/%3Cscript%3E"),
        ask(gateway.admin_url or "", "/admin/status", headers={"authorization": f"Bearer {SECRET}"}),
    ]
    for reply in replies:
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in reply.headers
        json.loads(reply.body)
