"""How servers say that a conversation is too long for their model: there is a code for it, which most of them do not use."""

from __future__ import annotations

import re
from typing import Any

import msgspec

CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_READ = 4000
"""Bytes of an answer that is no JSON, and characters of a message, that are looked at."""
_WORDS = re.compile(
    r"(?:maximum|max|available) (?:allowed )?(?:context|prompt|input|sequence) (?:length|size|window)"  # vLLM, OpenAI, xAI
    r"|(?:exceeds?|longer than|larger than|over|overflows?) (?:the |its |this )?(?:model'?s? )?(?:maximum |available )?"
    r"context (?:length|size|window)"  # SGLang, Ollama, llama-cpp-python
    r"|(?:prompt|input|request)(?: text)? is too long"  # Anthropic, Bedrock
    r"|too large for model with \d+ maximum context"  # Mistral
    r"|token count \(?\d*\)? ?exceeds the maximum number of tokens"  # Gemini
    r"|tokens in the prompt cannot exceed"  # Cohere
    r"|inputs`? tokens \+ `?max_new_tokens`? must be"  # TGI, Together
    r"|`?inputs`? must have less than \d+ tokens"  # TGI
    r"|reduce the length of (?:the |your )?(?:messages|prompt|input)",  # Groq, OpenAI
    re.IGNORECASE,
)


def says_too_long(content: bytes) -> bool:
    """Return whether a refusal says, in a code or in words, that the context is too long.

    Read are `code`, `type` and `message` (also `detail`) of the body and of its `error`; without JSON, its beginning.
    """
    try:
        body: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _WORDS.search(content[:_READ].decode("utf-8", "replace")) is not None
    if isinstance(body, list) and body:  # Gemini puts its error into a list
        body = body[0]
    if not isinstance(body, dict):
        return isinstance(body, str) and _WORDS.search(body[:_READ]) is not None
    error = body.get("error")
    if isinstance(error, str):
        error = {"message": error}
    for place in (body, error) if isinstance(error, dict) else (body,):
        if not CODES.isdisjoint(value for key in ("code", "type") if isinstance(value := place.get(key), str)):
            return True
        for key in ("message", "detail"):
            told = place.get(key)
            if isinstance(told, str) and _WORDS.search(told[:_READ]):
                return True
    return False
