"""Going on with an answer that has begun: how each kind of server is asked to, and how its stream is read at the seam."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Literal

import msgspec
from msgspec import Raw

from rheostat.backends.chat_stream import MARKER, Chunk, Rest, chunk_of, told_error, truncated
from rheostat.backends.endpoint import with_path
from rheostat.backends.reply import bad_output
from rheostat.backends.sse import Event, SseParser
from rheostat.backends.upstream import Upstream, encode
from rheostat.errors import ModelError
from rheostat.pool.backend import Piece, Reply
from rheostat.types import Prediction, tokens_of
from rheostat.types.begun import Begun

Continues = Literal["", "prefill", "final_message", "prefix", "completions"]
"""How a server goes on from a text: `prefill` (a last message of the assistant is taken as the beginning: llama.cpp),
`final_message` (the same with `continue_final_message`: vLLM, SGLang), `prefix` (the message says `prefix`: DeepSeek,
Mistral), `completions` (the prompt from `/apply-template`, then `/completions`: llama.cpp with models whose template takes
no such message); empty: it cannot."""
BORDER = "border"
"""The finish reason of an answer that its `until` ended."""
_LARGEST = 8 << 20
_USAGE_GRACE_S = 0.5


def seam(said: str) -> tuple[str, str]:
    """Return the beginning as a model is told it, and the white space at its end, which is not told.

    Tokens begin with a space and rarely end with one: after "The sea " a model would write a number, after "The sea" a word.
    """
    told = said.rstrip()
    return told, said[len(told) :]


def continued_fields(fields: Mapping[str, Raw], said: str, how: Continues) -> dict[str, Raw]:
    """Return the body of a chat completion that goes on from `said`."""
    if not said:
        return dict(fields)
    begins: dict[str, Any] = {"role": "assistant", "content": said}
    more: dict[str, Raw] = {}
    if how == "prefix":
        begins["prefix"] = True
    elif how == "final_message":
        more = {"continue_final_message": Raw(b"true"), "add_generation_prompt": Raw(b"false")}
    spoken = msgspec.json.decode(fields["messages"], type=list[Raw])
    return {**fields, **more, "messages": Raw(msgspec.json.encode([*spoken, Raw(msgspec.json.encode(begins))]))}


def completion_pages(base_url: str, upstream: Upstream) -> tuple[Upstream, Upstream]:
    """Return the pages that apply a server's chat template and that complete a prompt; the first stands beside `/v1`."""
    root, mark, query = base_url.partition("?")
    template = root.rstrip("/").removesuffix("/v1") + "/apply-template" + mark + query
    return upstream.at(template), upstream.at(with_path(base_url, "/completions"))


def templated(fields: Mapping[str, Raw]) -> bytes:
    """Return the body that asks for the prompt of a conversation."""
    return msgspec.json.encode(
        {name: fields[name] for name in ("messages", "tools", "chat_template_kwargs") if name in fields}
    )


def prompted(fields: Mapping[str, Raw], said: Any, begins: str) -> dict[str, Raw]:
    """Return the body of a text completion that goes on from `begins`.

    Raises:
        ModelError: `bad_output`: `said` is no prompt.
    """
    prompt = said.get("prompt") if isinstance(said, Mapping) else None
    if not isinstance(prompt, str):
        raise bad_output("a prompt from /apply-template", said)
    return {**{name: value for name, value in fields.items() if name != "messages"}, "prompt": Raw(encode(prompt + begins))}


def asking_chances(fields: Mapping[str, Raw], chances: int) -> dict[str, Raw]:
    """Return the body with token chances asked for, as its page takes that."""
    if not chances:
        return dict(fields)
    if "prompt" in fields:
        return {**fields, "logprobs": Raw(b"%d" % chances)}
    return {**fields, "logprobs": Raw(b"true"), "top_logprobs": Raw(b"%d" % chances)}


class Seam:
    """Takes what a model adds to an answer; `feed` returns what is new to whoever has the beginning.

    White space that the beginning ended with, and that the model writes again because it was not told of it, is left out.
    """

    def __init__(self, tail: str) -> None:
        self._tail = tail

    def feed(self, text: str) -> str:
        """Return the new part of the next text."""
        while self._tail and text and text[0] == self._tail[0]:
            self._tail, text = self._tail[1:], text[1:]
        if text:
            self._tail = ""
        return text


