"""A conversation's answer as server-sent events: the chunks of the model that answers, as they came, and `[DONE]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from rheostat.errors import RheostatError
from rheostat.gateway.answer import ResultInfo, RouteHeaders, Send, encode
from rheostat.gateway.chat_answer import DONE, TextChunks, chat_error, chunks_of, completion_of
from rheostat.gateway.stream import Respond, StreamAnswer

if TYPE_CHECKING:
    from rheostat.engine.stream import Stream
    from rheostat.router import Router


class ChatStream(StreamAnswer):
    """Sends one answer. Where the decision needs the whole of it first, it is sent as one chunk.

    Until the first chunk nothing is sent, so that a request which fails before it gets a plain error with its status.
    """

    def __init__(
        self, router: Router, send: Send, draining: Callable[[], bool], respond: Respond, headers: RouteHeaders,
        *, model: str, usage: bool,
    ) -> None:  # fmt: skip
        super().__init__(router, send, draining, respond)
        self._route_headers = headers
        self._model = model
        self._usage = usage

    async def _relay(self, stream: Stream, known_id: str) -> None:
        made = TextChunks(known_id, self._model, int(self._router.clock.wall()))
        try:
            while (piece := await stream.take()) is not None:
                if not self._started:
                    await self._start(known_id, [(b"x-request-id", known_id.encode())])
                await self._put(piece.chunk or made.text(piece.text))
        except RheostatError as error:
            if not self._started:
                raise
            await self._fail(error, known_id)
            return
        served = stream.served
        if served is None:
            raise RheostatError("a stream without an end")
        rest = made.end()
        if not self._started:
            rest = chunks_of(completion_of(served), usage=self._usage)
            attempts = sum(len(outcome.attempts) for outcome in served.record.outcomes)
            headers = self._route_headers.of(served.record, attempts)
            await self._start(known_id, [(b"x-request-id", known_id.encode()), *headers])
        await self._put(rest + DONE, more=False)

    async def _fail(self, error: Exception, known_id: str, result: ResultInfo | UnsetType = UNSET) -> None:  # noqa: ARG002
        told, _ = chat_error(error, known_id)
        await self._put(b"data: %b\n\n" % encode(told), more=False)
