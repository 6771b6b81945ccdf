"""What a chat endpoint sends: completions, chunks and errors in OpenAI's form."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from rheostat.backends.chat_relay import framed
from rheostat.engine.engine import Served
from rheostat.errors import RheostatError
from rheostat.gateway.answer import encode, error_of
from rheostat.types import RouteRecord
from rheostat.types.text import well_formed

DONE = b"data: [DONE]\n\n"
_TYPES = {401: "authentication_error", 402: "insufficient_quota", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {"input_too_large": "context_length_exceeded", "unauthorized": "invalid_api_key"}


class ChatErrorInfo(Struct, frozen=True):
    """What went wrong: `code` is stable, `param` names the field to blame, `type` is OpenAI's for the status."""

    message: str
    type: str
    param: str | None
    code: str


class ChatError(Struct, frozen=True):
    """Any conversation that was not answered."""

    error: ChatErrorInfo


def chat_error(error: Exception, known_id: str) -> tuple[ChatError, int]:
    """Return the body for an error, without anything that is only for operators, and its status."""
    said = error_of(error, known_id).error
    kind = _TYPES.get(said.code, "server_error" if said.code >= 500 else "invalid_request_error")
    code = "model_not_found" if said.code == 404 and said.param == "model" else _CODES.get(said.type, said.type)
    return ChatError(ChatErrorInfo(said.message, kind, said.param, code)), said.code


def completion_of(served: Served) -> bytes:
    """Return the completion of the model that answered, byte for byte, or one made of what another kind of model said.

    Raises:
        RheostatError: nobody answered.
    """
    said = served.prediction
    if said is None:
        raise served.error or RheostatError("neither an answer nor an error")
    if isinstance(said.output, bytes):
        return said.output
    text = said.output if isinstance(said.output, str) and said.output else said.label
    message = {"role": "assistant", "content": well_formed(text)}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return encode({**_head(served.record, "chat.completion"), "choices": [choice]})


def chunks_of(completion: bytes, *, usage: bool) -> bytes:
    """Return a whole completion as a stream without its end marker: a chunk with everything, one that finishes it, and with
    `usage` one that tells it, where the model did."""
    whole: dict[str, Any] = msgspec.json.decode(completion)
    told = whole.pop("usage", None)
    choices = whole.pop("choices", None) or []
    head = {**whole, "object": "chat.completion.chunk"}
    said, ends = [], []
    for choice in choices:
        delta = {name: value for name, value in (choice.get("message") or {}).items() if value is not None}
        if delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
        at = {"index": choice.get("index", 0)}
        said.append({**at, "delta": delta, "logprobs": choice.get("logprobs"), "finish_reason": None})
        ends.append({**at, "delta": {}, "logprobs": None, "finish_reason": choice.get("finish_reason") or "stop"})
    events = [{**head, "choices": said}, {**head, "choices": ends}]
    if usage and told is not None:
        events.append({**head, "choices": [], "usage": told})
    return b"".join(framed(encode(event)) for event in events)


class TextChunks:
    """Makes the chunks of an answer that a model of another kind gives text by text."""

    def __init__(self, known_id: str, model: str, created: int) -> None:
        head = {"id": f"chatcmpl-{known_id}", "object": "chat.completion.chunk", "created": created, "model": model}
        self._head = head
        self._begun = False

    def text(self, text: str) -> bytes:
        """Return the chunk of the next text."""
        delta: dict[str, Any] = {"content": well_formed(text)}
        if not self._begun:
            delta, self._begun = {"role": "assistant", **delta}, True
        return self._chunk(delta, None)

    def end(self) -> bytes:
        """Return the chunk that finishes the answer; empty where no text was made here."""
        return self._chunk({}, "stop") if self._begun else b""

    def _chunk(self, delta: dict[str, Any], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return framed(encode({**self._head, "choices": [choice]}))


def _head(record: RouteRecord, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{record.id}", "object": kind, "created": int(record.wall), "model": record.selected_model}
