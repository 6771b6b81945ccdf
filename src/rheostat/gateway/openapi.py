"""The OpenAPI 3.1 document, made from the structs that the gateway really reads and writes."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from rheostat.gateway.answer import BatchAnswer, ErrorAnswer, PredictAnswer, PromiseAnswer
from rheostat.gateway.body import FeedbackBody, Item, PredictBody
from rheostat.gateway.openapi_chat import chat_paths, chat_schemas
from rheostat.gateway.openapi_inference import SCHEMAS, inference_paths

_ERRORS = {
    "400": "The request is wrong; `error.param` names the field.",
    "401": "A key is needed, or this one is not known.",
    "403": "The key may not do this.",
    "404": "No such route.",
    "408": "The request came too slowly.",
    "413": "The body is over the limit.",
    "415": "The body is not plain JSON.",
    "429": "Too many requests; `Retry-After` says when to come back.",
    "431": "The headers are over the limit.",
    "500": "Internal error; the operator finds it under the request id.",
    "502": "No model could answer.",
    "503": "No room now, or the gateway is stopping; `Retry-After` says when to come back.",
    "504": "The request's time is over.",
}

_SESSION = {"type": "string", "maxLength": 256}
_PRIORITY = {"enum": ["high", "normal", "low"]}
_ID = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,64}$"}


@cache
def document() -> bytes:
    """Return the document as JSON."""
    bodies = (PredictBody, Item, FeedbackBody, PredictAnswer, PromiseAnswer, BatchAnswer, ErrorAnswer)
    _, schemas = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    row = _one_of("A text, or an object of features.", {"type": "string"}, {"type": "object"})
    for name in ("PredictBody", "Item"):
        schemas[name]["properties"]["data"] = row
    items = schemas["PredictBody"]["properties"]["items"]
    items.pop("anyOf", None)
    items.update({"type": "array", "minItems": 1, "items": _ref("Item")})
    schemas["BatchAnswer"]["properties"]["items"]["items"] = {
        "anyOf": [_ref("PredictAnswer"), _ref("PromiseAnswer"), _ref("ErrorAnswer")]
    }
    try:
        release = version("rheostat")
    except PackageNotFoundError:
        release = "0"
    page = {
        "openapi": "3.1.0",
        "info": {
            "title": "Rheostat gateway",
            "version": release,
            "description": "Decides for every request which models run and how much each answer counts.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {**_paths(), **chat_paths(_ERRORS), **inference_paths(_ERRORS)},
        "components": {
            "schemas": {**schemas, **chat_schemas(), **SCHEMAS},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{}, {"bearer": []}, {"key": []}],
    }
    return msgspec.json.encode(page)


def _paths() -> dict[str, Any]:
    answer = _one_of("One row's answer, or a list's.", _ref("PredictAnswer"), _ref("BatchAnswer"))
    accepted = {"type": "object", "properties": {"code": {"const": 0}, "request_id": {"type": "string"}}}
    status = {"type": "object", "properties": {"status": {"type": "string"}}}
    models = {"type": "object", "properties": {"object": {"const": "list"}, "data": {"type": "array"}}}
    return {
        "/v1/predict": {
            "post": {
                "operationId": "predict",
                "summary": "Answer one row, or a list of rows.",
                "parameters": [
                    _header("x-rheostat-session", "The session; wins over `meta.session`.", _SESSION),
                    _header("x-rheostat-timeout-ms", "A shorter time limit.", {"type": "number", "exclusiveMinimum": 0}),
                    _header("x-rheostat-priority", "How urgent it is; never more than the key is allowed.", _PRIORITY),
                    _header("x-request-id", "A name for this request.", _ID),
                ],
                "requestBody": _body("PredictBody"),
                "responses": {
                    "200": _or_stream(_json("The answer; each row of a list may also be an error.", answer)),
                    "202": _json("No model could answer; the answer comes later.", _ref("PromiseAnswer")),
                    **_errors(),
                },
            }
        },
        "/v1/feedback": {
            "post": {
                "operationId": "feedback",
                "summary": "Judge an earlier answer.",
                "requestBody": _body("FeedbackBody"),
                "responses": {"202": _json("Taken.", accepted), **_errors("400", "401", "408", "413", "415", "431")},
            }
        },
        "/v1/results/{id}": {"get": {
            "operationId": "result",
            "summary": "The answer to a request that was promised one; an error here is how it ended for good.",
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}],
            "responses": {
                "200": _json("The answer.", _ref("PredictAnswer")),
                "202": _json("It is still pending; `Retry-After` says when to ask again.", _ref("PromiseAnswer")),
                "410": _json("It is no longer kept.", _ref("ErrorAnswer")),
                **_errors("400", "401", "403", "404", "413", "502", "503", "504"),
            },
        }},
        "/v1/models": _get("models", "The models of the pool.", _json("The models.", models), **_errors("401")),
        "/health/live": _get("live", "The process answers.", _json("It does.", status)),
        "/health/ready": _get("ready", "Models are loaded, and one can be asked.", _json("Ready.", status),
                              **{"503": _json("Not ready.", status)}),
        "/metrics": _get("metrics", "Prometheus metrics.",
                         {"description": "The page.", "content": {"text/plain": {"schema": {"type": "string"}}}}),
        "/openapi.json": _get("openapi", "This document.", _json("The document.", {"type": "object"})),
    }  # fmt: skip


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _one_of(text: str, *schemas: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "anyOf": list(schemas)}


def _json(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _or_stream(response: dict[str, Any]) -> dict[str, Any]:
    text = "With `route.stream`: events `piece`, last `answer` (a PredictAnswer) or `error` (an ErrorAnswer)."
    response["content"]["text/event-stream"] = {"schema": {"type": "string", "description": text}}
    return response


def _body(name: str) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": _ref(name)}}}


def _header(name: str, text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": text, "schema": schema}


def _errors(*statuses: str) -> dict[str, Any]:
    wanted = statuses or tuple(_ERRORS)
    return {status: _json(_ERRORS[status], _ref("ErrorAnswer")) for status in wanted}


def _get(operation: str, text: str, ok: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"get": {"operationId": operation, "summary": text, "responses": {"200": ok, **more}}}
