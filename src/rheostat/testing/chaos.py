"""A bad network between a client and a server, switched while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

from msgspec import Struct, structs

from rheostat.testing.listener import Listener
from rheostat.testing.wire import reset

_PIECE = 65_536
_AHEAD = 64  # pieces that may be on their way in one direction


class Weather(Struct, frozen=True, kw_only=True):
    """What happens to connections. Times in seconds, shares in [0, 1].

    `latency` (plus or minus up to `jitter`) is added to what comes back from the server. `bandwidth` is in bytes a second
    for each direction of a connection (0: unlimited). `refuse` resets new connections at once. `reset` is the share of
    pieces coming back in whose place the connection is reset, `garbage` the share that is replaced by random bytes of the
    same length. `slow_close` passes on the end of a connection that much later. In a `blackhole` nothing moves and
    nothing is lost: what was sent arrives when it is over, as TCP would have it.
    """

    latency: float = 0.0
    jitter: float = 0.0
    bandwidth: float = 0.0
    refuse: bool = False
    reset: float = 0.0
    garbage: float = 0.0
    slow_close: float = 0.0
    blackhole: bool = False

    def __post_init__(self) -> None:
        for name in ("latency", "jitter", "bandwidth", "slow_close"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"`{name}` must be 0 or more, got {getattr(self, name)}")
        for name in ("reset", "garbage"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"`{name}` must lie in [0, 1], got {getattr(self, name)}")


CALM = Weather()


class ChaosProxy(Listener):
    """A TCP proxy on a free port of 127.0.0.1 in front of `host`:`port`; `async with` starts and stops it.

    `await proxy.set(latency=0.2)` changes the weather from now on, also for connections that are open; `async with
    proxy.during(blackhole=True):` does so for a while. What is not named stays as it is.

    Args:
        host, port: the server.
        listen: the proxy's own port; 0 takes a free one.
        seed: of everything random, so that a run can be repeated.
    """

    def __init__(self, host: str, port: int, *, listen: int = 0, seed: int = 0) -> None:
        super().__init__("127.0.0.1", listen)
        self.weather = CALM
        self.connections = 0
        self._target = (host, port)
        self._chance = random.Random(seed)
        self._changed = asyncio.Event()

    async def set(self, **changes: float | bool) -> None:
        """Change the weather from now on; the words are those of Weather."""
        self.weather = structs.replace(self.weather, **changes)
        self._changed.set()
        self._changed = asyncio.Event()
        await asyncio.sleep(0)

    async def calm(self) -> None:
        """End every trouble."""
        await self.set(**structs.asdict(CALM))

    @contextlib.asynccontextmanager
    async def during(self, **changes: float | bool) -> AsyncIterator[None]:
        """Change the weather for the time of a `with` block, and put it back as it was before."""
        before = structs.asdict(self.weather)
        await self.set(**changes)
        try:
            yield
        finally:
            await self.set(**{name: before[name] for name in changes})

    async def cut(self) -> None:
        """Reset every connection that is open now."""
        for task, client in list(self._open.items()):
            reset(client)
            task.cancel()
        await asyncio.sleep(0)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.weather.refuse:
            reset(writer)
            return
        await self._clear()
        there, server = await asyncio.open_connection(*self._target)
        try:
            await self._both_ways(reader, writer, there, server)
        finally:
            server.close()

    async def _both_ways(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> None:
        out = asyncio.ensure_future(self._one_way(reader, server, back=False))
        back = asyncio.ensure_future(self._one_way(there, writer, back=True))
        try:
            await asyncio.wait((out, back), return_when=asyncio.FIRST_COMPLETED)
            if self.weather.slow_close:
                await asyncio.sleep(self.weather.slow_close)
        finally:
            for task in (out, back):
                task.cancel()
            await asyncio.gather(out, back, return_exceptions=True)

    async def _one_way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool) -> None:
        """Carry bytes until one side ends; what is on its way keeps its order."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_AHEAD)

        async def take_in() -> None:
            while piece := await reader.read(_PIECE):
                weather = self.weather
                late = max(0.0, weather.latency + self._chance.uniform(-1.0, 1.0) * weather.jitter) if back else 0.0
                await under_way.put((loop.time() + late, piece))
            await under_way.put((0.0, b""))

        taking = asyncio.ensure_future(take_in())
        try:
            while True:
                getting = asyncio.ensure_future(under_way.get())
                await asyncio.wait((getting, taking), return_when=asyncio.FIRST_COMPLETED)
                if taking.done() and taking.exception() is not None:
                    getting.cancel()
                    reset(writer)
                    return
                due, piece = await getting
                if not piece:
                    return
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self._clear()
                if not await self._deliver(piece, writer, back):
                    return
        finally:
            taking.cancel()

    async def _deliver(self, piece: bytes, writer: asyncio.StreamWriter, back: bool) -> bool:
        weather = self.weather
        if back and weather.reset and self._chance.random() < weather.reset:
            reset(writer)
            return False
        if back and weather.garbage and self._chance.random() < weather.garbage:
            piece = self._chance.randbytes(len(piece))
        if not weather.bandwidth:
            writer.write(piece)
            await writer.drain()
            return True
        step = max(1, int(weather.bandwidth / 50))
        for start in range(0, len(piece), step):
            writer.write(piece[start : start + step])
            await writer.drain()
            await asyncio.sleep(len(piece[start : start + step]) / weather.bandwidth)
        return True

    async def _clear(self) -> None:
        """Wait until nothing is swallowed any more."""
        while self.weather.blackhole:
            await self._changed.wait()
