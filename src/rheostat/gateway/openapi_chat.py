"""The page of conversations in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rheostat.gateway.chat_answer import ChatError

_REQUEST = {
    "type": "object",
    "required": ["model", "messages"],
    "description": "As OpenAI defines it. `model` names a route, or a model for keys that may; other fields go on as is.",
    "properties": {
        "model": {"type": "string"},
        "messages": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "object", "required": ["role"], "properties": {"role": {"type": "string"}}},
        },
        "stream": {"type": "boolean"},
        "metadata": {"type": "object", "description": "What rules read as `meta`."},
    },
}
_COMPLETION = {
    "type": "object",
    "required": ["object", "choices"],
    "description": "The completion of the model that answered, as it gave it.",
    "properties": {"object": {"const": "chat.completion"}, "choices": {"type": "array"}},
}


def chat_schemas() -> dict[str, Any]:
    """Return the schemas that the page names."""
    _, schemas = msgspec.json.schema_components((ChatError,), ref_template="#/components/schemas/{name}")
    return {"ChatRequest": _REQUEST, "ChatCompletion": _COMPLETION, **schemas}


def chat_paths(errors: Mapping[str, str]) -> dict[str, Any]:
    """Return the page; `errors` says by status what is wrong."""
    stream = "With `stream`: the chunks of the model that answers, last `[DONE]`, or an `error`."
    answer = {
        "application/json": {"schema": {"$ref": "#/components/schemas/ChatCompletion"}},
        "text/event-stream": {"schema": {"type": "string", "description": stream}},
    }
    refused = {"application/json": {"schema": {"$ref": "#/components/schemas/ChatError"}}}
    post = {
        "operationId": "chat",
        "summary": "Go on with a conversation (`task: chat`); also takes the headers of /v1/predict.",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ChatRequest"}}},
        },
        "responses": {
            "200": {"description": "The answer.", "content": answer},
            **{status: {"description": told, "content": refused} for status, told in errors.items()},
        },
    }
    return {"/v1/chat/completions": {"post": post}}
