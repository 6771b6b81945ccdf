"""A language model behind an OpenAI-compatible chat endpoint, asked as a classifier."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from rheostat.backends.chat_prompt import instruction, messages
from rheostat.backends.chat_stream import pieces
from rheostat.backends.endpoint import EndpointSettings
from rheostat.backends.label_text import match_label, scores_from_logprobs
from rheostat.backends.labels import settle_labels
from rheostat.backends.reply import bad_output
from rheostat.backends.secrets import masked_url
from rheostat.backends.upstream import LARGEST, Upstream, encode
from rheostat.errors import ConfigError, ModelError, Problem
from rheostat.pool.backend import Piece, RemoteBackend, Reply, Row
from rheostat.types import Prediction


class OpenAIModel(EndpointSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="openai"):
    """`model` at `base_url` (`.../v1`) chooses one of `labels` for each row; `prompt` replaces the system prompt.

    With `logprobs: true` the confidence is the label's share of the probability of all labels
    (`scores_from_logprobs`); without, or where the endpoint sends none, there is no confidence and a cascade goes on.
    `extra_body` is added to every request. `parallel` rows of one call are asked at a time. After a 429
    or 5xx with Retry-After the model is left alone for that time, at most `max_retry_after`. `on_status`
    says what a status means, by its kind of failure, where the usual table does not fit.
    """

    prompt: str = ""
    max_tokens: int = 16
    logprobs: bool = False
    top_logprobs: int = 20
    parallel: int = 8

    def open(self, base: str) -> RemoteBackend:  # noqa: ARG002
        """Prepare the endpoint; nothing is sent yet.

        Raises:
            ConfigError: no labels, or the URL or a number cannot be used.
        """
        problems = [] if self.labels else [Problem("labels", None, "expected the labels the model is to choose from")]
        for name, low, high in (("top_logprobs", 1, 20), ("max_tokens", 1, 4096), ("parallel", 1, 1024)):
            if not low <= (value := getattr(self, name)) <= high:
                problems.append(Problem(name, None, f"expected {low} to {high}, got {value}"))
        if problems:
            raise ConfigError(problems)
        labels = settle_labels(self.labels, None, self.model) or ()
        return ChatClassifier(self, self.upstream(), labels)

    def __repr__(self) -> str:
        return f"OpenAIModel(model={self.model!r}, base_url={masked_url(self.base_url)!r}, labels={self.labels!r})"


class ChatClassifier:
    """Asks once a row and reads the label out of the answer."""

    def __init__(self, settings: OpenAIModel, upstream: Upstream, labels: tuple[str, ...]) -> None:
        self.labels: tuple[str, ...] | None = labels
        self._names = labels
        self._upstream = upstream
        self._parallel = settings.parallel
        self._prompt = instruction(settings, labels)
        chances = {"logprobs": True, "top_logprobs": settings.top_logprobs} if settings.logprobs else {}
        fixed = {"model": settings.model, "temperature": 0, "max_tokens": settings.max_tokens}
        self._fixed = {**fixed, **chances, **settings.extra_body}

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row within `timeout_s` seconds; each fails alone."""
        return await answer_each(self._one, rows, timeout_s, self._parallel)

    def astream(self, row: Row, timeout_s: float) -> AsyncIterator[Piece]:
        """Yield the answer to one row as it comes."""
        body = encode({**self._asked(row), "stream": True})
        return streamed(self._upstream, body, timeout_s, lambda answer: read_chat(answer, self._names))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()

    async def _one(self, row: Row, timeout_s: float) -> Reply:
        answer = await self._upstream.ask(encode(self._asked(row)), timeout_s)
        return self._upstream.hide(read_chat(answer, self._names))

    def _asked(self, row: Row) -> dict[str, Any]:
        return {**self._fixed, "messages": messages(self._prompt, row)}


def read_chat(answer: Any, labels: Sequence[str]) -> Reply:
    """Return the label a chat completion names, with scores and confidence where it carries token chances."""
    text = chat_text(answer)
    if isinstance(text, ModelError):
        return text
    label = match_label(text, labels)
    if label is None:
        return bad_output(f"one of the labels {list(labels)}", text)
    logprobs = answer["choices"][0].get("logprobs")
    tokens = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    scores = scores_from_logprobs(tokens, labels) if isinstance(tokens, list) and tokens else None
    if scores is None:
        return Prediction(label, None, None, text)
    best = Prediction.from_scores(scores)
    return Prediction(best.label, min(1.0, scores[best.label]), scores, text)


def chat_text(answer: Any) -> str | ModelError:
    """Return the text of a chat completion's first choice, or why there is none."""
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        return bad_output("a chat completion with one choice", answer)
    message = choices[0].get("message")
    text = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(text, str) or not text.strip():
        return bad_output("a choice with text", choices[0])
    return text


async def streamed(upstream: Upstream, body: bytes, timeout_s: float, read: Callable[[Any], Reply]) -> AsyncIterator[Piece]:
    """Yield what an endpoint answers piece by piece; an answer that comes whole all the same is one piece.

    Raises:
        ModelError: it failed, without the secrets that it may have echoed.
    """
    try:
        async with aclosing(upstream.stream(body, timeout_s)) as data:
            if (await anext(data)).startswith(b"application/json"):
                yield await _whole(data, read)
                return
            async with aclosing(pieces(data, read)) as found:
                async for piece in found:
                    yield piece
    except ModelError as error:
        hidden = upstream.hide(error)
        raise hidden if isinstance(hidden, ModelError) else error from None


async def _whole(data: AsyncIterator[bytes], read: Callable[[Any], Reply]) -> Piece:
    content = b""
    async for part in data:
        content += part
        if len(content) > LARGEST:
            raise ModelError("bad_output", f"answered more than {LARGEST} bytes")
    try:
        reply = read(json.loads(content))
    except (ValueError, RecursionError):
        raise bad_output("JSON", content[:300]) from None
    if isinstance(reply, ModelError):
        raise reply
    return Piece(reply.label, "whole", reply)


async def answer_each(ask: Any, rows: Sequence[Row], timeout_s: float, parallel: int) -> list[Reply]:
    """Await `ask(row, seconds left)` for every row, at most `parallel` at a time; a ModelError takes its row's
    place."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    if len(rows) == 1:
        return [await _caught(ask, rows[0], timeout_s)]
    places = asyncio.Semaphore(parallel)

    async def one(row: Row) -> Reply:
        async with places:
            return await _caught(ask, row, deadline - loop.time())

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(row)) for row in rows]
    return [task.result() for task in tasks]


async def _caught(ask: Any, row: Row, timeout_s: float) -> Reply:
    try:
        reply: Reply = await ask(row, timeout_s)
    except ModelError as error:
        return error
    return reply
