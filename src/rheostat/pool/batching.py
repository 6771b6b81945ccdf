"""A model whose rows are put together: several requests, one call."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import TYPE_CHECKING, Any, cast

from rheostat.errors import ModelError
from rheostat.pool.backend import Backend, RemoteBackend, Reply, Row
from rheostat.pool.batch_call import Called, acall, call
from rheostat.pool.batch_tally import BatchTally
from rheostat.pool.batch_ticket import Batch, Line, Ticket
from rheostat.pool.shape import shape_of
from rheostat.resilience.batch import (
    Arrivals,
    BatchSettings,
    Pace,
    arrived,
    decide,
    evenly,
    limit_after,
    most_rows,
    too_late,
    took,
)

if TYPE_CHECKING:
    from rheostat.clock import Clock
    from rheostat.pool.bell import Bell

_log = logging.getLogger("rheostat.pool")


class Batched:
    """Puts the rows of several requests into one call of `inner`; to the engine it is a model that suspends.

    It has no loop of its own: whatever happens (a row comes, a call ends, a wait is over) looks at the queue again, so there
    is nothing that could die and leave later rows waiting. A local `inner` computes in threads of its own, one for each of
    `settings.instances`. Rows of another kind are never in one call. Who leaves before the call is not computed.

    Args:
        inner: the model.
        clock: for durations.
        kind_of: what must be equal for two rows to share a call.
        repeat: whether rows may be asked again, to find the one that makes a whole call fail.
    """

    def __init__(
        self,
        inner: Backend | RemoteBackend,
        settings: BatchSettings,
        clock: Clock,
        *,
        kind_of: Callable[[Row], Hashable] = shape_of,
        repeat: bool = True,
        name: str = "",
    ) -> None:
        self.labels = inner.labels
        self.inner = inner
        self._suspends = isinstance(inner, RemoteBackend)
        self.settings = settings
        self.tally = BatchTally()
        self.limit = settings.max_rows
        self.queued = 0
        self._clock = clock
        self._kind_of = kind_of
        self._repeat = repeat
        self._name = name
        self._free = settings.instances
        self._lines: dict[Hashable, Line] = {}
        self._pace = Pace()
        self._arrivals = Arrivals()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf
        self._running: set[Batch] = set()
        self._in_hand = 0  # rows that waited, ran or had just come back when the last call ended and another began
        self._closed = False
        self._threads: ThreadPoolExecutor | None = None

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row; each goes with whatever company there is.

        `timeout_s` bounds how long it may wait for that, and rows that cannot be answered within it make room for others;
        it is the caller who ends a call that takes longer.

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
        now = self._clock.monotonic()
        ticket = Ticket(row, self._kind_of(row), rank, now, timeout_s, loop)
        if bell is not None and timeout_s != inf:
            bell.enter(ticket, loop)
        line = self._lines.get(ticket.kind)
        if line is None:
            line = self._lines[ticket.kind] = Line()
        line.add(ticket)
        self.queued += 1
        self._arrivals = arrived(self._arrivals, now, 2.0 * self.settings.max_wait)
        if self._free:
            self._pump(loop)
        try:
            return await ticket.future
        except (asyncio.CancelledError, TimeoutError):
            self._left(ticket)
            raise
        finally:
            if bell is not None:
                bell.leave(ticket)

    def status(self) -> dict[str, Any]:
        """Return what people ask for: `expected_ms` is what a call over one row and over `limit` rows should take."""
        expected = [round(self._pace.expects(rows) * 1_000.0, 3) for rows in (1, self.limit)]
        return {"queued": self.queued, "limit": self.limit, "running": len(self._running), "expected_ms": expected}

    async def aclose(self) -> None:
        """Close the model. Whoever still waits hears that it is gone; a call that computes in a thread is not waited for."""
        self._closed = True
        self._fail(_closed())
        tasks = [batch.task for batch in self._running if batch.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if isinstance(self.inner, RemoteBackend):
            await self.inner.aclose()
        else:
            self.inner.close()

    def _pump(self, loop: asyncio.AbstractEventLoop, back: int = 0) -> None:
        """Start what should start now, and look again when that may have changed; `back` rows have just been computed."""
        try:
            now = self._clock.monotonic()
            while self._free and self._lines:
                until = self._next(loop, now, back)
                if until > now:
                    self._look_again(loop, until, now)
                    return
        except Exception as error:  # a fault of ours: those who wait hear of it, and those who come later are served
            _log.exception("the batches of model %s failed inside", self._name)
            self._fail(ModelError("crashed", f"{type(error).__name__}: {error}"))

    def _next(self, loop: asyncio.AbstractEventLoop, now: float, back: int) -> float:
        """Start a batch, of the kind whose turn it is among those that are ready; without one return until when to wait."""
        until = inf
        lines = self._lines.values()
        for line in sorted(lines, key=lambda line: line.rank) if len(lines) > 1 else lines:
            verdict = decide(
                self.settings,
                self._pace,
                self._arrivals,
                self.limit,
                (ticket.due for ticket in line.tickets),
                len(line),
                line.oldest,
                now,
                len(line) / self.queued,
            )
            if verdict.take:
                if not self._sent_away(line, now):
                    self._start(loop, line, self._share(verdict.take, back), verdict.reason, now)
                return now
            until = min(until, verdict.until)
        return until

    def _share(self, take: int, back: int) -> int:
        """Return how many rows go, of those that could; see `evenly`."""
        running = sum([len(batch.tickets) for batch in self._running])
        before, self._in_hand = self._in_hand, self.queued + back + running if back else 0
        return evenly(take, self.queued, back, running, before, self.settings.instances) if back else take

    def _sent_away(self, line: Line, now: float) -> bool:
        """Take out those who have just left, and rows that would be late, as long as others can have their place."""
        most, _ = most_rows(self.settings, self._pace, self.limit)
        dues = [ticket.due for ticket in line.tickets]
        before = too_late(self._pace, most, dues, self.queued > len(dues), now)
        away = [ticket for ticket in line.tickets if ticket.due < before or ticket.future.done()]
        expected = self._pace.expects(1)
        for ticket in away:
            self._take_out(line, ticket)
            if not ticket.future.done():
                self.tally.dropped += 1
                told = f"{max(0.0, ticket.due - now):.3f} s are left for it, and a call over one row takes {expected:.3f} s"
                ticket.answer(ModelError("overloaded", told, retry_after_s=expected))
        return bool(away)

    def _start(self, loop: asyncio.AbstractEventLoop, line: Line, count: int, reason: str, now: float) -> None:
        tickets = line.take(count)
        kind = tickets[0].kind
        del self._lines[kind]
        if len(line):
            self._lines[kind] = line  # behind the others: kinds take turns
        self.queued -= count
        batch = Batch(tickets, now)
        self.tally.goes(count, reason)
        for ticket in tickets:
            ticket.batch = batch
            self.tally.waited(now - ticket.came)
        rows = [ticket.row for ticket in tickets]
        self._free -= 1
        self._running.add(batch)
        if self._suspends:
            timeout_s = max(ticket.due for ticket in tickets) - now
            inner = cast("RemoteBackend", self.inner)
            batch.task = loop.create_task(acall(inner, rows, timeout_s, repeat=self._repeat))
            batch.task.add_done_callback(lambda task: self._awaited(loop, batch, task))
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.settings.instances, thread_name_prefix=f"batch-{self._name}")
        try:
            self._threads.submit(self._computed, loop, batch, cast("Backend", self.inner), rows)
        except RuntimeError as error:  # no thread can be had
            self._ended(loop, batch, Called([ModelError("crashed", str(error))] * count, 0, 0, failed=True))

    def _computed(self, loop: asyncio.AbstractEventLoop, batch: Batch, inner: Backend, rows: list[Row]) -> None:
        """In the thread: ask, and hand over what came of it."""
        called = call(inner, rows, repeat=self._repeat)
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._ended, loop, batch, called)

    def _awaited(self, loop: asyncio.AbstractEventLoop, batch: Batch, task: asyncio.Task[Called]) -> None:
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            told = "CancelledError, and nobody had cancelled it"
            why = _closed() if self._closed else ModelError("crashed", told)
        elif error is not None:
            why = ModelError("crashed", f"{type(error).__name__}: {error}")
        else:
            self._ended(loop, batch, task.result())
            return
        self._ended(loop, batch, Called([why] * len(batch.tickets), len(batch.tickets), failed=True))

    def _ended(self, loop: asyncio.AbstractEventLoop, batch: Batch, called: Called) -> None:
        """A call is over: let the next one begin, then give everybody his own reply."""
        self._running.discard(batch)
        self._free += 1
        try:
            self._note(batch, called)
            if self._lines:
                self._pump(loop, len(batch.tickets))
            else:
                self._in_hand = 0
        finally:
            for ticket, reply in zip(batch.tickets, called.replies, strict=True):
                ticket.answer(reply)

    def _note(self, batch: Batch, called: Called) -> None:
        """Learn from a call how long the next will take and how large it may be."""
        rows, seconds = len(batch.tickets), self._clock.monotonic() - batch.began
        self.tally.executions += called.calls
        self.tally.inferences += called.rows_asked
        self.tally.isolated += max(0, called.calls - 1)
        if not called.failed:
            self._pace = took(self._pace, rows, seconds)
        if not called.failed or called.out_of_memory:
            self.limit = limit_after(self.limit, self.settings, rows, seconds, out_of_memory=called.out_of_memory)

    def _left(self, ticket: Ticket) -> None:
        """Whoever asked has gone: a row that waits is not computed, a call that nobody waits for is stopped if it can be."""
        batch = ticket.batch
        if batch is None:
            line = self._lines.get(ticket.kind)
            if line is not None and ticket in line.tickets:
                self._take_out(line, ticket)
        elif batch.task is not None and batch.forsaken:
            batch.task.cancel()

    def _take_out(self, line: Line, ticket: Ticket) -> None:
        line.tickets.remove(ticket)
        self.queued -= 1
        if not len(line):
            del self._lines[ticket.kind]

    def _look_again(self, loop: asyncio.AbstractEventLoop, until: float, now: float) -> None:
        if self._alarm is not None:
            if self._alarm_at <= until:
                return
            self._alarm.cancel()
        self._alarm, self._alarm_at = loop.call_later(until - now, self._rung, loop), until

    def _rung(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm, self._alarm_at = None, inf
        self._pump(loop)

    def _fail(self, error: ModelError) -> None:
        """Give everybody who waits in the queue this answer."""
        waiting = [ticket for line in self._lines.values() for ticket in line.tickets]
        self._lines.clear()
        self.queued = 0
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm, self._alarm_at = None, inf
        for ticket in waiting:
            ticket.answer(error)


def _closed() -> ModelError:
    return ModelError("unavailable", "the model is closed")
