"""A language model behind OpenAI-compatible endpoints, handed whole conversations, and texts to go on with or to embed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from rheostat.backends.asking import Asking
from rheostat.backends.chat_prompt import messages
from rheostat.backends.chat_relay import relayed
from rheostat.backends.continuing import (
    Continues,
    asking_chances,
    completion_pages,
    continued,
    continued_fields,
    prompted,
    seam,
    templated,
)
from rheostat.backends.endpoint import EndpointSettings
from rheostat.backends.openai import answer_each
from rheostat.backends.price import Price
from rheostat.backends.token_confidence import TokenConfidence
from rheostat.backends.upstream import LARGEST, Upstream, encode
from rheostat.errors import ConfigError, ModelError, Problem
from rheostat.pool.backend import Piece, RemoteBackend, Reply, Row
from rheostat.resilience.stream import StreamLimits
from rheostat.types import Chat, Prediction
from rheostat.types.begun import Begun
from rheostat.types.chat import Kind

_PARALLEL = 8


class ChatModel(EndpointSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="chat"):
    """`model` at `base_url` (`.../v1`) answers conversations (`task: chat`): it gets each as the client sent it, with its
    own name as `model`, and its completion goes back as it came.

    With `confidence` a cascade can tell how sure it was: token chances are asked for (`mean_logprob`: the geometric mean of
    the tokens' probabilities; `margin`: the mean distance of the two likeliest tokens; `entropy`: how little the chances of
    the five likeliest are spread) and taken out again where the client did not want them; an answer that is streamed has no
    confidence. `extra_body` is added to every request. After a 429 or
    5xx with Retry-After the model is left alone for that time, at most `max_retry_after`. `on_status` says what a status
    means, by its kind of failure, where the usual table does not fit.

    `serves` lists what its server answers: conversations (`chat`), texts to go on with (`completion`, at `/completions`),
    the vectors of texts (`embedding`, at `/embeddings`). For what it does not serve it is passed over.

    `continues` says how its server goes on with an answer that has begun, for answers that several models write: `prefill`
    (a last message of the assistant is its beginning: llama.cpp), `final_message` (by `continue_final_message`: vLLM,
    SGLang), `prefix` (that message says `prefix`: DeepSeek, Mistral), or `completions` (`/apply-template`, then
    `/completions`: llama.cpp, where the template takes no such message). Without it the model goes on from no text.

    With `price` a call costs what its completion tells of its tokens; one that tells nothing, or fails, costs `cost`, and
    that is what a request's `max_cost` is held to before a call. For a stream the usage is asked for.
    """

    confidence: TokenConfidence | None = None
    continues: Continues = ""
    price: Price | None = None
    serves: Annotated[tuple[Kind, ...], Meta(min_length=1)] = ("chat",)
    stream: StreamLimits | None = StreamLimits()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What its server answers."""
        return self.serves

    def open(self, base: str) -> RemoteBackend:  # noqa: ARG002
        """Prepare the endpoint; nothing is sent yet.

        Raises:
            ConfigError: the URL cannot be used, or labels are given.
        """
        if self.labels:
            told = "a chat model's answers are texts: remove `labels`, or use `backend: openai`, which chooses a label"
            raise ConfigError([Problem("labels", None, told)])
        return ChatCompleter(self, self.upstream())

    def charge(self, said: Prediction | None, tries: int) -> float:
        """Return the price of the answer's tokens, where they are told, and `cost` for every other call."""
        known = self.price.of(said.output) if self.price is not None and said is not None else None
        return self.cost * tries if known is None else self.cost * (tries - 1) + known

    def __repr__(self) -> str:
        return f"ChatModel(model={self.model!r})"


