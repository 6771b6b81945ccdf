"""Writes an answer token by token from the mixed distributions of two models."""

from __future__ import annotations

import asyncio
import codecs
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rheostat.backends.chat_frames import ChatFrames
from rheostat.backends.chat_stream import Chunk as Said
from rheostat.backends.continuing import BORDER, Added, seam
from rheostat.backends.gguf_answers import Trial, conversation, told_end
from rheostat.backends.gguf_engine import Chunk, Engine, Turn
from rheostat.backends.mixing import Mixed, Nexts, drawn, mix, tempered
from rheostat.backends.reply import bad_output
from rheostat.chance import chance
from rheostat.errors import ModelError
from rheostat.pool.backend import Piece, Reply, Row
from rheostat.segments.stops import Stops
from rheostat.types import Chat
from rheostat.types.begun import Begun, begun, room_of, stops_of

if TYPE_CHECKING:
    from rheostat.backends.mixture import MixtureModel

_FIRST, _DRAWN, _MORE = 64, 512, 8  # tokens that a model tells of; more where that leaves the likeliest one open
_TRIAL_TOKENS = 4


class MixtureWriter:
    """Both a `Backend` and a `RemoteBackend`, which streams. `computed` counts the tokens that each model was asked for."""

    def __init__(self, engines: tuple[Engine, Engine], settings: MixtureModel, context: int, ends: Sequence[int]) -> None:
        self.labels: tuple[str, ...] | None = None
        self.probes: tuple[Row, ...] | None = (Trial("Say hello."),)
        self.computed = [0, 0]
        self._engines = engines
        self._settings = settings
        self._context = context
        self._ends = frozenset(ends)

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row; each fails alone."""
        return [self._single(row) for row in rows]

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row within `timeout_s` seconds; each fails alone. Whoever stops waiting stops the computation."""
        return [await self._awaited(row, timeout_s) for row in rows]

    async def astream(self, row: Row, timeout_s: float) -> AsyncGenerator[Piece]:
        """Yield the answer to one row as it is written.

        Raises:
            ModelError: it failed, or took longer than `timeout_s` seconds.
        """
        loop = asyncio.get_running_loop()
        came: asyncio.Queue[Piece | None] = asyncio.Queue()  # never more than `max_tokens`

        def tell(piece: Piece | None) -> None:
            loop.call_soon_threadsafe(came.put_nowait, piece)

        turn = self._engines[0].begin(partial(self._write, row, tell))
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

    def close(self) -> None:
        """Stop what runs, and free the memory."""
        for engine in self._engines:
            engine.close()

    async def aclose(self) -> None:
        """Stop what runs, and free the memory."""
        await asyncio.to_thread(self.close)

    def _single(self, row: Row) -> Reply:
        turn: Turn[Reply] = self._engines[0].begin(partial(self._write, row, lambda _: None))
        try:
            return turn.future.result()
        except ModelError as error:
            return error
        finally:
            turn.stop()

    async def _awaited(self, row: Row, timeout_s: float) -> Reply:
        try:
            async for piece in self.astream(row, timeout_s):
                if piece.reply is not None:
                    return piece.reply
        except ModelError as error:
            return error
        return bad_output("an answer", "none")

    def _write(self, row: Row, tell: Callable[[Piece], None], turn: Turn[Any]) -> Reply:
        """Write the answer, and tell it piece by piece; runs in the first model's thread."""
        settings = self._settings
        wanted = room_of(row)
        room = settings.max_tokens if wanted is None else min(wanted, settings.max_tokens)
        if isinstance(row, Trial):
            room = min(_TRIAL_TOKENS, room)
        asked = row if isinstance(row, Begun) else _begun(row)
        model = f"{settings.first} + {settings.second}"
        frames = ChatFrames(row, model) if isinstance(row, Chat) and not isinstance(row, Begun) else None
        told, tail = seam(asked.said)
        chat = conversation(settings.prompt, row if isinstance(row, Chat) else asked)
        prompts = [engine.tokens(chat, told) for engine in self._engines]
        longest = max(len(prompt) for prompt in prompts)
        if longest + room > self._context:
            said = f"a prompt of {longest} tokens and up to {room} of the answer exceed the context of {self._context}"
            raise ModelError("input_too_large", said)
        added, stops = Added(asked, tail), Stops((*settings.stop, *stops_of(row)))
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        written: list[int] = []
        finish = "length"
        while len(written) < room:
            token, data = self._token(turn, prompts, written)
            if token in self._ends:
                finish = "stop"
                break
            written.append(token)
            _put(added, stops.feed(decoder.decode(data)), tell, frames)
            if stops.stopped or added.finish == BORDER:
                finish = BORDER if added.finish == BORDER else "stop"
                break
        if not stops.stopped and finish != BORDER:
            _put(added, stops.feed(decoder.decode(b"", True)) + stops.end(), tell, frames)
        added.finish = added.finish or finish
        added.usage = {"prompt_tokens": longest, "completion_tokens": len(written)}
        reply = added.reply(model)
        if isinstance(reply, ModelError):
            raise reply
        last = b"" if frames is None else frames.end(added.finish, added.usage)
        tell(Piece(finish=added.finish, reply=reply, chunk=last))
        return reply

    def _token(self, turn: Turn[Any], prompts: Sequence[Sequence[int]], written: Sequence[int]) -> tuple[int, bytes]:
        """Return the next token and its bytes."""
        settings = self._settings
        count = _DRAWN if settings.temperature else _FIRST
        while True:
            mixed, data = self._mixed(turn, prompts, written, count)
            if settings.temperature and mixed.chances:
                at = chance(f"mixture {settings.seed}", f"{len(written)} {written[-8:]}")
                token = drawn(tempered(mixed.chances, settings.temperature), at)
                return token, data[token]
            if mixed.certain:
                return mixed.best, data[mixed.best]
            count *= _MORE

    def _mixed(
        self, turn: Turn[Any], prompts: Sequence[Sequence[int]], written: Sequence[int], count: int
    ) -> tuple[Mixed, dict[int, bytes]]:
        weight = self._weight(len(written))
        data: dict[int, bytes] = {}
        ids = [[*prompt, *written] for prompt in prompts]
        by_margin = self._settings.by == "margin"
        other: Turn[Nexts] | None = None
        if weight > 0.0 and not by_margin:  # both at once
            other = self._engines[1].begin(partial(self._next, 1, ids[1], count, data))
        try:
            told = []
            if weight < 1.0 or by_margin:
                told.append(self._next(0, ids[0], count, data, turn))
            if by_margin and told[0].margin >= self._settings.sure:
                weight = 0.0
            if weight > 0.0 and other is None:
                other = self._engines[1].begin(partial(self._next, 1, ids[1], count, data))
            weights = [1.0 - weight] if told else []
            if other is not None:
                told.append(other.future.result())
                weights.append(weight)
            return mix(told, weights, self._settings.form), data
        finally:
            if other is not None:
                other.stop()

    def _weight(self, place: int) -> float:
        settings = self._settings
        if settings.by == "progress":
            return settings.weight * min(1.0, place / settings.over)
        return settings.weight

    def _next(self, model: int, ids: Sequence[int], count: int, data: dict[int, bytes], turn: Turn[Any]) -> Nexts:
        """Ask one model for its next token's distribution."""
        known: dict[int, float] = {}

        def hear(said: Chunk) -> None:
            chances = (said["choices"][0].get("logprobs") if said.get("choices") else None) or {}
            for each in chances.get("content", ()):
                for other in (*each["top_logprobs"], each):
                    known[other["id"]] = float(other["logprob"])
                    data[other["id"]] = bytes(other["bytes"])

        asked = {
            "prompt": list(ids),
            "max_tokens": 1,
            "logprobs": count,
            "temperature": 0,
            "cache_prompt": True,
            "samplers": [],
        }
        turn.complete(asked, hear)
        if not known:
            raise bad_output("the chances of the next token", "none")
        self.computed[model] += 1
        return Nexts(known)


def _put(added: Added, text: str, tell: Callable[[Piece], None], frames: ChatFrames | None) -> None:
    if text and (new := added.take(Said(text))):
        tell(Piece(new, chunk=b"" if frames is None else frames.text(new)))


def _begun(row: Row) -> Begun:
    try:
        return begun(row, "")
    except ValueError as error:
        raise ModelError("input_refused", str(error)) from None
