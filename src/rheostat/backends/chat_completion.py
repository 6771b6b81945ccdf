"""A chat completion: what decisions need of it; the rest goes back as it came."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from rheostat.backends.chat_stream import told_error
from rheostat.backends.token_confidence import TokenConfidence, confidence_of
from rheostat.errors import ModelError
from rheostat.pool.backend import Reply
from rheostat.types import Prediction


class _Message(Struct):
    content: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(Struct):
    message: _Message | None = None
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


class _Completion(Struct):
    choices: list[_Choice] = []
    error: Any = None


_decode = msgspec.json.Decoder(_Completion).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_choices = msgspec.json.Decoder(list[dict[str, Raw]]).decode


def read_completion(body: bytes, confidence: TokenConfidence | None = None) -> Reply:
    """Return the first choice's text as label, or `tool_calls` where it has none but calls tools, and the whole as output.

    What is wrong is told without anything of the answer.
    """
    try:
        said = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return ModelError("bad_output", f"expected a chat completion: {type(error).__name__}")
    if said.error is not None:
        return told_error({"error": said.error})
    if not said.choices or (message := said.choices[0].message) is None:
        return ModelError("bad_output", "expected a chat completion with a choice, got one without")
    choice = said.choices[0]
    label = _label(message, choice.finish_reason)
    if not label:
        return ModelError("bad_output", "the completion is complete and has neither text nor calls of tools")
    tokens = (choice.logprobs or {}).get("content") if confidence is not None else None
    sure = confidence_of(tokens, confidence) if confidence is not None and isinstance(tokens, list) else None
    return Prediction(label, sure, None, body)


def without_chances(body: bytes, wanted: int | None) -> bytes:
    """Return the completion with no token chances (None), or with at most `wanted` alternatives of each token; every other
    value stays as it was written."""
    fields = _fields(body)
    choices = _choices(fields["choices"])
    for choice in choices:
        if wanted is None:
            choice.pop("logprobs", None)
        elif "logprobs" in choice:
            choice["logprobs"] = Raw(msgspec.json.encode(_cut(msgspec.json.decode(choice["logprobs"]), wanted)))
    return msgspec.json.encode({**fields, "choices": choices})


def _cut(logprobs: Any, wanted: int) -> Any:
    for name, tokens in logprobs.items() if isinstance(logprobs, dict) else ():
        for place, token in enumerate(tokens if isinstance(tokens, list) else ()):
            if isinstance(token, dict) and name == "top_logprobs":  # of a text's completion: {token: chance}
                tokens[place] = dict(sorted(token.items(), key=lambda each: -each[1])[:wanted])
            elif isinstance(token, dict) and isinstance(listed := token.get("top_logprobs"), list):
                token["top_logprobs"] = listed[:wanted]
    return logprobs


def _label(message: _Message, finish: str | None) -> str:
    content = message.content
    if isinstance(content, str) and content.strip():
        return content
    if message.tool_calls or message.function_call:
        return "tool_calls"
    if isinstance(message.refusal, str) and message.refusal.strip():
        return message.refusal
    return finish if finish in ("length", "content_filter") else ""  # nothing is left to say, and that is the answer
