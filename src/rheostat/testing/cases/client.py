"""One request over one connection, sent as it is written, so that odd paths and bodies arrive as they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_PIECE = 65_536
_PATIENCE_S = 120.0


class Stream(NamedTuple):
    """What a client reads from a stream."""

    pieces: list[str]
    end: str


@dataclass
class Answer:
    """What came back for request `number`; `at` is when it was sent, in seconds from the start of its case. A `cancelled`
    request was given up by the client; `broken` says why an answer is not whole."""

    number: int
    at: float = 0.0
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    elapsed_s: float = 0.0
    cancelled: bool = False
    broken: str = ""
    own_id: str = ""

    @property
    def json(self) -> Any:
        """The body as strict JSON, or None when it is none."""
        try:
            return json.loads(self.body, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None

    @property
    def events(self) -> list[Any]:
        """The data of the server-sent events in the body; as text where it is no JSON."""
        return [_data(line[5:].strip()) for line in self.body.decode("utf-8", "replace").splitlines() if line[:5] == "data:"]

    @property
    def stream(self) -> Stream:
        """The pieces of text in the events of the body, and how they ended: "end", "error_event", or "" """
        pieces: list[str] = []
        end = ""
        for event in self.events:
            if event == "[DONE]":
                end = "end"
            elif isinstance(event, Mapping) and event.get("error") is not None:
                end = "error_event"
            elif piece := _piece(event):
                pieces.append(piece)
        return Stream(pieces, end)

    @property
    def shown(self) -> str:
        """The answer in a few words."""
        if self.cancelled:
            return "cancelled"
        return f"{self.status} {self.body[:160].decode('utf-8', 'replace')} ({self.elapsed_s:.3f} s) {self.broken}".strip()


@dataclass
class Sending:
    """A request, ready to be sent; with `chunked` its body goes in chunks."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""
    chunked: bool = False
    cancel_after: float | None = None

    def parts(self, host: str) -> list[bytes]:
        """Return what goes over the wire."""
        headers = {"host": host, "connection": "close", **self.headers}
        if self.chunked:
            headers["transfer-encoding"] = "chunked"
        elif self.body or self.method == "POST":
            headers["content-length"] = str(len(self.body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{self.method} {self.path} HTTP/1.1\r\n{lines}\r\n".encode()
        if not self.chunked:
            return [head + self.body]
        pieces = [self.body[start : start + _PIECE] for start in range(0, len(self.body), _PIECE)]
        return [head, *(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n"]


async def exchange(port: int, sending: Sending, answer: Answer) -> None:
    """Send a request to this machine's `port` and read the answer into `answer`; nothing is raised for a fault of it."""
    began = time.monotonic()
    patience = sending.cancel_after if sending.cancel_after is not None else _PATIENCE_S
    try:
        async with asyncio.timeout(patience):
            await _exchange(port, sending, answer)
    except TimeoutError:
        answer.cancelled = sending.cancel_after is not None
        answer.broken = "" if answer.cancelled else f"no whole answer within {_PATIENCE_S:g} s"
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        answer.broken = f"{type(error).__name__}: {error}"
    answer.elapsed_s = time.monotonic() - began


async def _exchange(port: int, sending: Sending, answer: Answer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        writing = asyncio.ensure_future(_write(writer, sending.parts(f"127.0.0.1:{port}")))
        try:
            await _read(reader, answer, bodiless=sending.method == "HEAD")
        finally:
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writing
    finally:
        writer.transport.abort()


async def _write(writer: asyncio.StreamWriter, parts: list[bytes]) -> None:
    with contextlib.suppress(OSError):  # the other side may answer, and close, before it has read everything
        for part in parts:
            writer.write(part)
            await writer.drain()


async def _read(reader: asyncio.StreamReader, answer: Answer, *, bodiless: bool) -> None:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    answer.headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    status = int(first.split(" ")[1])
    if not bodiless:
        await _read_body(reader, answer)
    answer.status = status


async def _read_body(reader: asyncio.StreamReader, answer: Answer) -> None:
    length = answer.headers.get("content-length")
    if "chunked" in answer.headers.get("transfer-encoding", ""):
        while size := int((await reader.readline()).split(b";")[0] or b"0", 16):
            answer.body += await reader.readexactly(size)
            await reader.readline()
    elif length is not None:
        answer.body = await reader.readexactly(int(length))
    else:
        answer.body = await reader.read()


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _data(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _piece(event: Any) -> str:
    """Return the text that an event adds: that of a chat completion's chunk, or its `text`."""
    if not isinstance(event, Mapping):
        return ""
    choices = event.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        delta = choices[0].get("delta")
        event = {"text": delta.get("content") if isinstance(delta, Mapping) else None}
    text = event.get("text")
    return text if isinstance(text, str) else ""
