"""A response in one piece: half the system calls, and no client that wakes up for the head alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from rheostat.gateway.answer import Headers


class OneWriteCycle(RequestResponseCycle):
    """A request's answer, written in one piece where it comes in one piece: half the system calls, and no client that
    wakes up for the head alone. Whoever uses it vouches for the header values; they are not checked again."""

    _start: Any = None
    queued = False
    hang_up: Callable[[], None]

    async def send(self, message: Any) -> None:
        """Take one ASGI message; the head waits for the first part of the body."""
        if message["type"] == "http.response.start" and self._start is None:
            self._start = message
            return
        start, self._start = self._start, None
        if start is None or message.get("more_body") or not _is_measured(start["headers"]):
            if start is not None:
                await super().send(start)
            await super().send(message)
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        self._write_whole(start["status"], start["headers"], message.get("body", b""))

    def _write_whole(self, status: int, headers: Headers, body: bytes) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        head, self.keep_alive = head_bytes(status, [*self.default_headers, *headers], self.keep_alive)
        self.transport.write(head if self.scope["method"] == "HEAD" else head + body)
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.hang_up()
        self.on_response()

    def leave(self) -> None:
        """The client is gone: whoever waits for more of its request hears of it."""
        if not self.response_complete:
            self.disconnected = True
        self.message_event.set()


def _is_measured(headers: Headers) -> bool:
    """Return whether they tell the length of the body; without it only chunks tell a client where it ends."""
    return any(name == b"content-length" for name, _ in headers)


def head_bytes(status: int, headers: Headers, keep_alive: bool, fixed: bytes = b"") -> tuple[bytes, bool]:
    """Return the head of a response as it is sent, and whether the connection stays open after it; `fixed` are lines that
    come before the `headers`."""
    closed = False
    parts = [STATUS_LINE[status], fixed]
    for header in headers:
        parts.append(b"%b: %b\r\n" % header)
        if header[0] == b"connection":
            closed = True
    parts.append(b"\r\n" if keep_alive or closed else b"connection: close\r\n\r\n")
    return b"".join(parts), keep_alive and not closed
