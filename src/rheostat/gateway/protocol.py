"""What only the server can do: slow clients, header sizes, where a message ends, and one write for one answer.

llhttp, the parser below, already refuses two lengths, a length beside chunks, a space before the colon, bare line feeds
and negative lengths. This closes what it leaves open.
"""

from __future__ import annotations

from asyncio import BaseTransport, Event, TimerHandle, Transport
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from rheostat.gateway.answer import ErrorAnswer, ErrorInfo, Headers, Page, encoded, json_lines
from rheostat.gateway.headers import RawHeaders, request_id
from rheostat.gateway.one_write import OneWriteCycle, head_bytes
from rheostat.gateway.small_cycle import MOST_BYTES, SmallCycle

if TYPE_CHECKING:
    from rheostat.config.schema import ServerSettings

MAX_HEAD = 65_536
"""Bytes that a request's line and headers may have together."""
_HEAD_TOO_LARGE = f"the headers are too large: the limit is {MAX_HEAD} bytes"
MAX_DISCARD = 16 * 1024 * 1024
"""Bytes of a refused body that are read and thrown away, so that the client gets to see the refusal."""
LINGER_S = 5.0
"""How long they are read when the connection is to end, in seconds (nginx's `lingering_close`)."""
_WATCHED = frozenset((b"content-length", b"expect", b"host", b"transfer-encoding"))


class Direct(Protocol):
    """A page whose small requests are answered without ASGI."""

    def begin(self, raw: RawHeaders, body: bytes) -> Page | Coroutine[Any, Any, Page] | None:
        """Return the answer, or what makes it, for a task; None: only the application can."""


NOTHING: Mapping[bytes, Direct] = {}


