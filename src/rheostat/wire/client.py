"""The connections to one server, kept and used again."""

from __future__ import annotations

import asyncio
import socket
import ssl
from types import TracebackType
from typing import Any

from rheostat.wire.answer import Answer, Pairs
from rheostat.wire.connection import Connection
from rheostat.wire.failures import NotConnected, Unheard
from rheostat.wire.origin import Origin

MOST_IDLE = 256
"""Connections that are kept without a request."""
IDLE_S = 30.0
"""How long they are kept, in seconds."""
CONNECT_S = 30.0
"""How long a connection may take where the request has no limit, in seconds."""


class Client:
    """Asks one server over connections that it keeps, in the event loop in which it is made.

    It follows no redirect, uses no proxy of the environment, and sends nothing twice, with one exception: a request on a
    connection that had been idle, which ended before anything of an answer came, where `resend` allows it.

    Args:
        tls: how certificates are verified; None for a server without TLS.
    """

    def __init__(self, origin: Origin, tls: ssl.SSLContext | None, *, resend: bool = True) -> None:
        self._origin = origin
        self._tls = tls
        self._resend = resend
        self._loop = asyncio.get_running_loop()
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._reaper: asyncio.TimerHandle | None = None

    async def ask(self, request: bytes, timeout_s: float | None, largest: int) -> Answer:
        """Send a request, head and body, and return the whole answer.

        Args:
            timeout_s: for all of it, in seconds; None: no limit.
            largest: bytes that its body may have.

        Raises:
            TimeoutError, NotConnected, BrokenOff, TooLargeAnswer.
        """
        connection = await self._answered(request, timeout_s, largest, whole=True)
        found = connection.told()
        self._keep(connection)
        return found

    async def stream(self, request: bytes, timeout_s: float | None = None) -> AnswerStream:
        """Send a request and return its answer as far as the headers; leaving it closes the connection unless it was read
        to its end.

        Args:
            timeout_s: until the headers are there, in seconds; None: no limit.

        Raises:
            TimeoutError, NotConnected, BrokenOff, TooLargeAnswer.
        """
        return AnswerStream(self, await self._answered(request, timeout_s, 0, whole=False))

    async def _answered(self, request: bytes, timeout_s: float | None, largest: int, *, whole: bool) -> Connection:
        """Send a request; return the connection on which its answer is there."""
        loop = self._loop
        until = None if timeout_s is None else loop.time() + timeout_s
        connection = self._kept() or await self._connected(until)
        while True:
            waiter = connection.send(request, largest=largest, whole=whole)
            timer = None if until is None else loop.call_at(until, connection.late)
            try:
                await waiter
            except BaseException as error:
                connection.abort()
                self._keep(connection)
                if not self._resend or not isinstance(error, Unheard):
                    raise
            else:
                return connection
            finally:
                if timer is not None:
                    timer.cancel()
            connection = await self._connected(until)

    def close(self) -> None:
        """Close all connections; requests under way end."""
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        for connection in tuple(self._open):
            connection.transport.abort()
        self._open.clear()
        self._idle.clear()

    def _kept(self) -> Connection | None:
        idle, now = self._idle, self._loop.time()
        for at in range(len(idle) - 1, -1, -1):  # the one that was used last: those that are too many grow old
            connection = idle[at]
            if connection.settled_at <= now:
                del idle[at]
                if connection.usable:
                    return connection
        return None

    def _keep(self, connection: Connection) -> None:
        """Take a connection back whose request has ended, however it did."""
        if connection.usable and len(self._idle) >= MOST_IDLE:
            connection.transport.close()
        if not connection.usable:
            self._open.discard(connection)
        else:
            self._idle.append(connection)
            if self._reaper is None:
                self._reaper = self._loop.call_later(IDLE_S / 2, self._reap)

    def _lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _reap(self) -> None:
        """Close what has been idle for too long."""
        oldest = self._loop.time() - IDLE_S
        kept = [connection for connection in self._idle if connection.idle_since > oldest]
        for connection in self._idle:
            if connection.idle_since <= oldest:
                connection.transport.close()
        self._idle = kept
        self._reaper = self._loop.call_later(IDLE_S / 2, self._reap) if kept else None

    async def _connected(self, until: float | None) -> Connection:
        """Make a connection.

        Raises:
            TimeoutError: the request's time is over.
            NotConnected: it cannot be made.
        """
        latest = self._loop.time() + CONNECT_S
        try:
            async with asyncio.timeout_at(latest if until is None else min(until, latest)):
                connection = await self._connect()
        except TimeoutError:
            if until is not None and self._loop.time() >= until:
                raise
            raise NotConnected(f"Cannot connect within {CONNECT_S:g} s") from None
        except (OSError, ssl.SSLError, ssl.CertificateError, UnicodeError) as error:
            raise NotConnected(f"Cannot connect: {type(error).__name__}: {error}") from None
        self._open.add(connection)
        return connection

    async def _connect(self) -> Connection:
        """Connect to the first of the server's addresses that takes the connection."""
        origin, loop = self._origin, self._loop
        found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
        more: dict[str, Any] = {} if self._tls is None else {"ssl": self._tls, "server_hostname": origin.host}
        for at, (family, kind, protocol, _, address) in enumerate(found):
            taken = socket.socket(family, kind, protocol)
            try:
                taken.setblocking(False)
                taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await self._reached(taken, address, last=at == len(found) - 1)
                _, connection = await loop.create_connection(lambda: Connection(loop, self._lost), sock=taken, **more)
            except ssl.SSLError:
                taken.close()
                raise
            except OSError:
                taken.close()
                if at == len(found) - 1:
                    raise
            except BaseException:
                taken.close()
                raise
            else:
                return connection
        raise OSError(f"no address for {origin.host}")

    async def _reached(self, taken: socket.socket, address: Any, *, last: bool) -> None:
        """Connect a socket; one that is not the last has a second, so that an address that is not reached costs no more."""
        if last:
            await self._loop.sock_connect(taken, address)
            return
        try:
            async with asyncio.timeout(1.0) as limit:
                await self._loop.sock_connect(taken, address)
        except TimeoutError:
            if not limit.expired():
                raise
            raise OSError(f"{address[0]} does not answer") from None


class AnswerStream:
    """An answer that is read as it comes: `status`, `headers`, then `read` until it gives nothing."""

    __slots__ = ("_client", "_connection", "headers", "status")

    def __init__(self, client: Client, connection: Connection) -> None:
        self._client = client
        self._connection: Connection | None = connection
        self.status: int = connection.answer.status
        self.headers: Pairs = connection.answer.headers

    async def read(self) -> bytes:
        """Return what has come since the last time, and wait for it where nothing has; empty at the end.

        Raises:
            BrokenOff: it is cut short.
            TooLargeAnswer: a piece of it unpacks to too much.
        """
        connection = self._connection
        if connection is None:
            return b""
        answer = connection.answer
        while not answer.buffered:
            if answer.complete:
                self.close()
                return b""
            await connection.more()
        return answer.take()

    async def __aenter__(self) -> AnswerStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave it; the connection is kept only if all of the answer has come."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if connection.answer.complete:
            connection.answer.take()
            connection.rest()
        else:
            connection.abort()
        self._client._keep(connection)
