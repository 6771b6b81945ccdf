"""HTTP/1.1 by hand, for a server that also breaks its rules."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Mapping


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with a TCP reset."""
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def read_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Return method, path and headers, by lower-case name, of a request's head."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, *_ = [*first.split(" "), "", ""]
    pairs = (line.partition(":") for line in lines if line)
    return method, path, {name.strip().lower(): value.strip() for name, _, value in pairs}


async def read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    """Read a request's body, whole or in chunks."""
    if "chunked" not in headers.get("transfer-encoding", ""):
        return await reader.readexactly(int(headers.get("content-length") or 0))
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


def response(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return a whole response."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Scripted\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body


def chunk(data: bytes) -> bytes:
    """Return one chunk of a body whose length is not known."""
    return b"%x\r\n%s\r\n" % (len(data), data)
