"""A streamed answer in Anthropic's form, made of the chunks of a chat completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rheostat.backends.sse import SseParser
from rheostat.engine.engine import Served
from rheostat.gateway.answer import encode
from rheostat.gateway.chat_answer import chunks_of, completion_of
from rheostat.gateway.messages_answer import calls_of, ending, is_object, usage_of
from rheostat.pool.backend import Piece
from rheostat.types.text import well_formed

_LARGEST = 16 << 20  # a whole answer may come in one event; models are held to less
_DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}


class MessageEvents:
    """One answer: `message_start`, its content block by block, `message_delta` with the usage, `message_stop`.

    A block ends when the next begins. A call of a tool whose arguments are not whole then stays open to the end, as some
    servers write several calls at a time.
    """

    def __init__(self, known_id: str, model: str, stops: Sequence[str]) -> None:
        self._id = f"msg_{known_id}"
        self._model = model
        self._stops = stops
        self._out: list[bytes] = []
        self._begun = False
        self._blocks = 0
        self._open: tuple[str, int] | None = None  # kind and number of the block that is written
        self._calls: dict[Any, tuple[int, list[str]]] = {}  # by the server's index: block, and arguments so far
        self._left: set[int] = set()  # blocks of calls that are not closed
        self._choice: dict[str, Any] = {}
        self._refused = False
        self._usage: Any = None

    def piece(self, piece: Piece) -> bytes:
        """Return the events of a piece."""
        if piece.chunk:
            self._frames(piece.chunk)
        elif piece.text:
            self._start({})
            self._say("text", well_formed(piece.text))
        return self._taken()

    def end(self) -> bytes:
        """Return the events that end the answer."""
        self._start({})
        self._close()
        for block in sorted(self._left):
            self._event("content_block_stop", index=block)
        self._left.clear()
        told = ending(self._choice, self._stops, called=bool(self._calls), refused=self._refused)
        self._event("message_delta", delta=told, usage=usage_of(self._usage))
        self._event("message_stop")
        return self._taken()

    def whole(self, served: Served) -> bytes:
        """Return all events of an answer that came whole."""
        self._frames(chunks_of(completion_of(served), usage=True))
        return self._taken() + self.end()

    def _frames(self, frames: bytes) -> None:
        for event in SseParser(_LARGEST).feed(frames):
            chunk = msgspec.json.decode(event.data)
            if isinstance(chunk, Mapping):
                self._take(chunk)

    def _take(self, chunk: Mapping[str, Any]) -> None:
        self._start(chunk)
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            if not isinstance(choice, Mapping) or choice.get("index", 0) != 0:
                continue
            self._choice |= {name: value for name, value in choice.items() if name != "delta" and value is not None}
            if isinstance(delta := choice.get("delta"), Mapping):
                self._delta(delta)

    def _delta(self, delta: Mapping[str, Any]) -> None:
        for kind, name in (
            ("thinking", "reasoning_content"),
            ("thinking", "reasoning"),
            ("text", "content"),
            ("text", "refusal"),
        ):
            text = delta.get(name)
            if isinstance(text, str) and text:
                self._refused = self._refused or name == "refusal"
                self._say(kind, text)
        for call in calls_of(delta) if delta.get("tool_calls") or delta.get("function_call") else ():
            if call["index"] not in self._calls:
                self._begin("tool_use", {"id": call["id"], "name": call["name"], "input": {}})
                self._calls[call["index"]] = (self._blocks - 1, [])
                self._left.add(self._blocks - 1)
            block, so_far = self._calls[call["index"]]
            if block in self._left and call["arguments"]:
                so_far.append(call["arguments"])
                self._event("content_block_delta", index=block, delta=_delta_of("tool_use", call["arguments"]))

    def _say(self, kind: str, text: str) -> None:
        if self._open is None or self._open[0] != kind:
            self._begin(kind, {"text": ""} if kind == "text" else {"thinking": "", "signature": ""})
        assert self._open is not None
        self._event("content_block_delta", index=self._open[1], delta=_delta_of(kind, text))

    def _begin(self, kind: str, block: Mapping[str, Any]) -> None:
        self._close()
        self._open = (kind, self._blocks)
        self._blocks += 1
        self._event("content_block_start", index=self._open[1], content_block={"type": kind, **block})

    def _close(self) -> None:
        """End the block that is written; a call only when its arguments are whole."""
        if self._open is None:
            return
        kind, block = self._open
        self._open = None
        if kind == "tool_use":
            if not any(place == block and is_object("".join(said)) for place, said in self._calls.values()):
                return
            self._left.discard(block)
        self._event("content_block_stop", index=block)

    def _start(self, chunk: Mapping[str, Any]) -> None:
        if self._begun:
            return
        self._begun = True
        message: dict[str, Any] = {
            "id": chunk.get("id") or self._id, "type": "message", "role": "assistant",
            "model": chunk.get("model") or self._model, "content": [], "stop_reason": None, "stop_sequence": None,
            "usage": usage_of(None),
        }  # fmt: skip
        self._event("message_start", message=message)

    def _event(self, kind: str, **fields: Any) -> None:
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), encode({"type": kind, **fields})))

    def _taken(self) -> bytes:
        taken, self._out = b"".join(self._out), []
        return taken


def _delta_of(kind: str, text: str) -> dict[str, str]:
    name, field = _DELTAS[kind]
    return {"type": name, field: text}
