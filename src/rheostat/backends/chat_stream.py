"""A chat completion that comes piece by piece: its chunks, its end, and the errors told in it.

A stream is complete with a finish reason or with the end marker `[DONE]`; one that ends without either is truncated.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from rheostat.backends.reply import bad_output
from rheostat.backends.sse import Event, SseParser
from rheostat.backends.upstream import failure_of
from rheostat.errors import ModelError
from rheostat.pool.backend import Piece, Reply

MARKER = b"[DONE]"
_END_GRACE_S = 0.05  # what follows a finish reason is waited for so long, so that the connection can be used again
_LARGEST_ANSWER = 8 << 20
_STATUSES = {
    "rate_limit_error": 429, "rate_limit_exceeded": 429, "insufficient_quota": 429, "invalid_request_error": 400,
    "context_length_exceeded": 400, "exceed_context_size_error": 400, "authentication_error": 401,
    "invalid_api_key": 401, "permission_error": 403, "not_found_error": 404, "timeout_error": 408,
}  # fmt: skip
"""What an error in a stream stands for, by its `code` or `type`; anything else is as a status 503."""


class Chunk(Struct, frozen=True):
    """What one event says: more text, chances of its tokens, that the answer is complete, that nothing more comes."""

    text: str = ""
    finish: str | None = None
    tokens: tuple[Any, ...] = ()
    end: bool = False


def read_chunk(event: Event) -> Chunk:
    """Read one event.

    Raises:
        ModelError: it tells an error (as `failure_of` its status), or it is no chunk of a chat completion.
    """
    if event.data.strip() == MARKER:
        return Chunk(end=True)
    try:
        said = json.loads(event.data.decode())
    except (ValueError, RecursionError):
        raise bad_output("a chunk of a chat completion", event.data.decode("utf-8", "replace")) from None
    if not isinstance(said, Mapping):
        raise bad_output("a chunk of a chat completion", said)
    if event.name == b"error":
        raise told_error(said)
    return chunk_of(said)


def chunk_of(said: Mapping[str, Any]) -> Chunk:
    """Read one chunk.

    Raises:
        ModelError: it tells an error (as `failure_of` its status).
    """
    if said.get("error") is not None:
        raise told_error(said)
    choices = said.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, Mapping) or choice.get("index", 0) != 0:
        return Chunk()
    delta = choice.get("delta")
    text = delta.get("content") if isinstance(delta, Mapping) else choice.get("text")
    finish = choice.get("finish_reason")
    logprobs = choice.get("logprobs")
    tokens = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    return Chunk(
        text if isinstance(text, str) else "",
        str(finish) if finish else None,
        tuple(tokens) if isinstance(tokens, list) else (),
    )


def told_error(said: Mapping[str, Any]) -> ModelError:
    """Say what an error in a stream means: that of the status in it, else of its code or type, else of a 503."""
    error = said.get("error", said)
    fields = error if isinstance(error, Mapping) else {"message": error}
    status = 503
    for name in ("status", "status_code", "code", "type"):
        value = fields.get(name)
        if isinstance(value, str):
            value = _STATUSES.get(value, int(value) if value.isascii() and value.isdigit() and len(value) == 3 else None)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            status = value
            break
    content = json.dumps(said).encode()
    return failure_of(status, content, f"an error in the stream: {str(fields.get('message', said))[:300]}", None)


async def pieces(body: AsyncGenerator[bytes], read: Callable[[Any], Reply]) -> AsyncGenerator[Piece]:
    """Yield the pieces of a chat completion's stream; the last one says how it finished and what was answered.

    Args:
        body: the bytes of the stream; closed at the end.
        read: turns the completion, put together, into a reply, as for one that came whole.

    Raises:
        ModelError: `reset` for a stream that was cut short, bad_output, or what an error in it stands for.
    """
    parser, rest = SseParser(), Rest(body)
    texts: list[str] = []
    tokens: list[Any] = []
    size = 0
    finish: str | None = None
    async with aclosing(body):
        while True:
            data = await (rest.next() if finish else anext(body, None))
            ended = not data
            for event in parser.feed(data) if data else parser.end():
                try:
                    chunk = read_chunk(event)
                except ModelError:
                    if finish:  # complete already; what follows cannot change it
                        ended = True
                        break
                    if not data and event.data.strip():
                        raise truncated(size) from None
                    raise
                if chunk.text and not finish:
                    size += len(chunk.text)
                    if size > _LARGEST_ANSWER:
                        raise ModelError("bad_output", f"a streamed answer of more than {_LARGEST_ANSWER} characters")
                    texts.append(chunk.text)
                    tokens.extend(chunk.tokens)
                    yield Piece(chunk.text)
                finish = finish or chunk.finish
                if chunk.end:
                    finish, ended = finish or "end", True
                    break
            if ended:
                break
    if not finish:
        raise truncated(size)
    choice = {"message": {"content": "".join(texts)}, "logprobs": {"content": tokens} if tokens else None}
    yield Piece(finish=finish, reply=read({"choices": [choice]}))


def truncated(size: int, unit: str = "characters") -> ModelError:
    """Say that a stream ended without an end."""
    return ModelError("reset", f"truncated: the stream ended after {size} {unit}, without a finish reason or end marker")


class Rest:
    """What follows the end of an answer: it is waited for only a while, as the answer is complete whatever becomes of it."""

    def __init__(self, body: AsyncGenerator[bytes]) -> None:
        self._body = body
        self._since: float | None = None

    async def next(self, more_s: float = 0.0) -> bytes | None:
        """Return what comes within a moment after the first call, or within `more_s` seconds longer; None: nothing."""
        if self._since is None:
            self._since = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(self._since + _END_GRACE_S + more_s):
                return await anext(self._body, None)
        except (TimeoutError, ModelError):
            return None
