"""The pages of the Open Inference Protocol in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from rheostat.tensors.tensor import DATATYPES

_TENSOR = {
    "type": "object",
    "required": ["name", "datatype", "shape"],
    "properties": {
        "name": {"type": "string"},
        "datatype": {"enum": sorted(DATATYPES)},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "data": {"type": "array", "description": "Flat, or nested as the shape says; not with `binary_data_size`."},
        "parameters": {"type": "object"},
    },
}
SCHEMAS: dict[str, Any] = {
    "Tensor": _TENSOR,
    "InferRequest": {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "inputs": {"type": "array", "items": {"$ref": "#/components/schemas/Tensor"}, "minItems": 1},
            "outputs": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "parameters": {"type": "object"}},
                },
            },
            "parameters": {"type": "object"},
        },
    },
    "InferResponse": {
        "type": "object",
        "required": ["model_name", "model_version", "parameters", "outputs"],
        "properties": {
            "model_name": {"type": "string"},
            "model_version": {"type": "string"},
            "id": {"type": "string"},
            "parameters": {"type": "object"},
            "outputs": {"type": "array", "items": {"$ref": "#/components/schemas/Tensor"}},
        },
    },
    "InferError": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
}
"""What the protocol's pages take and give."""


def inference_paths(errors: dict[str, str]) -> dict[str, Any]:
    """Return the pages; `errors` says by status what went wrong."""
    refused = {status: _json(text, {"$ref": "#/components/schemas/InferError"}) for status, text in errors.items()}
    missing = {"404": refused["404"] | {"description": "No such route or model, or not in this version."}}
    plain = {"type": "object"}
    ready = {"503": _json("Not now.", plain)}
    metadata = _get("inferenceModel", "What a route or model takes and gives.", {"401": refused["401"], **missing})
    model_ready = _get("inferenceModelReady", "Whether it may be asked.", {"401": refused["401"], **missing, **ready})
    infer = {"post": {
        "operationId": "infer",
        "summary": "Answer rows that come as tensors, in JSON or as bytes behind it.",
        "parameters": [_name(), {
            "name": "inference-header-content-length", "in": "header", "required": False,
            "description": "Where the JSON ends and the bytes of tensors begin.",
            "schema": {"type": "integer", "minimum": 0},
        }],
        "requestBody": {"required": True, "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/InferRequest"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        }},
        "responses": {
            "200": _json("The outputs; bytes behind the JSON where they were asked for.",
                         {"$ref": "#/components/schemas/InferResponse"}),
            **refused,
        },
    }}  # fmt: skip
    return {
        "/v2": _get("inferenceServer", "What the server of the Open Inference Protocol is.", {}),
        "/v2/health/live": _get("inferenceLive", "The process answers.", {}),
        "/v2/health/ready": _get("inferenceReady", "Requests are taken.", ready),
        "/v2/models/{name}": _with_name(metadata),
        "/v2/models/{name}/ready": _with_name(model_ready),
        "/v2/models/{name}/infer": infer,
    }


def _get(operation: str, text: str, more: dict[str, Any]) -> dict[str, Any]:
    responses = {"200": _json("It is.", {"type": "object"}), **more}
    return {"get": {"operationId": operation, "summary": text, "responses": responses}}


def _with_name(page: dict[str, Any]) -> dict[str, Any]:
    page["get"]["parameters"] = [_name()]
    return page


def _name() -> dict[str, Any]:
    return {
        "name": "name", "in": "path", "required": True, "schema": {"type": "string"},
        "description": "A route; or a model, for a key that may choose it. `/versions/V` may follow.",
    }  # fmt: skip


def _json(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}