class _Refused(Exception):
    """Stops the parser; what to answer stands in the protocol."""


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with deadlines for heads and bodies, a limit for heads, and no ambiguous framing."""

    limits: Callable[[], ServerSettings]
    direct: Mapping[bytes, Direct]

    cycle: Any
    _timer: TimerHandle | None = None
    _in_head = False
    _head = 0
    _measured = False
    _discarded = 0
    _hosts = 0
    _refusal: tuple[int, str] | None = None
    _broken = False  # what comes is no HTTP any more
    _lingering = False
    _idle: TimerHandle | None = None
    _idle_since = 0.0
    _small = False  # the body is declared to be a small one
    _whole: SmallCycle | None = None  # is all there, and comes next

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast("Transport", transport))
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._idle is not None:
            self._idle.cancel()
        cycle, self.cycle = self.cycle, None
        super().connection_lost(exc)
        if cycle is not None:
            cycle.leave()

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            self._discard(data)
            return
        if self._head + len(data) > MAX_HEAD:
            self._measured = True
        super().data_received(data)
        cycle = self._whole
        if cycle is not None:  # only now: what came behind it may say that the connection ends with it
            self._whole = None
            self._answer(cycle)
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
            if self._timer is None and (self._in_head or (cycle is not None and cycle.more_body)):
                self._start_timer()
        elif cycle.more_body and self._timer is None:
            self._timer = self.loop.call_later(float(self.limits().body_timeout), self._too_slow)

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head = self._discarded = self._hosts = 0
        self._small = self.expect_100_continue = False
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in _WATCHED:
            if name == b"host":
                self._hosts += 1
            elif name == b"content-length":
                self._small = value.isdigit() and int(value) <= MOST_BYTES
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
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        method, before = self.parser.get_method(), self.cycle
        cycle: SmallCycle | OneWriteCycle
        if self._small and self.url in self.direct and method == b"POST" and not self.expect_100_continue:
            cycle = SmallCycle(self.url, self.headers, version, keep_alive, self.tasks)
        else:
            cycle = self._asgi_cycle(method, self.url, version, self.headers, keep_alive)
        self.cycle = cycle
        if before is not None and not before.response_complete:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))  # type: ignore[arg-type]
            cycle.queued = True
        elif type(cycle) is OneWriteCycle:
            self._start_asgi_task(cycle, self.app)

    def _asgi_cycle(self, method: bytes, target: bytes, version: str, headers: Headers, keep_alive: bool) -> OneWriteCycle:
        url = httptools.parse_url(target)
        path = url.path.decode("ascii")
        scope: Any = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": headers,
            "method": method.decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
        }
        cycle = OneWriteCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.hang_up = self._hang_up
        return cycle

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        cycle.queued = False
        if type(cycle) is not SmallCycle:
            task = self.loop.create_task(cycle.run_asgi(app))
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)
        elif not cycle.more_body:
            self.loop.call_soon(self._answer, cycle)  # others come in between, and the stack stays low

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if type(cycle) is SmallCycle:
            cycle.body = cycle.body + body if cycle.body else body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_timer()
        cycle = self.cycle
        if type(cycle) is not SmallCycle:
            super().on_message_complete()
            return
        cycle.more_body = False
        if not cycle.queued:
            self._whole = cycle

    def _answer(self, cycle: SmallCycle) -> None:
        """Answer a small request, whose body is there: now, or as soon as its models have answered."""
        if cycle.disconnected:
            return
        begun = self.direct[cycle.target].begin(cycle.headers, cycle.body)
        if isinstance(begun, Page):
            if self.flow.write_paused:
                cycle.begin(self.loop.create_task(self._write_when_taken(cycle, begun)))
            else:
                self._write(cycle, begun)
        elif begun is not None:
            cycle.begin(self.loop.create_task(self._write_later(cycle, begun)))
        else:
            full = self._asgi_cycle(b"POST", cycle.target, cycle.version, cycle.headers, cycle.keep_alive)
            full.body += cycle.body
            full.more_body = False
            full.message_event.set()
            if self.cycle is cycle:
                self.cycle = full
            self._start_asgi_task(full, self.app)

    async def _write_later(self, cycle: SmallCycle, begun: Coroutine[Any, Any, Page]) -> None:
        try:
            page = await begun
            if self.flow.write_paused and not cycle.disconnected:
                await self.flow.drain()
            self._write(cycle, page)
        finally:
            cycle.over()

    async def _write_when_taken(self, cycle: SmallCycle, page: Page) -> None:
        try:
            await self.flow.drain()
            self._write(cycle, page)
        finally:
            cycle.over()

    def _write(self, cycle: SmallCycle, page: Page) -> None:
        if cycle.disconnected:
            return
        fixed = json_lines(page.body) + page.lines
        headers = self.server_state.default_headers + page.headers
        head, cycle.keep_alive = head_bytes(page.status, headers, cycle.keep_alive, fixed)
        self.transport.write(head + page.body)
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            self._hang_up()
        self.on_response_complete()

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
            cycle.leave()
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
        """Go on with the next request, or wait for one. The timer of an idle connection is not set anew for every request:
        it finds out when it rings."""
        self.server_state.total_requests += 1
        if self._lingering or self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self._idle is None:
            self._idle = self.loop.call_later(self.timeout_keep_alive, self._rung)

    def _rung(self) -> None:
        self._idle = None
        cycle = self.cycle
        if self.transport is None or self.transport.is_closing() or cycle is None:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        busy = self._in_head or cycle.more_body or not cycle.response_complete
        if left > 0.0 or busy:
            self._idle = self.loop.call_later(left if left > 0.0 else self.timeout_keep_alive, self._rung)
        else:
            self.transport.close()

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


def guarded(limits: Callable[[], ServerSettings], direct: Mapping[bytes, Direct] = NOTHING) -> type[GuardedProtocol]:
    """Return the protocol class for uvicorn, with the limits that are in force when they are asked for. Small requests to
    the pages in `direct`, by their path, it answers itself; everything else goes to the application."""
    return type("GuardedProtocol", (GuardedProtocol,), {"limits": staticmethod(limits), "direct": direct})
