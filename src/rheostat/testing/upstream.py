"""A model server that does as told: right answers, and every wrong one."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rheostat.testing import spoken
from rheostat.testing.listener import Listener
from rheostat.testing.step import (
    Drip,
    EchoId,
    Garbage,
    Half,
    Hang,
    Raw,
    Reset,
    ResetAfterBody,
    Script,
    SlowClose,
    Status,
    Step,
    Stream,
)
from rheostat.testing.wire import chunk, read_body, read_head, reset, response

_READ_FIRST_S = 0.02  # what was sent before a reset is read before it arrives
_JSON = {"content-type": "application/json"}


@dataclass
class Call:
    """One call as the server saw it. Times are those of `time.monotonic`; `aborted` is when the client left before its
    answer was sent, `concurrent` the calls then in work, this one included."""

    number: int
    at: float
    concurrent: int
    method: str = ""
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    aborted: float | None = None
    ended: float | None = None

    @property
    def json(self) -> Any:
        """The body as JSON, or None when it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def text(self) -> str:
        """The text that the model was given."""
        return spoken.text_in(self.json)


class FaultyUpstream(Listener):
    """An HTTP/1.1 server on a free port of `host`, for one scripted model; `async with` starts and stops it.

    Call number k does step k of `steps`; the last one repeats. It answers in plain JSON, as a chat completion or in
    inference protocol v2, as it is asked, on every path. GET and HEAD are taken for health checks: they are answered
    200, or 503 when `healthy` is False, and noted in `checks`.

    Args:
        steps: what it does; without any, every call is answered `ok`.
        port: 0 takes a free one.
        seed: of random delays.
        labels, output: order of the scores and name of the tensor in answers of inference protocol v2.
    """

    def __init__(
        self, *steps: Step, host: str = "127.0.0.1", port: int = 0, seed: int = 0, labels: Sequence[str] = (),
        output: str = "probs",
    ) -> None:  # fmt: skip
        super().__init__(host, port)
        self.calls: list[Call] = []
        self.checks: list[float] = []
        self.healthy = True
        self.running = 0
        self.most_running = 0
        self._script = Script(steps)
        self._labels, self._output = tuple(labels), output
        self._chance = random.Random(seed)

    def script(self, *steps: Step) -> None:
        """Do these steps from the next call on, beginning with the first."""
        self._script = Script(steps)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(self._script.peek(), Reset):
            self._refuse(writer)
            return
        first = await reader.read(1)
        while first:
            if isinstance(self._script.peek(), Reset):
                self._refuse(writer)
                return
            head = first + await reader.readuntil(b"\r\n\r\n")
            method, path, headers = read_head(head)
            if method in ("GET", "HEAD"):
                self.checks.append(time.monotonic())
                body = b'{"status":"ok"}' if self.healthy else b'{"status":"sick"}'
                writer.write(response(200 if self.healthy else 503, _JSON, b"" if method == "HEAD" else body))
                first = await reader.read(1)
                continue
            step = self._script.take()
            call = self._begun(method, path, headers)
            try:
                call.body = await read_body(reader, headers)
                leaving = asyncio.ensure_future(reader.read(1))
                kept = await self._watched(call, step, writer, leaving)
            finally:
                self.running -= 1
                call.ended = time.monotonic()
            if not kept:
                leaving.cancel()
                return
            first = await leaving

    def _begun(self, method: str, path: str, headers: Mapping[str, str]) -> Call:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        call = Call(len(self.calls), time.monotonic(), self.running, method, path, headers)
        self.calls.append(call)
        return call

    def _refuse(self, writer: asyncio.StreamWriter) -> None:
        self._script.take()
        call = self._begun("", "", {})
        self.running -= 1
        call.ended = call.at
        reset(writer)

    async def _watched(self, call: Call, step: Step, writer: asyncio.StreamWriter, leaving: asyncio.Future[bytes]) -> bool:
        """Do the step while watching the client; returns whether the connection is kept."""
        acting = asyncio.ensure_future(self._act(call, step, writer))
        try:
            await asyncio.wait((acting, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not acting.done() and (leaving.exception() is not None or not leaving.result()):
                call.aborted = time.monotonic()
                return False
            return await acting
        except ConnectionError:  # while it was being sent
            call.aborted = time.monotonic()
            raise
        finally:
            acting.cancel()

    async def _act(self, call: Call, step: Step, writer: asyncio.StreamWriter) -> bool:
        wait = step.delay
        if isinstance(step, EchoId):
            wait += self._chance.uniform(0.0, step.delay_random)
        if wait:
            await asyncio.sleep(wait)
        if isinstance(step, Hang):
            await asyncio.Event().wait()
        if isinstance(step, ResetAfterBody):
            reset(writer)
            return False
        if isinstance(step, Stream):
            return await self._stream(step, writer)
        if isinstance(step, Garbage):
            writer.write(bytes(self._chance.randrange(128, 256) for _ in range(step.size)))
            await writer.drain()
            return False
        asked = call.json
        if isinstance(step, Status):
            writer.write(response(step.code, {**_JSON, **step.headers}, step.body.encode()))
        elif isinstance(step, Raw):
            writer.write(response(200, _JSON, step.body.encode()))
        elif spoken.asks_for_stream(asked) and (piece := spoken.piece_of(step)):
            return await self._stream(Stream(chunks=(piece,)), writer)
        else:
            body = spoken.answered(step, call.path, asked, self._labels, self._output)
            if body is None:
                writer.write(response(500, _JSON, b'{"error":{"message":"this input cannot be computed"}}'))
            else:
                return await self._send(step, body, writer)
        await writer.drain()
        return True

    async def _send(self, step: Step, body: bytes, writer: asyncio.StreamWriter) -> bool:
        whole = response(200, _JSON, body)
        if isinstance(step, Half):
            writer.write(whole[: len(whole) - len(body) // 2])
            await writer.drain()
            return False
        if isinstance(step, Drip):
            for index in range(len(whole)):
                writer.write(whole[index : index + 1])
                await asyncio.sleep(step.gap)
            return True
        if isinstance(step, SlowClose):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n" + body)
            await asyncio.sleep(step.close_after)
            return False
        writer.write(whole)
        await writer.drain()
        return True

    async def _stream(self, step: Stream, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for index, event in enumerate(spoken.streamed(step.pieces())):
            if index and step.gap:
                await asyncio.sleep(step.gap)
            writer.write(chunk(event))
            await writer.drain()
        if step.then == "hang":
            await asyncio.Event().wait()
        if step.then == "reset":
            await asyncio.sleep(_READ_FIRST_S)
            reset(writer)
            return False
        writer.write(chunk(spoken.stream_end() if step.then == "end" else spoken.stream_error()) + b"0\r\n\r\n")
        await writer.drain()
        return True
