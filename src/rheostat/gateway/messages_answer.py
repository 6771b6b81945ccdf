"""What `POST /v1/messages` gives: messages, events and errors in Anthropic's form, made of completions in OpenAI's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rheostat.errors import RheostatError
from rheostat.gateway.answer import encode, error_of

_STOPS = {
    "stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use",
    "content_filter": "refusal",
}  # fmt: skip
_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip
_THOUGHTS = ("reasoning_content", "reasoning")
"""Where servers say what a model thought before it spoke."""
NO_CALL = "INVALID_JSON"
"""The name under which a call's arguments stand that are no JSON object, such as those of a call that was cut short."""


class MessagesErrorInfo(Struct, frozen=True):
    """What went wrong; `type` is Anthropic's for the status."""

    type: str
    message: str


class MessagesError(Struct, frozen=True):
    """Any request to `/v1/messages` that was not answered."""

    type: str
    error: MessagesErrorInfo
    request_id: str


def messages_error(error: Exception, known_id: str) -> tuple[MessagesError, int]:
    """Return the body for an error, without anything that is only for operators, and its status."""
    said = error_of(error, known_id).error
    kind = _TYPES.get(said.code, "api_error" if said.code >= 500 else "invalid_request_error")
    return MessagesError("error", MessagesErrorInfo(kind, said.message), known_id), said.code


def message_of(completion: bytes, stops: Sequence[str]) -> bytes:
    """Return the message that a completion is: its first choice's thoughts, text and calls of tools.

    Args:
        stops: the stop sequences of the request; which one it was is told where the server tells it.

    Raises:
        RheostatError: there is no choice.
    """
    whole: dict[str, Any] = msgspec.json.decode(completion)
    choice = next((each for each in whole.get("choices") or () if isinstance(each, Mapping)), None)
    if choice is None:
        raise RheostatError("a completion without a choice")
    said = choice.get("message") or {}
    content: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": text, "signature": ""} for text in [_thought(said)] if text
    ]
    content += [{"type": "text", "text": text} for text in _texts(said)]
    calls = calls_of(said)
    content += [
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": input_of(call["arguments"])} for call in calls
    ]
    end = ending(choice, stops, called=bool(calls), refused=bool(said.get("refusal")))
    return encode({
        "id": whole.get("id"), "type": "message", "role": "assistant", "model": whole.get("model"), "content": content,
        **end, "usage": usage_of(whole.get("usage")),
    })  # fmt: skip


def ending(choice: Mapping[str, Any], stops: Sequence[str], *, called: bool, refused: bool) -> dict[str, Any]:
    """Return why an answer ended, and the stop sequence that ended it where the server tells it (vLLM's and SGLang's do)."""
    finish = choice.get("finish_reason")
    told = next((word for name in ("stop_reason", "matched_stop") if (word := choice.get(name)) in stops and word), None)
    reason = _STOPS.get(finish, finish) if isinstance(finish, str) else "end_turn"
    if reason == "end_turn":
        reason = "tool_use" if called else "refusal" if refused else "stop_sequence" if told else reason
    return {"stop_reason": reason, "stop_sequence": told if reason == "stop_sequence" else None}


def usage_of(told: Any) -> dict[str, Any]:
    """Return the tokens that were read anew, those that were known from earlier, and those that were written; 0 where the
    model does not tell them."""
    usage = told if isinstance(told, Mapping) else {}
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else 0
    read = _count(usage.get("prompt_tokens"))
    return {
        "input_tokens": max(0, read - cached), "cache_read_input_tokens": min(read, cached),
        "output_tokens": _count(usage.get("completion_tokens")),
    }  # fmt: skip


def calls_of(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of tools in a message, or those of which a delta tells, each with its `index`."""
    listed = said.get("tool_calls")
    calls = [call for call in listed if isinstance(call, Mapping)] if isinstance(listed, list) else []
    if not calls and isinstance(said.get("function_call"), Mapping):
        calls = [{"function": said["function_call"]}]
    found = []
    for place, call in enumerate(calls):
        function = call.get("function")
        function = function if isinstance(function, Mapping) else {}
        arguments = function.get("arguments")
        found.append({
            "index": call.get("index", place), "id": call.get("id") or f"toolu_{place}", "name": function.get("name") or "",
            "arguments": arguments if isinstance(arguments, str) else encode(arguments or {}).decode(),
        })  # fmt: skip
    return found


def input_of(arguments: str) -> Any:
    """Return the arguments of a call as they were written; what is no JSON object stands under a name of its own."""
    if not arguments.strip():
        return {}
    return Raw(arguments.encode()) if is_object(arguments) else {NO_CALL: arguments}


def is_object(arguments: str) -> bool:
    """Return whether this is a whole JSON object."""
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def _thought(said: Mapping[str, Any]) -> str:
    return next((text for name in _THOUGHTS if isinstance(text := said.get(name), str) and text), "")


def _texts(said: Mapping[str, Any]) -> list[str]:
    content = said.get("content")
    if isinstance(content, list):
        return [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    return [text for text in (content, said.get("refusal")) if isinstance(text, str) and text]


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
