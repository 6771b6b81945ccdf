"""One keep-alive connection: one request at a time, and nothing left over between two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rheostat.wire.answer import Answer, AnswerParser
from rheostat.wire.failures import BrokenOff, Unheard, WireError

HELD = 65_536
"""Bytes of a streamed body that are held for its reader; then the other side has to wait."""
SETTLED_S = 0.02
"""A connection rests so long after a streamed answer: some servers (llama.cpp's) promise to keep it, and close it."""
KEPT_S = 1.0
"""A connection that was idle for so long may have been given up by the other side just when a request was sent."""


class Connection(asyncio.Protocol):
    """A connection in use by one request, or idle.

    Args:
        lost: called when it is of no use any more while it is idle.
    """

    __slots__ = (
        "_clock", "_failed", "_kept_s", "_lost", "_paused", "_waiter", "_whole", "answer", "busy", "idle_since",
        "settled_at", "transport",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, lost: Callable[[Connection], None]) -> None:
        self.transport: asyncio.Transport
        self.answer = AnswerParser()
        self.busy = False
        self.idle_since = self.settled_at = loop.time()
        self._clock = loop.time
        self._lost = lost
        self._kept_s = 0.0
        self._waiter: asyncio.Future[None] | None = None
        self._failed: Exception | None = None
        self._whole = True
        self._paused = False

    @property
    def usable(self) -> bool:
        """Whether a request may be sent."""
        return not self.busy and not self.transport.is_closing()

    def send(self, request: bytes, *, largest: int, whole: bool) -> asyncio.Future[None]:
        """Send a request; what is returned is done when its answer is there: whole, or else as far as its headers."""
        self.busy = True
        self._whole = whole
        self._kept_s = self._clock() - self.idle_since
        self.answer.clear(largest)
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return waiter

    def more(self) -> asyncio.Future[None]:
        """Return what is done when more of the body is there, or its end.

        Raises:
            WireError: nothing more will come.
        """
        if self._failed is not None:
            raise self._failed
        if self._paused and self.answer.buffered <= HELD:
            self._paused = False
            self.transport.resume_reading()
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        return waiter

    def told(self) -> Answer:
        """Return the whole answer that is there; the connection is idle again, or closed."""
        answer = self.answer
        found = Answer(answer.status, answer.headers, answer.take())
        self.rest()
        return found

    def rest(self) -> None:
        """End a request whose answer is complete."""
        self.busy = False
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        if self.answer.reusable and self.transport.get_write_buffer_size() == 0:
            self.idle_since = now = self._clock()
            self.settled_at = now if self._whole else now + SETTLED_S
        else:
            self.transport.close()

    def late(self) -> None:
        """The time of the request is over."""
        self._wake(TimeoutError())

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self._waiter = None
        self.busy = False
        self.transport.abort()

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if not self.busy:  # nobody asked
            self.transport.abort()
            return
        answer = self.answer
        try:
            answer.feed(data)
        except WireError as error:
            self._wake(error)
            return
        if answer.complete:
            self._wake(None)
        elif not self._whole and answer.headed:
            if answer.buffered > HELD and not self._paused:
                self._paused = True
                self.transport.pause_reading()
            self._wake(None)

    def eof_received(self) -> None:
        self._ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.busy:
            self._ended(exc)
        else:
            self._lost(self)

    def _ended(self, exc: Exception | None) -> None:
        """Nothing more will come."""
        if not self.busy:
            self.transport.close()
            return
        answer = self.answer
        try:
            if exc is not None and not answer.complete:
                raise BrokenOff(f"{type(exc).__name__}: {exc}")
            answer.end()
        except BrokenOff as error:
            unheard = not answer.begun and self._kept_s >= KEPT_S
            self._wake(Unheard(str(error)) if unheard else error)
        except WireError as error:
            self._wake(error)
        else:
            self._wake(None)

    def _wake(self, error: Exception | None) -> None:
        waiter, self._waiter = self._waiter, None
        if error is not None and self._failed is None:
            self._failed = error
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
