"""A model of this process that is awaited, and in memory only while it is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from rheostat.pool.backend import Backend, Piece, RemoteBackend, Reply, Row, StreamingBackend
from rheostat.pool.on_demand import OnDemand

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Awaited:
    """Awaits the backend of an on-demand model, which is loaded and unloaded in threads."""

    def __init__(self, guest: OnDemand) -> None:
        self.labels = guest.labels
        self._guest = guest

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row.

        Raises:
            ModelError: `unavailable`, or what the model itself raises.
        """
        return self._guest.predict(rows)

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row, loading the model first if it is not in memory.

        Raises:
            ModelError: `unavailable`, or what the model itself raises.
        """
        backend = await self._entered()
        try:
            return await cast("RemoteBackend", backend).apredict(rows, timeout_s)
        finally:
            del backend  # or it would outlive its own unloading
            self._left()

    def close(self) -> None:
        """Give it up for good."""
        self._guest.close()

    async def aclose(self) -> None:
        """Give it up for good: its memory is free when the calls that use it have ended."""
        self._guest.close()

    async def _entered(self) -> Backend:
        """Have it loaded in a thread; whoever leaves meanwhile does not keep it in memory."""
        entering = asyncio.ensure_future(asyncio.to_thread(self._guest.residency.enter, self._guest))
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError:
            entering.add_done_callback(lambda done: None if done.cancelled() or done.exception() else self._left())
            raise

    def _left(self) -> None:
        """Leave at once where that only counts; in a thread where it may be what unloads the model."""
        if self._guest.loaded:
            self._guest.residency.leave(self._guest)
        else:
            asyncio.get_running_loop().run_in_executor(None, self._guest.residency.leave, self._guest)


class AwaitedStream(Awaited):
    """The same for a backend whose answer can come piece by piece."""

    async def astream(self, row: Row, timeout_s: float) -> AsyncIterator[Piece]:
        """Yield the answer to one row, loading the model first if it is not in memory.

        Raises:
            ModelError: `unavailable`, or what the model itself raises.
        """
        backend = await self._entered()
        try:
            source = cast("StreamingBackend", backend).astream(row, timeout_s)
            async with aclosing(cast("AsyncGenerator[Piece]", source)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            del backend
            self._left()


def asked_as(backend: Backend) -> Callable[[OnDemand], Backend | RemoteBackend]:
    """Return what makes an on-demand model one that is asked like `backend`: awaited, and in pieces, where that can be."""
    if not isinstance(backend, RemoteBackend):
        return lambda guest: guest
    return AwaitedStream if isinstance(backend, StreamingBackend) else Awaited
