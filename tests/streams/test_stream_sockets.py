"""Streams over real sockets: cuts at every byte, ends, errors, a client that leaves, and one that does not read."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rheostat import Router
from rheostat.backends.http import HttpModel
from rheostat.errors import ModelError, NoAnswer
from rheostat.gateway.handle import ServerHandle
from rheostat.pool.backend import Piece, StreamingBackend
from rheostat.testing import FaultyUpstream
from rheostat.testing.step import Ok, Stream

TEXT = "模型😀 a"
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[str]:
    """Serve `answer` after a head that says: an event stream until the connection closes."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            await answer(writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1/chat/completions"


def chunk(text: str = "", finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text} if text else {"role": "assistant"}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}, ensure_ascii=False).encode() + b"\r\n\r\n"


async def pieces_of(answer: Answer) -> list[Piece]:
    async with server(answer) as url:
        backend: Any = HttpModel(url=url).open("")
        assert isinstance(backend, StreamingBackend)
        try:
            return [piece async for piece in backend.astream("x", 5.0)]
        finally:
            await backend.aclose()


def sends(*parts: bytes, then: Awaitable[None] | None = None) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if then is not None:
            await then

    return answer


def test_every_cut_gives_the_same_text() -> None:
    whole = chunk() + b": note\r\n\r\n" + chunk(TEXT) + b'data: {"choices":\r\ndata: []}\r\n\r\n' + chunk("!", "stop")

    async def main() -> None:
        for cut in range(len(whole)):
            pieces = await pieces_of(sends(whole[:cut], whole[cut:]))
            assert "".join(piece.text for piece in pieces) == TEXT + "!"
            assert pieces[-1].finish == "stop"

    asyncio.run(main())


def test_an_event_of_200_kB_is_one_piece() -> None:
    text = TEXT * 18_000
    assert len(text.encode()) > 200_000
    pieces = asyncio.run(pieces_of(sends(chunk(text), b"data: [DONE]\r\n\r\n")))
    assert [piece.text for piece in pieces] == [text, ""]


def test_what_counts_as_a_whole_stream() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for end in ((chunk(finish="stop"), b"data: [DONE]\n\n"), (chunk(finish="stop"),), (b"data: [DONE]\n\n",)):
            pieces = await pieces_of(sends(chunk("hi"), *end))
            assert [piece.text for piece in pieces] == ["hi", ""]
        began = loop.time()
        held = sends(chunk("hi"), chunk(finish="stop"), b"data: [DONE]\n\n", then=asyncio.sleep(3.0))
        async with server(held) as url:
            backend: Any = HttpModel(url=url).open("")
            assert [piece.text async for piece in backend.astream("x", 5.0)] == ["hi", ""]
            assert loop.time() - began < 2.0  # the marker is the end, though the connection stays open
            await backend.aclose()
        with pytest.raises(ModelError, match="truncated") as caught:
            await pieces_of(sends(chunk("hi")))
        assert caught.value.kind == "reset"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"message": "busy", "type": "overloaded_error"}, "upstream_error"),
        ({"message": "slow down", "code": 429}, "rate_limited"),
        ({"message": "long", "code": "context_length_exceeded"}, "input_too_large"),
        ({"message": "key", "code": "invalid_api_key"}, "misconfigured"),
    ],
)
def test_an_error_in_a_stream_means_what_its_status_means(said: dict[str, Any], kind: str) -> None:
    event = b"data: " + json.dumps({"error": said}).encode() + b"\n\n"
    with pytest.raises(ModelError) as caught:
        asyncio.run(pieces_of(sends(chunk(), event)))
    assert caught.value.kind == kind


@asynccontextmanager
async def router(folder: Path, **urls: str) -> AsyncIterator[Router]:
    async with asyncio.timeout(30):
        made = await Router.open(config(folder, **urls))
        try:
            yield made
        finally:
            await made.aclose()


def config(folder: Path, **urls: str) -> str:
    names = list(urls)
    peers = {names[0]: names[1:]}
    lines = ["models:"]
    for name, url in urls.items():
        limits = "stream: {first: 5s, gap: 5s, total: 30s}"
        lines += [f"  {name}: {{backend: http, url: '{url}', max_concurrency: 1, {limits},"]
        lines += [f"    peers: {json.dumps(peers.get(name, []))}}}"]
    lines += [f"routes: {{default: {{policy: {names[0]}, models: {json.dumps(names)}, fallback: {{retry: 0}}}}}}"]
    path = folder / "rheostat.yaml"
    path.write_text("\n".join(lines))
    return str(path)


def test_an_overloaded_model_falls_back_without_a_trace_and_then_plainly(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            FaultyUpstream(Stream(then="error_event")) as a,
            FaultyUpstream(Ok(body="B"), Stream(then="error_event")) as b,
            router(tmp_path, a=a.url, b=b.url) as served,
        ):
            async with served.stream(served.request("x")) as stream:
                assert [text async for text in stream] == ["B"]
            assert stream.served is not None
            assert [one.model for one in stream.served.record.outcomes[0].attempts] == ["a", "b"]
            async with served.stream(served.request("x")) as stream:
                with pytest.raises(NoAnswer):
                    await anext(stream)
            assert stream.pieces == 0

    asyncio.run(main())


