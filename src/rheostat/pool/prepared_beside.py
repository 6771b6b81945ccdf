"""A model whose rows are prepared in threads beside it, while the batch before computes."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from rheostat.errors import ModelError
from rheostat.pool.backend import Backend, ModelSettings, RemoteBackend, Reply, Row
from rheostat.pool.batching import Batched
from rheostat.pool.prepared import Made, prepared
from rheostat.pool.preparing import Prepare

if TYPE_CHECKING:
    from rheostat.clock import Clock
    from rheostat.pool.bell import Bell

_HANDFUL = 8  # rows that a thread takes at a time, so that handing over is not paid for each
_SMOOTHING = 0.1
_AHEAD = 64  # where nothing else says how many rows are worth having ready
_LATE = object()


def beside(
    settings: ModelSettings, made: Made | None, backend: Backend | RemoteBackend, clock: Clock, name: str
) -> Backend | RemoteBackend:
    """Put the preparation beside the model where the config says so; `backend` is batched, or elsewhere."""
    if made is None or not made.threads:
        return backend
    assert isinstance(backend, RemoteBackend)
    batch = settings.batch
    ahead = 2 * batch.max_rows * batch.instances if batch is not None else settings.max_concurrency or _AHEAD
    return PreparedBeside(backend, made.prepare, clock, threads=made.threads, ahead=ahead, name=name)


class PreparedBeside:
    """Prepares rows in threads of its own and hands each on as soon as it is ready; the engine sees a model that suspends.

    Rows wait unprepared, smaller ranks first, while `ahead` rows are prepared and not answered yet, so that memory is
    bounded by that and not by the traffic. Who leaves before its turn, and a row whose time is over, is not prepared.

    Args:
        inner: the model, with its batching.
        prepare: called in the threads.
        threads: how many.
        ahead: rows on their way through the model at most, prepared ones that wait for it included.
        clock: for deadlines.
    """

    def __init__(
        self, inner: Batched | RemoteBackend, prepare: Prepare, clock: Clock, *, threads: int, ahead: int, name: str = ""
    ) -> None:
        self.labels = inner.labels
        self.inner = inner
        self.waiting = 0
        self.preparing = 0
        self.ahead = 0
        self.done = 0
        self.refused = 0
        self.dropped = 0
        self.row_s = 0.0
        self._prepare = prepare
        self._clock = clock
        self._most = max(ahead, threads)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"prepare-{name}")
        self._free = threads
        self._all = threads
        self._line: list[_Ticket] = []
        self._taken: set[_Ticket] = set()
        self._count = 0
        self._closed = False

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row; see `aqueue`.

        Raises:
            ModelError: `unavailable` when the model is closed.
        """
        if len(rows) == 1:
            return (await self.aqueue(rows[0], timeout_s, 0),)
        return await asyncio.gather(*[self.aqueue(row, timeout_s, 0) for row in rows])

    async def aqueue(self, row: Row, timeout_s: float, rank: int, bell: Bell | None = None) -> Reply:
        """Answer one row; rows of a smaller `rank` go first. With a `bell` it ends when `timeout_s` is over.

        Raises:
            ModelError: `unavailable` when the model is closed.
            TimeoutError: the bell has rung.
        """
        if self._closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        self._count += 1
        ticket = _Ticket(row, rank, self._count, self._clock.monotonic() + timeout_s, loop.create_future())
        heapq.heappush(self._line, ticket)
        self.waiting += 1
        self._pump(loop)
        try:
            with bell.within(timeout_s, loop) if bell is not None else contextlib.nullcontext():
                value = await ticket.future
                if isinstance(value, ModelError):
                    return value
                left_s = ticket.due - self._clock.monotonic()
                if isinstance(self.inner, Batched):
                    return await self.inner.aqueue(value, left_s, rank)
                return (await self.inner.apredict((value,), left_s))[0]
        finally:
            self._over(ticket, loop)

    def status(self) -> dict[str, Any]:
        """Return what people ask for."""
        return {
            "waiting": self.waiting,
            "preparing": self.preparing,
            "ahead": self.ahead,
            "row_ms": round(self.row_s * 1_000.0, 3),
        }

    async def aclose(self) -> None:
        """Close the model. Whoever still waits hears that it is gone."""
        self._closed = True
        for ticket in [*self._line, *self._taken]:
            if not ticket.future.done():
                ticket.future.set_result(_closed())
        self._line.clear()
        self.waiting = 0
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self.inner.aclose()

    def _pump(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give rows to threads that are free, as long as not too many are ahead."""
        while self._free and self.waiting and self.ahead < self._most and not self._closed:
            most = min(-(-self.waiting // self._all), _HANDFUL, self._most - self.ahead)
            tickets: list[_Ticket] = []
            while self._line and len(tickets) < most:
                ticket = heapq.heappop(self._line)
                if ticket.future.done():
                    continue  # has left
                ticket.waits = False
                self.waiting -= 1
                self.ahead += 1
                tickets.append(ticket)
            if not tickets:
                return
            self._free -= 1
            self.preparing += len(tickets)
            self._taken.update(tickets)
            try:
                self._threads.submit(self._work, loop, tickets)
            except RuntimeError as error:  # no thread can be had
                for ticket in tickets:
                    self._came(loop, ticket, ModelError("crashed", str(error)), 0.0)
                self._idle(loop)
                return

    def _work(self, loop: asyncio.AbstractEventLoop, tickets: Sequence[_Ticket]) -> None:
        """In the thread: prepare what is still wanted, and hand each over at once."""
        monotonic = self._clock.monotonic
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            for ticket in tickets:
                began = monotonic()
                value: Any = None
                if not ticket.future.done():
                    value = _LATE if began > ticket.due else prepared(self._prepare, ticket.row)
                loop.call_soon_threadsafe(self._came, loop, ticket, value, monotonic() - began)
            loop.call_soon_threadsafe(self._idle, loop)

    def _came(self, loop: asyncio.AbstractEventLoop, ticket: _Ticket, value: Any, took_s: float) -> None:
        self.preparing -= 1
        self._taken.discard(ticket)
        if ticket.future.done():
            self._give_back(loop)
            return
        if value is _LATE:
            self.dropped += 1
            value = ModelError("overloaded", "its time was over before it could be prepared", retry_after_s=self.row_s)
        else:
            self.row_s += (took_s - self.row_s) * (_SMOOTHING if self.done else 1.0)
            self.done += 1
            self.refused += isinstance(value, ModelError)
        ticket.holds = True
        ticket.row = None
        ticket.future.set_result(value)

    def _idle(self, loop: asyncio.AbstractEventLoop) -> None:
        self._free += 1
        self._pump(loop)

    def _over(self, ticket: _Ticket, loop: asyncio.AbstractEventLoop) -> None:
        """Whoever asked has his answer or has left; what it held is free, a row in a thread when that is done with it."""
        if ticket.holds:
            ticket.holds = False
            self._give_back(loop)
        elif ticket.waits and not self._closed:
            self.waiting -= 1
            ticket.row = None
            if len(self._line) > 2 * self.waiting + 64:
                self._line = [each for each in self._line if not each.future.done()]
                heapq.heapify(self._line)

    def _give_back(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ahead -= 1
        self._pump(loop)


class _Ticket:
    """A row. It `waits` for a thread, is in one, and then `holds` a place ahead until it is answered."""

    __slots__ = ("due", "future", "holds", "number", "rank", "row", "waits")

    def __init__(self, row: Row, rank: int, number: int, due: float, future: asyncio.Future[Any]) -> None:
        self.row, self.rank, self.number, self.due, self.future = row, rank, number, due, future
        self.waits, self.holds = True, False

    def __lt__(self, other: _Ticket) -> bool:
        return (self.rank, self.number) < (other.rank, other.number)


def _closed() -> ModelError:
    return ModelError("unavailable", "the model is closed")
