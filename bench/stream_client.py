"""A client of streams that reads at once, slowly or byte by byte, or leaves; over sockets, with its own reading of HTTP."""

from __future__ import annotations

import asyncio
import random
import re
import socket
import time
from dataclasses import dataclass, field

MANNERS = {"at once": 70, "slow": 8, "byte by byte": 6, "leaves": 12, "leaves before": 4}
_PATIENCE_S = 40.0
_FEW = 3000  # reads of one byte, after which it reads more at a time


@dataclass
class Got:
    """What a client got: `body` without its framing; `ended` says that the response came to its end. `wrong` is what no HTTP
    client would accept."""

    manner: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False
    wrong: str = ""
    left_at: float | None = None


async def ask(
    host: str, port: int, number: int, seed: str, body: bytes, kept: socket.socket | None
) -> tuple[Got, socket.socket | None]:
    """Ask for stream `number`; returns what came, and the connection if it can be used again."""
    chance = random.Random(f"client {seed}")
    got = Got(chance.choices(tuple(MANNERS), tuple(MANNERS.values()))[0])
    loop = asyncio.get_running_loop()
    if kept is None:
        kept = socket.socket()
        kept.setblocking(False)
        if got.manner == "slow":
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        await loop.sock_connect(kept, (host, port))
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nx-request-id: s-{number}\r\ncontent-length: {len(body)}\r\n"
    )
    await loop.sock_sendall(kept, head.encode() + b"\r\n" + body)
    enough = chance.randrange(1, 4000) if got.manner == "leaves" else None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            if got.manner == "leaves before":
                await asyncio.sleep(chance.choice((0.0, 0.001, 0.005, 0.02)))
            else:
                await _read(kept, got, chance, enough)
    except TimeoutError:
        got.wrong = f"nothing more came within {_PATIENCE_S:g} s"
    except OSError as error:
        got.wrong = f"{type(error).__name__}: {error}"
    if got.ended and not got.wrong and got.headers.get("connection") != "close":
        return got, kept
    if got.manner.startswith("leaves") and not got.ended:
        if chance.random() < 0.5:
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        got.left_at = time.monotonic()
    kept.close()
    return got, None


async def _read(connection: socket.socket, got: Got, chance: random.Random, enough: int | None) -> None:
    loop = asyncio.get_running_loop()
    raw = b""
    reading = _Reading(got)
    reads = 0
    while not got.ended and not got.wrong:
        size = 65_536
        if got.manner == "byte by byte" and reads < _FEW:
            size = 1
        elif got.manner == "slow":
            size = chance.randrange(1, 2000)
            await asyncio.sleep(chance.uniform(0.0, 0.01))
        elif enough is not None:
            size = chance.randrange(1, 500)
        data = await loop.sock_recv(connection, size)
        reads += 1
        raw += data
        if not data:
            got.wrong = "the connection ended in the middle of the response"
            return
        reading.feed(data)
        if enough is not None and len(raw) >= enough:
            return


class _Reading:
    """Reads one response as it comes, and holds it to the rules."""

    def __init__(self, got: Got) -> None:
        self._got = got
        self._left = b""
        self._in_head = True
        self._size = 0  # of the chunk or body, still to come
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Take what came."""
        self._left += data
        while self._step():
            pass
        self._got.body = self._got.body + b"".join(self._parts) if self._parts else self._got.body
        self._parts.clear()
        if self._got.ended and self._left:
            self._got.wrong = f"after the end came {self._left[:40]!r}"

    def _step(self) -> bool:
        got = self._got
        if got.ended or got.wrong:
            return False
        if self._in_head:
            return self._head()
        if "content-length" in got.headers:
            self._take()
            got.ended = self._size == 0
            return False
        if self._size > 2:
            if not self._left:
                return False
            before = self._size
            self._size -= 2
            self._take()
            self._size += 2
            return self._size < before
        if self._size:  # the two bytes behind a chunk
            if len(self._left) < 2:
                return False
            if not self._left.startswith(b"\r\n"):
                got.wrong = f"a chunk that does not end: {self._left[:40]!r}"
            self._left, self._size = self._left[2:], 0
            return True
        line, found, rest = self._left.partition(b"\r\n")
        if not found:
            return False
        if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", line):
            got.wrong = f"no size of a chunk: {line[:40]!r}"
            return False
        size = int(line, 16)
        if size == 0:
            if len(rest) < 2:
                return False
            self._left, got.ended = rest[2:], True
            return False
        self._left, self._size = rest, size + 2
        return True

    def _head(self) -> bool:
        head, found, rest = self._left.partition(b"\r\n\r\n")
        if not found:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.1 (\d{3}) ?.*", first)
        if match is None:
            self._got.wrong = f"no status line: {first[:60]!r}"
            return False
        self._got.status = int(match[1])
        self._got.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._in_head, self._left = False, rest
        self._size = int(self._got.headers.get("content-length", 0))
        return True

    def _take(self) -> None:
        part, self._left = self._left[: self._size], self._left[self._size :]
        self._size -= len(part)
        self._parts.append(part)