def test_a_client_that_leaves_closes_the_upstream_and_frees_the_place(tmp_path: Path) -> None:
    async def main() -> None:
        steps = (Stream(repeat_chunk="x", n=1000, gap=0.02), Ok(body="good"))
        async with FaultyUpstream(*steps) as a, router(tmp_path, a=a.url) as served:
            async with served.stream(served.request("x")) as stream:
                assert await anext(stream) == "x"
            model = served.plan.pool["a"]
            assert (model.in_flight, model.breaker.name) == (0, "closed")
            while a.calls[0].aborted is None:  # bounded by the router's timeout
                await asyncio.sleep(0.01)
            async with served.stream(served.request("x")) as stream:
                assert [text async for text in stream] == ["good"]

    asyncio.run(main())


def test_a_client_that_does_not_read_stops_the_upstream(tmp_path: Path) -> None:
    sent = 0

    async def answer(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for _ in range(4000):
            writer.write(chunk("y" * 10_000))
            await writer.drain()
            sent += 1
        writer.write(b"data: [DONE]\n\n")

    async def main() -> None:
        async with (
            server(answer) as url,
            router(tmp_path, a=url) as served,
            served.stream(served.request("x")) as stream,
        ):
            size = len(await anext(stream))
            before = -1
            while before != sent:  # until nothing moves any more
                before = sent
                await asyncio.sleep(0.3)
            assert sent < 3000  # what the sockets hold, of 40 MB
            rest: list[str] = []
            with pytest.raises(NoAnswer, match="more than"):  # 40 MB is more than an answer may have
                await read_all(stream, rest)
            size += sum(map(len, rest))
            assert size <= 8 << 20

    asyncio.run(main())


async def read_all(stream: AsyncIterator[str], into: list[str]) -> None:
    async for text in stream:
        into.append(text)


async def asked(url: str, room: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask for a stream; with `room` the client's own buffers take little more than that."""
    host, port = url.removeprefix("http://").split(":")
    line = socket.create_connection((host, int(port)))
    if room:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    reader, writer = await asyncio.open_connection(sock=line, limit=room or 65_536)
    body = b'{"data": "x", "route": {"stream": true}}'
    head = b"POST /v1/predict HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
    writer.write(head + b"content-length: %d\r\n\r\n%s" % (len(body), body))
    return reader, writer


async def post(url: str, stop_after: bytes = b"") -> bytes:
    reader, writer = await asked(url)
    said = b""
    async with asyncio.timeout(20):
        while data := await reader.read(65_536):
            said += data
            if stop_after and stop_after in said:
                break
    writer.transport.abort()
    return said


def test_the_gateway_sends_pieces_then_the_answer_or_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        steps = (
            Stream(chunks=(TEXT, "b")), Stream(chunks=("one", "two"), then="reset"), Stream(then="error_event"),
            Stream(repeat_chunk="x", n=1000, gap=0.02), Ok(body="good"),
        )  # fmt: skip
        async with FaultyUpstream(*steps) as a:
            with ServerHandle(config(tmp_path, a=a.url)) as handle:
                whole = await post(handle.url)
                assert b"200 OK" in whole
                assert b"text/event-stream" in whole
                assert whole.count(b"event: piece") == 2
                assert whole.index(b"event: piece") < whole.index(b"event: answer")
                assert f'"final_label":"{TEXT}b"'.encode() in whole
                broken = await post(handle.url)
                assert broken.count(b"event: piece") == 2
                assert b"event: error" in broken
                assert b"event: answer" not in broken
                plain = await post(handle.url)
                assert b"502" in plain.split(b"\r\n")[0]
                assert b"event:" not in plain
                await post(handle.url, stop_after=b"event: piece")
                while a.calls[3].aborted is None:
                    await asyncio.sleep(0.01)
                assert b"good" in await post(handle.url)

    asyncio.run(asyncio.wait_for(main(), 40))


def test_a_client_that_takes_nothing_counts_as_gone(tmp_path: Path) -> None:
    async def main() -> None:
        async with FaultyUpstream(Stream(repeat_chunk="y" * 20_000, n=2_000), Ok(body="good")) as a:
            path = config(tmp_path, a=a.url)
            Path(path).write_text(Path(path).read_text() + "\nserver: {body_timeout: 300ms}\n")
            with ServerHandle(path) as handle:
                _, writer = await asked(handle.url, room=4096)
                while not a.calls or a.calls[0].ended is None:
                    await asyncio.sleep(0.01)
                assert a.calls[0].aborted is not None  # its work was stopped, and its place is free
                assert b"good" in await post(handle.url)
                assert handle.server.router.engine.in_flight == 0
                writer.transport.abort()

    asyncio.run(asyncio.wait_for(main(), 40))


def test_a_quiet_stream_is_kept_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rheostat.gateway.stream.KEEP_ALIVE_S", 0.2)
    monkeypatch.setattr("rheostat.gateway.stream._WATCH_S", 0.05)

    async def main() -> bytes:
        async with FaultyUpstream(Stream(chunks=("one", "two"), gap=1.0)) as a:
            with ServerHandle(config(tmp_path, a=a.url)) as handle:
                return await post(handle.url)

    said = asyncio.run(asyncio.wait_for(main(), 20))
    first, second = said.index(b'"text":"one"'), said.index(b'"text":"two"')
    assert said.count(b": still there\n\n", first, second) >= 2
    assert b"event: answer" in said
