"""A streamed completion on its way through: every chunk goes on as it came, and none before the answer has begun."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from rheostat.backends.chat_stream import MARKER, Rest, told_error, truncated
from rheostat.backends.chat_whole import Whole
from rheostat.backends.sse import Event, SseParser
from rheostat.errors import ModelError
from rheostat.pool.backend import Piece, Reply

USAGE_GRACE_S = 2.0
"""How long the chunk with the usage is waited for after the last finish reason, where the client asked for it."""
_NULL = b"null"  # llama.cpp begins the completions of several texts with it
_LARGEST_ANSWER = 8 << 20


async def relayed(
    body: AsyncGenerator[bytes],
    read: Callable[[bytes], Reply],
    choices: int = 1,
    *,
    usage: bool = False,
    counted: bool = False,
) -> AsyncGenerator[Piece]:
    """Yield the pieces of a stream, each with the chunks that came together; the last one says how it finished.

    Chunks that say nothing yet (a role, keep-alives) wait for the first that does, so that a model which fails before it, or
    in the same moment, leaves no trace. A stream is complete when each of its `choices` has a finish reason, or with the end
    marker, unless some of them, or a call of a tool, then have none.

    Args:
        body: the bytes of the stream; closed at the end.
        read: turns the whole completion into a reply.
        usage: whether the client wants a chunk with the usage after the finish reasons.
        counted: whether one comes in any case, for ourselves.

    Raises:
        ModelError: `reset` for a stream that was cut short, bad_output, or what an error in it stands for.
    """
    parser, rest, whole, finished = SseParser(), Rest(body), Whole(), _Finished(choices)
    texts: list[str] = []
    frames: list[bytes] = []
    size = 0
    begun = spoken = marked = ended = False
    awaited = usage or counted
    fault: ModelError | None = None
    async with aclosing(body):
        while not ended:
            data = await (rest.next(USAGE_GRACE_S if awaited else 0.0) if finished.all else anext(body, None))
            ended = not data
            for event in parser.feed(data) if data else parser.end():
                said = event.data.strip()
                if not said or (said == _NULL and not begun):
                    continue
                if said == MARKER:
                    marked, ended = not whole.is_half, True
                    break
                try:
                    chunk = _chunk(event)
                except ModelError as error:
                    if not finished.all:  # else it is complete already, and what follows cannot change it
                        fault = error if data else truncated(size, "bytes")
                    ended = True
                    break
                if finished.all and chunk.get("choices"):
                    continue
                told = chunk.get("usage") is not None
                awaited = awaited and not told
                size += len(event.data)
                if size > _LARGEST_ANSWER:
                    raise ModelError("bad_output", f"a streamed answer of more than {_LARGEST_ANSWER} bytes")
                whole.add(chunk)
                finished.note(chunk)
                if told and not usage and not chunk.get("choices"):
                    continue
                text, speaks = _said(chunk)
                begun = begun or speaks
                texts.append(text)
                frames.append(framed(event.data))
            if begun and frames and (spoken or fault is None):
                spoken = True
                yield Piece("".join(texts), chunk=b"".join(frames), complete=finished.all)
                texts, frames = [], []
            if fault is not None:
                raise fault
    if not (finished.all or marked):
        raise truncated(size, "bytes")
    reply = read(whole.body())
    if isinstance(reply, ModelError):
        raise reply
    yield Piece(finish=finished.reason, reply=reply, chunk=b"".join(frames))


def framed(data: bytes) -> bytes:
    """Return an event's data as it is sent."""
    if b"\n" not in data:
        return b"data: %b\n\n" % data
    return b"".join(b"data: %b\n" % line for line in data.split(b"\n")) + b"\n"


class _Finished:
    """Which choices have a finish reason."""

    def __init__(self, wanted: int) -> None:
        self.reason = "end"
        self.all = False
        self._wanted = wanted
        self._done: set[Any] = set()

    def note(self, chunk: Mapping[str, Any]) -> None:
        """Take note of a chunk."""
        for choice in chunk.get("choices") or ():
            if isinstance(choice, Mapping) and (reason := choice.get("finish_reason")):
                self._done.add(str(choice.get("index", 0)))
                self.reason = str(reason)
                self.all = len(self._done) >= self._wanted


def _chunk(event: Event) -> Mapping[str, Any]:
    try:
        said = msgspec.json.decode(event.data)
    except (msgspec.DecodeError, RecursionError):
        said = None
    if not isinstance(said, Mapping) or not isinstance(said.get("choices") or [], list):
        raise ModelError("bad_output", f"expected a chunk of a completion, got {len(event.data)} other bytes")
    if event.name == b"error" or said.get("error") is not None:
        raise told_error(said)
    return said


def _said(chunk: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the text that a chunk adds to the first choice, and whether it says anything at all."""
    text, speaks = "", False
    for choice in chunk.get("choices") or ():
        if not isinstance(choice, Mapping):
            continue
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            delta = {"content": choice.get("text")}
        speaks = speaks or any(_speaks(value) for name, value in delta.items() if name != "role")
        if choice.get("index", 0) == 0 and isinstance(said := delta.get("content"), str):
            text = said
    return text, speaks


def _speaks(value: Any) -> bool:
    return bool(value.strip() if isinstance(value, str) else value)
