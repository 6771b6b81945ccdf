"""What an opened GGUF model is asked for: the chances of labels, or a text."""

from __future__ import annotations

import asyncio
import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rheostat.backends.chat_frames import ChatFrames
from rheostat.backends.chat_prompt import instruction, messages
from rheostat.backends.chat_stream import chunk_of
from rheostat.backends.continuing import BORDER, Added, seam
from rheostat.backends.gguf_engine import Chunk, Engine, Turn
from rheostat.backends.label_tokens import TokenChances, label_scores
from rheostat.backends.reply import bad_output
from rheostat.backends.token_confidence import NEEDED, confidence_of
from rheostat.errors import ModelError
from rheostat.pool.backend import Piece, Reply, Row
from rheostat.types import Chat, Prediction
from rheostat.types.begun import Begun, begun, room_of, stops_of

if TYPE_CHECKING:
    from rheostat.backends.gguf import GgufModel

_ALTERNATIVES = 64  # other tokens whose chances come with each: most labels are known after asking for the first
_TRIAL_TOKENS = 4


class Trial(str):
    """A text that is answered with a few tokens, as it only tries the model."""


class GgufAnswerer(ABC):
    """A model of this process that is awaited and stopped like one elsewhere: both a `Backend` and a `RemoteBackend`."""

    def __init__(self, engine: Engine, settings: GgufModel, context: int, labels: tuple[str, ...] | None) -> None:
        self.labels = labels
        self.probes: tuple[Row, ...] | None = None
        self._engine = engine
        self._settings = settings
        self._name = Path(settings.file).stem  # what clients may know of the file
        self._context = context
        self._system = instruction(settings, labels or ())

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row; each fails alone."""
        turns = [self._begin(row) for row in rows]
        try:
            return [_result(turn) for turn in turns]
        finally:
            for turn in turns:
                turn.stop()

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row within `timeout_s` seconds; each fails alone. Whoever stops waiting stops the computation.

        Raises:
            ModelError: `timeout`.
        """
        turns = [self._begin(row) for row in rows]
        try:
            async with asyncio.timeout(None if math.isinf(timeout_s) else timeout_s):
                return [await _awaited(turn) for turn in turns]
        except TimeoutError:
            raise ModelError("timeout", f"no answer within {timeout_s:.3g} s") from None
        finally:
            for turn in turns:
                turn.stop()

    def close(self) -> None:
        """Stop what runs, and free the memory."""
        self._engine.close()

    async def aclose(self) -> None:
        """Stop what runs, and free the memory."""
        await asyncio.to_thread(self._engine.close)

    @abstractmethod
    def _answer(self, row: Row, turn: Turn[Any]) -> Reply:
        """Answer one row in its turn."""

    def _begin(self, row: Row) -> Turn[Reply]:
        return self._engine.begin(partial(self._answer, row))

    def _body(self, row: Row, room: int, **more: Any) -> Mapping[str, Any]:
        return {"messages": conversation(self._system, row), "max_tokens": room, "logprobs": True, **more}

    def _held(self, said: Chunk, room: int) -> None:
        """Refuse a prompt that leaves no `room` for the answer, as soon as its length is known.

        Raises:
            ModelError: `input_too_large`.
        """
        progress = said.get("prompt_progress")
        if progress and progress["total"] + room > self._context:
            told = f"a prompt of {progress['total']} tokens and up to {room} of the answer"
            raise ModelError("input_too_large", f"{told} exceed the context of {self._context}")


class GgufClassifier(GgufAnswerer):
    """Scores every label: how probable it is that the model, asked for a label, writes just this one."""

    def __init__(self, engine: Engine, settings: GgufModel, context: int, labels: tuple[str, ...]) -> None:
        super().__init__(engine, settings, context, labels)
        self.probes = ("The delivery was late and the box was broken.", "")
        self._names = labels
        self._written = engine.answers

    def _answer(self, row: Row, turn: Turn[Any]) -> Reply:
        known = TokenChances()
        found: list[float] = []
        for label, tokens in zip(self._names, self._written, strict=True):
            chance = known.of(tokens)
            if chance is None:
                self._learn(row, turn, tokens, known)
                chance = known.of(tokens)
            if chance is None:
                raise bad_output(f"the chances of the {len(tokens)} tokens of {label!r}", "fewer")
            found.append(chance)
        return Prediction.from_scores(label_scores(self._names, self._written, found))

    def _learn(self, row: Row, turn: Turn[Any], tokens: tuple[int, ...], known: TokenChances) -> None:
        """Let the model write these tokens, whatever it would rather, and note how probable they were to it."""
        grammar = "root ::= " + " ".join(f"<[{token}]>" for token in tokens)
        place = 0

        def hear(said: Chunk) -> None:
            nonlocal place
            self._held(said, len(tokens))
            for position in chunk_of(said).tokens:
                known.learn(tokens[:place], position)
                place += 1

        turn.ask(self._body(row, len(tokens), top_logprobs=_ALTERNATIVES, temperature=0.0, grammar=grammar), hear)