class Added:
    """What a model adds to an answer that has begun, until it ends or has to; `text` is what it added so far."""

    def __init__(self, row: Begun, tail: str) -> None:
        self.text = ""
        self.tokens = 0
        self.finish: str | None = None
        self.usage: Mapping[str, Any] | None = None
        self.chances: list[Any] = []
        self._row = row
        self._seam = Seam(tail)

    def take(self, chunk: Chunk) -> str:
        """Return what the chunk adds; after the last of it there is a `finish`."""
        new = self._seam.feed(chunk.text)
        self.tokens += max(len(chunk.tokens), bool(chunk.text))
        if self._row.chances:
            self.chances.extend(chunk.tokens)
        before = len(self.text)
        self.text += new
        self.finish = chunk.finish
        if new and self._row.until is not None and (kept := self._row.until(self.text)) is not None:
            self.text = self.text[: max(kept, before)]
            self.finish = BORDER
        return self.text[before:]

    def reply(self, model: str) -> Reply:
        """Return the whole answer as a completion, with the usage that was told, or what was counted."""
        whole = self._row.said + self.text
        if not whole:
            return bad_output("a text", "nothing")
        usage = self.usage or {
            "prompt_tokens": tokens_of(self._row) + tokens_of(self._row.said),
            "completion_tokens": self.tokens,
        }
        message = {"role": "assistant", "content": whole}
        told = {"content": self.chances} if self.chances else None
        choice = {"index": 0, "message": message, "logprobs": told, "finish_reason": self.finish}
        said = {"object": "chat.completion", "model": model, "choices": [choice], "usage": usage}
        return Prediction(whole, None, None, msgspec.json.encode(said))


async def continued(body: AsyncGenerator[bytes], row: Begun, tail: str, model: str) -> AsyncGenerator[Piece]:
    """Yield what a stream of chat or text completions adds to the answer, piece by piece, without its chunks.

    Args:
        body: the bytes of the stream; closed at the end, which for an answer that `until` ends stops the model.
        tail: the white space that the model was not told of.
        model: the name in the completion.

    Raises:
        ModelError: `reset` for a stream that was cut short, bad_output, or what an error in it stands for.
    """
    parser, added, rest = SseParser(), Added(row, tail), Rest(body)
    size = 0
    ended = marked = False
    async with aclosing(body):
        while not ended:
            data = await (rest.next(_USAGE_GRACE_S) if added.finish else anext(body, None))
            ended = not data
            for event in parser.feed(data) if data else parser.end():
                if not event.data.strip():
                    continue
                try:
                    chunk = _read(event, added)
                except ModelError:
                    if added.finish:  # complete already; what follows cannot change it
                        ended = True
                        break
                    if not data:
                        raise truncated(size) from None
                    raise
                if not added.finish and (new := added.take(chunk)):
                    size += len(new)
                    if size > _LARGEST:
                        raise ModelError("bad_output", f"a streamed answer of more than {_LARGEST} characters")
                    yield Piece(new)
                marked = marked or chunk.end
                if marked or added.finish == BORDER or (added.finish and added.usage):
                    ended = True
                    break
    if not (added.finish or marked):
        raise truncated(size)
    added.finish = added.finish or "stop"
    reply = added.reply(model)
    if isinstance(reply, ModelError):
        raise reply
    yield Piece(finish=added.finish, reply=reply)


def _read(event: Event, added: Added) -> Chunk:
    """Read one event, and note the usage in it."""
    if event.data.strip() == MARKER:
        return Chunk(end=True)
    try:
        said = msgspec.json.decode(event.data)
    except (msgspec.DecodeError, RecursionError):
        said = None
    if not isinstance(said, Mapping):
        raise bad_output("a chunk of a completion", event.data.decode("utf-8", "replace"))
    if event.name == b"error":
        raise told_error(said)
    if isinstance(usage := said.get("usage"), Mapping):
        added.usage = usage
    return chunk_of(said)