class ChatCompleter:
    """Asks once a row; a text is asked as the only message of a conversation."""

    def __init__(self, settings: ChatModel, upstream: Upstream) -> None:
        self.labels: tuple[str, ...] | None = None
        self._upstream = upstream
        self._asking = Asking(upstream, settings.base_url, settings.serves, settings.confidence)
        self._priced = settings.price is not None
        self._fixed = {name: Raw(encode(value)) for name, value in settings.extra_body.items()}
        self._model = Raw(encode(settings.model))
        self._name = settings.model
        self._continues = settings.continues
        self._pages = completion_pages(settings.base_url, upstream) if settings.continues == "completions" else None

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row within `timeout_s` seconds; each fails alone."""
        return await answer_each(self._one, rows, timeout_s, _PARALLEL)

    async def astream(self, row: Row, timeout_s: float) -> AsyncIterator[Piece]:
        """Yield the answer to one row as it comes; of one that has begun, what is added to it."""
        if isinstance(row, Begun):
            async for piece in self._continued(row, timeout_s):
                yield piece
            return
        fields = self._fields(row)
        fields["stream"] = _TRUE
        choices, usage = 1, False
        if isinstance(row, Chat):
            if "stream_options" in row.fields:
                fields["stream_options"] = row.fields["stream_options"]
                options = row.asks("stream_options")
                usage = isinstance(options, dict) and options.get("include_usage") is True
            if self._priced and not usage:
                fields["stream_options"] = _USAGE
            choices = row.choices
        try:
            async with aclosing(self._asking.page(row).stream(msgspec.json.encode(fields), timeout_s)) as data:
                if (await anext(data)).startswith(b"application/json"):
                    yield Piece(finish="whole", reply=self._asking.read(row, await _all(data)))
                    return
                read = self._asking.reader(row)
                async with aclosing(relayed(data, read, choices, usage=usage, counted=self._priced)) as found:
                    async for piece in found:
                        yield piece
        except ModelError as error:
            hidden = self._upstream.hide(error)
            raise hidden if isinstance(hidden, ModelError) else error from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()

    async def _continued(self, row: Begun, timeout_s: float) -> AsyncGenerator[Piece]:
        told, tail = seam(row.said)
        if told and not self._continues:
            raise ModelError("misconfigured", "it has to go on from a text: set `continues` to how its server does that")
        fields = {**self._fields(row), "stream": _TRUE, "stream_options": _USAGE}
        page = self._upstream
        try:
            if told and self._pages is not None:
                template, page = self._pages
                fields = prompted(fields, await template.ask(templated(fields), timeout_s), told)
            else:
                fields = continued_fields(fields, told, self._continues)
            fields = asking_chances(fields, row.chances)
            async with aclosing(page.stream(msgspec.json.encode(fields), timeout_s)) as data:
                await anext(data)
                async with aclosing(continued(data, row, tail, self._name)) as found:
                    async for piece in found:
                        yield piece
        except ModelError as error:
            hidden = self._upstream.hide(error)
            raise hidden if isinstance(hidden, ModelError) else error from None

    async def _one(self, row: Row, timeout_s: float) -> Reply:
        if isinstance(row, Begun):
            async with aclosing(self._continued(row, timeout_s)) as pieces:
                return next(reply for piece in [piece async for piece in pieces] if (reply := piece.reply) is not None)
        fields = self._fields(row)
        self._asking.with_chances(row, fields)
        _, content = await self._asking.page(row).exchange(msgspec.json.encode(fields), timeout_s)
        return self._upstream.hide(self._asking.read(row, content))

    def _fields(self, row: Row) -> dict[str, Raw]:
        fields = dict(row.fields) if isinstance(row, Chat) else {"messages": Raw(encode(messages("", row)))}
        fields.pop("stream", None)
        fields.pop("stream_options", None)
        fields["model"] = self._model
        fields.update(self._fixed)
        return fields


_TRUE = Raw(b"true")
_USAGE = Raw(b'{"include_usage":true}')


async def _all(data: AsyncIterator[bytes]) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in data:
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise ModelError("bad_output", f"answered more than {LARGEST} bytes")
    return b"".join(parts)