class GgufWriter(GgufAnswerer):
    """Writes a text; how sure it was of its tokens is the confidence."""

    def __init__(self, engine: Engine, settings: GgufModel, context: int) -> None:
        super().__init__(engine, settings, context, None)
        self.probes = (Trial("Say hello."),)

    async def astream(self, row: Row, timeout_s: float) -> AsyncIterator[Piece]:
        """Yield the answer to one row as it is written.

        Raises:
            ModelError: it failed, or took longer than `timeout_s` seconds.
        """
        loop = asyncio.get_running_loop()
        came: asyncio.Queue[Piece | None] = asyncio.Queue()  # never more than `max_tokens`

        def tell(piece: Piece | None) -> None:
            loop.call_soon_threadsafe(came.put_nowait, piece)

        turn = self._engine.begin(partial(self._write, row, tell))
        turn.future.add_done_callback(lambda _: told_end(tell))
        try:
            async with asyncio.timeout(None if math.isinf(timeout_s) else timeout_s):
                while (piece := await came.get()) is not None:
                    yield piece
            turn.future.result()
        except TimeoutError:
            raise ModelError("timeout", f"not complete within {timeout_s:.3g} s") from None
        finally:
            turn.stop()

    def _answer(self, row: Row, turn: Turn[Any]) -> Reply:
        last = self._write(row, lambda _: None, turn)
        assert last.reply is not None
        return last.reply

    def _write(self, row: Row, tell: Callable[[Piece], None], turn: Turn[Any]) -> Piece:
        """Have the answer written, and tell it piece by piece; returns the last one, which is told as well."""
        settings = self._settings
        wanted = room_of(row)
        room = settings.max_tokens if wanted is None else min(wanted, settings.max_tokens)
        if isinstance(row, Trial):
            room = min(_TRIAL_TOKENS, room)
        asked = {"temperature": settings.temperature, "seed": settings.seed, "stop": (*settings.stop, *stops_of(row)),
                 "top_logprobs": max(2, NEEDED[settings.confidence])}  # fmt: skip
        body = self._body(row, room, stream_options={"include_usage": True}, **asked)
        if isinstance(row, Begun):
            return self._go_on(row, body, room, tell, turn)
        if isinstance(row, Chat):
            return self._converse(row, body, room, tell, turn)
        texts: list[str] = []
        tokens: list[Mapping[str, Any]] = []
        finish: str | None = None
        usage: Mapping[str, Any] = {}

        def hear(said: Chunk) -> None:
            nonlocal finish, usage
            self._held(said, room)
            chunk = chunk_of(said)
            tokens.extend(chunk.tokens)
            finish, usage = chunk.finish or finish, said.get("usage") or usage
            if chunk.text:
                texts.append(chunk.text)
                tell(Piece(chunk.text))

        turn.ask(body, hear)
        if finish is None:
            raise ModelError("reset", "truncated: llama.cpp ended without a finish reason")
        text = "".join(texts).strip()
        if not text:
            raise bad_output("a text", "nothing but white space")
        told = {"finish": finish, "prompt_tokens": usage.get("prompt_tokens"), "tokens": usage.get("completion_tokens")}
        last = Piece(finish=finish, reply=Prediction(text, confidence_of(tokens, settings.confidence), None, told))
        tell(last)
        return last

    def _converse(
        self, row: Chat, body: Mapping[str, Any], room: int, tell: Callable[[Piece], None], turn: Turn[Any]
    ) -> Piece:
        """Have the answer to a conversation written, as a completion and its chunks; as `_write`."""
        frames = ChatFrames(row, self._name)

        def hear(piece: Piece) -> None:
            if piece.finish is None:
                tell(Piece(piece.text, chunk=frames.text(piece.text)))

        last = self._go_on(begun(row, "", chances=2), body, room, hear, turn)
        said = last.reply
        assert isinstance(said, Prediction)
        whole = msgspec.json.decode(said.output)
        finish, usage = str(last.finish), whole["usage"]
        tokens = (whole["choices"][0]["logprobs"] or {}).get("content") or []
        sure = confidence_of(tokens, self._settings.confidence)
        reply = Prediction(said.label, sure, None, frames.whole(said.label, finish, usage))
        last = Piece(finish=finish, reply=reply, chunk=frames.end(finish, usage))
        tell(last)
        return last

    def _go_on(
        self, row: Begun, body: Mapping[str, Any], room: int, tell: Callable[[Piece], None], turn: Turn[Any]
    ) -> Piece:
        """Have an answer that has begun continued; as `_write`."""
        told, tail = seam(row.said)
        if told:
            body = {**body, "messages": [*body["messages"], {"role": "assistant", "content": told}]}
        added = Added(row, tail)

        def hear(said: Chunk) -> None:
            self._held(said, room)
            added.usage = said.get("usage") or added.usage
            if added.finish is None:
                if new := added.take(chunk_of(said)):
                    tell(Piece(new))
                if added.finish == BORDER:
                    raise _EnoughError

        with contextlib.suppress(_EnoughError):
            turn.ask(body, hear)
        if added.finish is None:
            raise ModelError("reset", "truncated: llama.cpp ended without a finish reason")
        reply = added.reply(self._name)
        if isinstance(reply, ModelError):
            raise reply
        last = Piece(finish=added.finish, reply=reply)
        tell(last)
        return last


class _EnoughError(Exception):
    """The answer is to end here."""


def conversation(system: str, row: Row) -> Sequence[Mapping[str, Any]]:
    """Return the messages that are asked: a conversation as it is, below the system prompt where it has none of its own."""
    if not isinstance(row, Chat):
        return messages(system, row)
    said: list[Mapping[str, Any]] = row["messages"]
    return said if not system or said[0]["role"] == "system" else [{"role": "system", "content": system}, *said]


def _result(turn: Turn[Reply]) -> Reply:
    try:
        return turn.future.result()
    except ModelError as error:
        return error


async def _awaited(turn: Turn[Reply]) -> Reply:
    try:
        return await asyncio.wrap_future(turn.future)
    except ModelError as error:
        return error


def told_end(tell: Callable[[None], None]) -> None:
    with contextlib.suppress(RuntimeError):  # its event loop is closed: nobody listens
        tell(None)
