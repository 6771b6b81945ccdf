"""What only the server can do: slow clients, header sizes, where a message ends, and one write for one answer.

llhttp, the parser below, already refuses two lengths, a length beside chunks, a space before the colon, bare line feeds
and negative lengths. This closes what it leaves open.
"""

from __future__ import annotations

from asyncio import BaseTransport, Event, TimerHandle, Transport
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from rheostat.gateway.answer import ErrorAnswer, ErrorInfo, encoded
from rheostat.gateway.headers import request_id

if TYPE_CHECKING:
    from rheostat.config.schema import ServerSettings

MAX_HEAD = 65_536
"""Bytes that a request's line and headers may have together."""
_HEAD_TOO_LARGE = f"the headers are too large: the limit is {MAX_HEAD} bytes"
MAX_DISCARD = 16 * 1024 * 1024
"""Bytes of a refused body that are read and thrown away, so that the client gets to see the refusal."""
LINGER_S = 5.0
"""How long they are read when the connection is to end, in seconds (nginx's `lingering_close`)."""
_WATCHED = frozenset((b"expect", b"host", b"transfer-encoding"))


class _Refused(Exception):
    """Stops the parser; what to answer stands in the protocol."""


class OneWriteCycle(RequestResponseCycle):
    """A request's answer, written in one piece where it comes in one piece: half the system calls, and no client that
    wakes up for the head alone. Whoever uses it vouches for the header values; they are not checked again."""

    _start: Any = None
    hang_up: Callable[[], None]

    async def send(self, message: Any) -> None:
        """Take one ASGI message; the head waits for the first part of the body."""
        if message["type"] == "http.response.start" and self._start is None:
            self._start = message
            return
        start, self._start = self._start, None
        if start is None or message.get("more_body"):
            if start is not None:
                await super().send(start)
            await super().send(message)
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        self._write_whole(start["status"], start["headers"], message.get("body", b""))

    def _write_whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        parts = [STATUS_LINE[status]]
        for name, value in self.default_headers:
            parts += (name, b": ", value, b"\r\n")
        told = False
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
            if name == b"connection":
                told = True
                self.keep_alive = False
        if not self.keep_alive and not told:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        if self.scope["method"] != "HEAD":
            parts.append(body)
        self.transport.write(b"".join(parts))
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.hang_up()
        self.on_response()


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with deadlines for heads and bodies, a limit for heads, and no ambiguous framing."""

    limits: Callable[[], ServerSettings]

    _timer: TimerHandle | None = None
    _in_head = False
    _head = 0
    _measured = False
    _discarded = 0
    _hosts = 0
    _refusal: tuple[int, str] | None = None
    _broken = False  # what comes is no HTTP any more
    _lingering = False

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast("Transport", transport))
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            self._discard(data)
            return
        if self._head + len(data) > MAX_HEAD:
            self._measured = True
        super().data_received(data)
        if self._broken:
            return
        if self._in_head:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self._refusal = (431, _HEAD_TOO_LARGE)
                self.send_400_response("")
                return
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            if cycle is not None and cycle.more_body:
                self._discard(data)
            if self._timer is None and self.timeout_keep_alive_task is None:
                self._start_timer()
        elif cycle.more_body and self._timer is None:
            self._timer = self.loop.call_later(float(self.limits().body_timeout), self._too_slow)

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head = self._discarded = self._hosts = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in _WATCHED:
            if name == b"host":
                self._hosts += 1
            elif name == b"transfer-encoding":
                if value.strip().lower() != b"chunked":
                    self._refuse(400, "the only transfer encoding that is read is chunked")
                if self.parser.get_http_version() != "1.1":
                    self._refuse(400, "chunked bodies need HTTP/1.1")
            elif value.lower() == b"100-continue":
                self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        if self._measured:  # much came at once: head, body, or the next request
            self._measured = False
            if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD:
                self._refuse(431, _HEAD_TOO_LARGE)
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._refuse(400, "this server speaks HTTP/1.1")
        if self._hosts != 1 and (self._hosts or version == "1.1"):
            self._refuse(400, "a request has exactly one host header")
        if self.parser.should_upgrade():
            self._refuse(400, "connections are not upgraded here; send the request without an upgrade header")
        self._begin(version)

    def _begin(self, version: str) -> None:
        """Start answering, or queue behind the request before on the same connection."""
        scope, parser = self.scope, self.parser
        url = httptools.parse_url(self.url)
        raw_path = url.path
        path = raw_path.decode("ascii")
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = version
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = raw_path
        scope["query_string"] = url.query or b""
        before = self.cycle
        self.cycle = OneWriteCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        self.cycle.hang_up = self._hang_up
        if before is None or before.response_complete:
            task = self.loop.create_task(self.cycle.run_asgi(self.app))
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_message_complete(self) -> None:
        self._stop_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Answer what is no HTTP request, in the house's shape, and close."""
        status, text = self._refusal or (400, "this is not a valid HTTP request")
        self._broken = True
        self._stop_timer()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and (cycle.response_started or not cycle.more_body):
            cycle.keep_alive = False  # an earlier request is being answered: the connection ends after it
            return
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        own_id = request_id({})
        kind = {408: "too_slow", 431: "too_large"}.get(status, "invalid_request")
        body = encoded(ErrorAnswer(ErrorInfo(text, kind, None, status), own_id))
        head = [
            STATUS_LINE[status], b"content-type: application/json\r\nx-content-type-options: nosniff\r\n",
            b"x-rheostat-request-id: ", own_id.encode(), b"\r\ncontent-length: ", str(len(body)).encode(),
            b"\r\nconnection: close\r\n\r\n",
        ]  # fmt: skip
        self.transport.write(b"".join([*head, body]))
        self._hang_up()

    def on_response_complete(self) -> None:
        if self._lingering:
            self.server_state.total_requests += 1
        else:
            super().on_response_complete()

    def _hang_up(self) -> None:
        """End the connection. While the client is still sending it is read on for a while: to close on top of unread bytes
        is a reset, which takes the answer away from a client that reads after it has sent everything."""
        transport = self.transport
        if not (self._broken or self.cycle.more_body) or transport.is_closing():
            transport.close()
            return
        self._stop_timer()
        self._lingering = True
        transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(LINGER_S, transport.close)

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded > MAX_DISCARD:
            self.transport.close()

    def _refuse(self, status: int, text: str) -> None:
        self._refusal = (status, text)
        raise _Refused(text)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(float(self.limits().header_timeout), self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.transport is None or self.transport.is_closing():
            return
        cycle = self.cycle
        in_body = cycle is not None and not cycle.response_complete and cycle.more_body
        if in_body and self.pipeline:
            self._timer = self.loop.call_later(float(self.limits().body_timeout), self._too_slow)
        elif in_body or self._in_head:
            self._refusal = (408, "the request did not arrive in time")
            self.send_400_response("")
        elif cycle is None or cycle.response_complete:
            self.transport.close()


def guarded(limits: Callable[[], ServerSettings]) -> type[GuardedProtocol]:
    """Return the protocol class for uvicorn, with the limits that are in force when they are asked for."""
    return type("GuardedProtocol", (GuardedProtocol,), {"limits": staticmethod(limits)})
