"""The proxy passes everything on, and every trouble does what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rheostat.testing import ChaosProxy, Weather


def run(main: Callable[[ChaosProxy], Awaitable[Any]]) -> None:
    """Drive `main` against a proxy in front of a server that sends back what it gets, within ten seconds."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def whole() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with ChaosProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy, asyncio.timeout(10):
            await main(proxy)
        server.close()

    asyncio.run(whole())


async def dial(proxy: ChaosProxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def said(proxy: ChaosProxy, data: bytes) -> tuple[bytes, float]:
    """Send `data` over a new connection; return what comes back, and after how many seconds."""
    loop = asyncio.get_running_loop()
    reader, writer = await dial(proxy)
    began = loop.time()
    writer.write(data)
    got = await reader.readexactly(len(data))
    writer.close()
    return got, loop.time() - began


def test_calm_weather_changes_nothing() -> None:
    async def main(proxy: ChaosProxy) -> None:
        data = bytes(range(256)) * 4_000
        assert (await said(proxy, data))[0] == data

    run(main)


def test_latency_is_added_for_as_long_as_it_is_set() -> None:
    async def main(proxy: ChaosProxy) -> None:
        async with proxy.during(latency=0.2, jitter=0.05):
            assert (await said(proxy, b"hello"))[1] >= 0.15
        assert proxy.weather == Weather()
        assert (await said(proxy, b"hello"))[0] == b"hello"

    run(main)


def test_bandwidth_slows_the_bytes() -> None:
    async def main(proxy: ChaosProxy) -> None:
        await proxy.set(bandwidth=20_000)
        got, took = await said(proxy, b"x" * 4_000)
        assert got == b"x" * 4_000
        assert took >= 0.18

    run(main)


def test_a_blackhole_holds_everything_and_loses_nothing() -> None:
    async def main(proxy: ChaosProxy) -> None:
        reader, writer = await dial(proxy)
        async with proxy.during(blackhole=True):
            writer.write(b"hello")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(5), 0.2)
            late = asyncio.ensure_future(said(proxy, b"late"))
            await asyncio.sleep(0.1)
            assert not late.done()
        assert await reader.readexactly(5) == b"hello"
        assert (await late)[0] == b"late"

    run(main)


def test_resets_and_refusals() -> None:
    async def main(proxy: ChaosProxy) -> None:
        reader, writer = await dial(proxy)
        await proxy.set(reset=1.0)
        writer.write(b"hello")
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(5)
        await proxy.calm()
        assert (await said(proxy, b"hello"))[0] == b"hello"
        await proxy.set(refuse=True)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await said(proxy, b"hello")

    run(main)


def test_open_connections_can_be_cut() -> None:
    async def main(proxy: ChaosProxy) -> None:
        reader, writer = await dial(proxy)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        await proxy.cut()
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)

    run(main)


def test_garbage_has_the_length_of_what_it_replaces() -> None:
    async def main(proxy: ChaosProxy) -> None:
        await proxy.set(garbage=1.0)
        got, _ = await said(proxy, b"hello there")
        assert got != b"hello there"

    run(main)


def test_a_close_is_passed_on_late() -> None:
    async def main(proxy: ChaosProxy) -> None:
        await proxy.set(slow_close=0.3)
        reader, writer = await dial(proxy)
        loop = asyncio.get_running_loop()
        began = loop.time()
        writer.write_eof()
        assert await reader.read() == b""
        assert loop.time() - began >= 0.25

    run(main)


@pytest.mark.parametrize("wrong", [{"latency": -1.0}, {"reset": 1.5}, {"garbage": float("nan")}])
def test_impossible_weather_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Weather(**wrong)
