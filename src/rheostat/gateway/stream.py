"""A prediction as server-sent events: `piece` by piece, and last the whole `answer`, or an `error`.

Until the first piece nothing is sent, so that a request which fails before it gets a plain error with its status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from rheostat.engine.engine import Served
from rheostat.errors import Overloaded, RheostatError
from rheostat.gateway.answer import Headers, ResultInfo, Send, answer_of, encode, encoded, error_of, promised
from rheostat.gateway.body import Receive
from rheostat.gateway.leave import ClientGone, left, wait_for_leave
from rheostat.types.text import well_formed

if TYPE_CHECKING:
    from rheostat.engine.stream import Stream
    from rheostat.router import Router
    from rheostat.types import Request

Respond = Callable[[Served, Send], Awaitable[None]]
KEEP_ALIVE_S = 15.0
"""After this time without a piece a comment is sent, so that nothing between here and the client gives it up."""
_WATCH_S = 1.0
_NOTHING_MORE: Headers = []
_HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"), (b"x-accel-buffering", b"no"),
]  # fmt: skip


class StreamAnswer:
    """Sends one answer. A client that takes nothing for `server.body_timeout` seconds counts as gone."""

    def __init__(self, router: Router, send: Send, draining: Callable[[], bool], respond: Respond) -> None:
        self._router = router
        self._send = send
        self._draining = draining
        self._respond = respond  # to what has ended before its first piece, and has a promise
        self._started = False
        self._sending_since: float | None = None
        self._sent_at = 0.0

    async def serve(self, request: Request, receive: Receive) -> None:
        """Answer the request.

        Raises:
            RheostatError: it failed before the first piece; nothing has been sent.
            ClientGone: the client left; its model's work has been stopped.
        """
        task = asyncio.current_task()
        assert task is not None
        watchers = [asyncio.ensure_future(wait_for_leave(receive, task)), asyncio.ensure_future(self._watch(task))]
        stream = self._router.stream(request)
        try:
            await self._relay(stream, request.id)
        except asyncio.CancelledError:
            if any(left(watcher) for watcher in watchers):
                task.uncancel()
                raise ClientGone from None
            if not self._started:
                raise
            await stream.aclose()
            await self._fail(Overloaded("the gateway is stopping"), request.id)
        finally:
            for watcher in watchers:
                watcher.cancel()
            await stream.aclose()

    async def _relay(self, stream: Stream, known_id: str) -> None:
        try:
            async for text in stream:
                if not self._started:
                    await self._start(known_id)
                await self._put(_event(b"piece", encode({"text": well_formed(text)})))
        except RheostatError as error:
            promise = stream.served.promise if stream.served is not None else None
            if not self._started:
                if promise is None or stream.served is None:
                    raise
                await self._respond(stream.served, self._send)
            else:
                await self._fail(error, known_id, UNSET if promise is None else promised(promise))
            return
        served = stream.served
        if served is None:
            raise RheostatError("a stream without an end")
        await self._put(_event(b"answer", encoded(answer_of(served))), more=False)

    async def _fail(self, error: Exception, known_id: str, result: ResultInfo | UnsetType = UNSET) -> None:
        await self._put(_event(b"error", encoded(error_of(error, known_id, result))), more=False)

    async def _start(self, known_id: str, more: Headers = _NOTHING_MORE) -> None:
        self._started = True
        headers = [*_HEAD, (b"x-rheostat-request-id", known_id.encode()), *more]
        if self._draining():
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _put(self, event: bytes, *, more: bool = True) -> None:
        loop = asyncio.get_running_loop()
        self._sending_since = loop.time()
        await self._send({"type": "http.response.body", "body": event, "more_body": more})
        self._sending_since = None
        self._sent_at = loop.time()

    async def _watch(self, task: asyncio.Task[Any]) -> None:
        """Keep a quiet connection alive, and give up a client that takes nothing."""
        loop = asyncio.get_running_loop()
        patience = float(self._router.config.server.body_timeout)
        while True:
            await asyncio.sleep(_WATCH_S)
            since = self._sending_since
            if since is not None:
                if loop.time() - since > patience:
                    task.cancel()
                    return
            elif self._started and loop.time() - self._sent_at > KEEP_ALIVE_S:
                await self._put(b": still there\n\n")


def _event(name: bytes, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name, data)
