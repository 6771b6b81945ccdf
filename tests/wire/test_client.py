"""The client against servers that do what servers do: keep, close, stall, cut, and answer what nobody asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rheostat.wire import BrokenOff, Client, NotConnected, Origin, head_of
from rheostat.wire import connection as connections
from rheostat.wire.client import MOST_IDLE

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


@asynccontextmanager
async def serving(serve: Serve, **more: Any):
    seen: list[int] = []
    tasks: set[asyncio.Task[Any]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("peername")[1])
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/x?y=1"
    client = Client(Origin.of(url), None, **more)
    try:
        yield client, request(url), seen
    finally:
        client.close()
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.sleep(0)


def request(url: str) -> bytes:
    return head_of("POST", url, {}) + b"content-length: 2\r\n\r\n{}"


async def asked(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(2)


def answering(answer: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await asked(reader)
            writer.write(answer)

    return serve


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 10))


def test_a_request_is_what_it_says_and_a_connection_is_kept() -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append(await asked(reader))
            writer.write(ANSWER)

    async def main() -> None:
        async with serving(serve) as (client, sent, seen):
            for _ in range(3):
                assert (await client.ask(sent, 5.0, 100)).body == b"hi"
            assert len(seen) == 1
        lines = heads[0].split(b"\r\n")
        assert lines[0] == b"POST /v1/x?y=1 HTTP/1.1"
        assert lines[1].startswith(b"host: 127.0.0.1:")
        assert b"accept-encoding: identity" in lines

    run(main)


@pytest.mark.parametrize(("name", "value"), [("x", "a\r\ny: b"), ("x y", "a"), ("x", "a\0"), ("", "a")])
def test_no_header_breaks_the_message(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="header"):
        head_of("GET", "http://h/", {name: value})


@pytest.mark.parametrize(
    ("url", "named", "target"),
    [
        ("http://h", b"host: h\r\n", b"GET / "),
        ("https://h:443/a b", b"host: h\r\n", b"GET /a%20b "),
        ("http://[::1]:81/%41?q=ä", b"host: [::1]:81\r\n", b"GET /%41?q=%C3%A4 "),
        ("http://bücher.example/", b"host: xn--bcher-kva.example\r\n", b"GET / "),
    ],
)
def test_where_a_url_leads(url: str, named: bytes, target: bytes) -> None:
    head = head_of("GET", url, {})
    assert head.startswith(target)
    assert named in head


def test_junk_between_two_answers_ends_the_connection() -> None:
    async def main() -> None:
        async with serving(answering(ANSWER + ANSWER)) as (client, sent, seen):
            for number in range(1, 4):
                assert (await client.ask(sent, 5.0, 100)).body == b"hi"
                await asyncio.sleep(0.01)
                assert len(seen) == number

    run(main)


def test_a_connection_that_was_given_up_while_idle_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        asked_for.append(1)
        writer.write(ANSWER)
        await asked(reader)  # closed without a word: the client cannot know before it has sent
        asked_for.append(2)

    async def main(kept_s: float, resend: bool, wanted: list[int]) -> None:
        monkeypatch.setattr(connections, "KEPT_S", kept_s)
        asked_for.clear()
        async with serving(serve, resend=resend) as (client, sent, _):
            await client.ask(sent, 5.0, 100)
            if wanted == [1, 2]:
                with pytest.raises(BrokenOff):
                    await client.ask(sent, 5.0, 100)
            else:
                assert (await client.ask(sent, 5.0, 100)).body == b"hi"
        assert asked_for == wanted

    run(lambda: main(0.0, True, [1, 2, 1]))
    run(lambda: main(0.0, False, [1, 2]))
    run(lambda: main(60.0, True, [1, 2]))  # used a moment ago: the server broke on this request


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", b"no HTTP\r\n\r\n"]
)
def test_a_broken_answer_is_a_failure_and_its_connection_is_gone(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(answer)

    async def main() -> None:
        async with serving(serve) as (client, sent, seen):
            for _ in range(2):
                with pytest.raises(BrokenOff):
                    await client.ask(sent, 5.0, 100)
            assert len(seen) == 2

    run(main)


def test_time_limits_and_cancellation_close_the_connection() -> None:
    ended: list[bool] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
        ended.append(await reader.read(1) == b"")

    async def main() -> None:
        async with serving(serve) as (client, sent, _):
            with pytest.raises(TimeoutError):
                await client.ask(sent, 0.05, 100)
            task = asyncio.create_task(client.ask(sent, None, 100))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.05)
        assert ended == [True, True]

    run(main)


def test_a_reader_that_takes_nothing_holds_the_other_side_up() -> None:
    taken = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        await asked(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(400):
            writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
            await writer.drain()
            taken += 65_536
        writer.write(b"0\r\n\r\n")
        await asked(reader)
        writer.write(ANSWER)
        await reader.read()

    async def main() -> None:
        async with serving(serve) as (client, sent, seen):
            stream = await client.stream(sent)
            await asyncio.sleep(0.2)
            assert taken < 20_000_000
            size = 0
            while data := await stream.read():
                size += len(data)
            assert size == 400 * 65_536
            await asyncio.sleep(2 * connections.SETTLED_S)
            assert (await client.ask(sent, 5.0, 100)).body == b"hi"
            assert len(seen) == 1

    run(main)


def test_a_stream_that_is_cut_gives_what_came_and_then_fails() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n")

    async def main() -> None:
        async with serving(serve) as (client, sent, _), await client.stream(sent) as stream:
            await asyncio.sleep(0.05)
            assert await stream.read() == b"hi"
            with pytest.raises(BrokenOff):
                await stream.read()

    run(main)


def test_idle_connections_are_bounded() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        await asyncio.sleep(0.2)
        writer.write(ANSWER)
        await reader.read()

    async def main() -> None:
        async with serving(slow) as (client, sent, _):
            count = MOST_IDLE + 20
            await asyncio.gather(*(client.ask(sent, 9.0, 100) for _ in range(count)))
            await asyncio.sleep(0.05)
            assert len(client._idle) == MOST_IDLE
            assert len(client._open) == MOST_IDLE

    run(main)


def test_certificates_are_verified_and_refused_connections_told() -> None:
    assert Origin.of("http://h").tls() is None
    context = Origin.of("https://h").tls()
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def main() -> None:
        async with serving(deaf) as (client, sent, _):
            secure = Client(client._origin, context)
            with pytest.raises(NotConnected):
                await secure.ask(sent, 5.0, 100)
        with pytest.raises(NotConnected):
            await Client(Origin("http", "127.0.0.1", 9), None).ask(b"", 5.0, 100)

    run(main)


def test_a_server_that_closes_after_every_stream_though_it_promised_to_keep_it_is_not_met_closing() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=5, max=100\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(chunked)
        await asyncio.sleep(0.002)

    async def main() -> None:
        async with serving(serve) as (client, sent, seen):
            for _ in range(20):
                async with await client.stream(sent, 5.0) as answer:
                    assert await answer.read() == b"hi"
                    assert await answer.read() == b""
            assert len(seen) == 20

    run(main)


def test_a_server_that_keeps_its_connection_after_a_stream_is_asked_over_it_again() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"

    async def main() -> None:
        async with serving(answering(chunked)) as (client, sent, seen):
            for _ in range(4):
                async with await client.stream(sent, 5.0) as answer:
                    assert await answer.read() == b"hi"
                    assert await answer.read() == b""
                await asyncio.sleep(2 * connections.SETTLED_S)
            assert len(seen) == 1

    run(main)
