"""A language model's answer as server-sent events, in the form of the page that was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from rheostat.errors import RheostatError
from rheostat.gateway.answer import ResultInfo, RouteHeaders, Send
from rheostat.gateway.stream import Respond, StreamAnswer

if TYPE_CHECKING:
    from rheostat.engine.stream import Stream
    from rheostat.gateway.face import Face
    from rheostat.router import Router
    from rheostat.types import Chat


class ChatStream(StreamAnswer):
    """Sends one answer. Where the decision needs the whole of it first, it is sent as one chunk.

    Until the first chunk nothing is sent, so that a request which fails before it gets a plain error with its status.
    """

    def __init__(
        self, router: Router, send: Send, draining: Callable[[], bool], respond: Respond, headers: RouteHeaders,
        face: Face, row: Chat,
    ) -> None:  # fmt: skip
        super().__init__(router, send, draining, respond)
        self._route_headers = headers
        self._face = face
        self._row = row

    async def _relay(self, stream: Stream, known_id: str) -> None:
        events = self._face.pieces(self._row, known_id, int(self._router.clock.wall()))
        named = [(self._face.id_header, known_id.encode())]
        try:
            while (piece := await stream.take()) is not None:
                if not self._started:
                    if stream.history is not None:
                        named.append((b"x-rheostat-history", b"%d" % stream.history))
                    await self._start(known_id, named)
                if said := events.piece(piece):
                    await self._put(said)
        except RheostatError as error:
            if not self._started:
                raise
            await self._fail(error, known_id)
            return
        served = stream.served
        if served is None:
            raise RheostatError("a stream without an end")
        if self._started:
            await self._put(events.end(), more=False)
        else:
            rest = events.whole(served)
            attempts = sum(len(outcome.attempts) for outcome in served.record.outcomes)
            headers = self._route_headers.of(served.record, attempts)
            await self._start(known_id, [*named, *headers])
            await self._put(rest, more=False)

    async def _fail(self, error: Exception, known_id: str, result: ResultInfo | UnsetType = UNSET) -> None:  # noqa: ARG002
        await self._put(self._face.error_event(error, known_id), more=False)
