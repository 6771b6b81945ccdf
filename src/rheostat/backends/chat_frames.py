"""The chunks and the completion of an answer that is written here, in the form of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import uuid_utils

from rheostat.clock import SystemClock
from rheostat.pool.backend import Row
from rheostat.types import Chat


class ChatFrames:
    """Makes the chunks of one answer to `row`, as server-sent events, and what they are together; `model` is its name."""

    def __init__(self, row: Row, model: str) -> None:
        options = row.asks("stream_options") if isinstance(row, Chat) else None
        self._usage = isinstance(options, dict) and options.get("include_usage") is True
        self._head = {"id": f"chatcmpl-{uuid_utils.uuid7()}", "created": int(SystemClock().wall()), "model": model}
        self._begun = False

    def text(self, text: str) -> bytes:
        """Return the chunk of the next text."""
        delta = {"content": text} if self._begun else {"role": "assistant", "content": text}
        self._begun = True
        return self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])

    def end(self, finish: str, usage: Mapping[str, Any]) -> bytes:
        """Return the chunk that finishes the answer, and that of the usage where the client wants one."""
        last = self._chunk([{"index": 0, "delta": {}, "logprobs": None, "finish_reason": finish}])
        return last + self._chunk([], usage=usage) if self._usage else last

    def whole(self, text: str, finish: str, usage: Mapping[str, Any]) -> bytes:
        """Return the completion."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return msgspec.json.encode({**self._head, "object": "chat.completion", "choices": [choice], "usage": usage})

    def _chunk(self, choices: list[Mapping[str, Any]], **more: Any) -> bytes:
        said = {**self._head, "object": "chat.completion.chunk", "choices": choices, **more}
        return b"data: %b\n\n" % msgspec.json.encode(said)
