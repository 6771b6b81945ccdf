"""Rows of a batched model on their way: waiting for company, then for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from rheostat.pool.backend import Reply, Row
from rheostat.pool.batch_call import Called


class Ticket:
    """A row; `came` and `due` are monotonic seconds, `rings_at` is `due` by the loop, `batch` what it went with."""

    __slots__ = ("batch", "came", "due", "future", "kind", "rank", "rings_at", "row")

    def __init__(
        self, row: Row, kind: Hashable, rank: int, came: float, timeout_s: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.row, self.kind, self.rank, self.came = row, kind, rank, came
        self.due, self.rings_at = came + timeout_s, loop.time() + timeout_s
        self.future: asyncio.Future[Reply] = loop.create_future()
        self.batch: Batch | None = None

    def ring(self) -> None:
        """Its time is over."""
        if not self.future.done():
            self.future.set_exception(TimeoutError())

    def answer(self, reply: Reply) -> None:
        """Give whoever waits his reply."""
        if not self.future.done():
            self.future.set_result(reply)


class Batch:
    """Rows that go through the model in one call; `task` is that call where it suspends."""

    __slots__ = ("began", "task", "tickets")

    def __init__(self, tickets: list[Ticket], began: float) -> None:
        self.tickets, self.began = tickets, began
        self.task: asyncio.Task[Called] | None = None

    @property
    def forsaken(self) -> bool:
        """True when nobody waits for any of its rows."""
        return all(ticket.future.done() for ticket in self.tickets)


class Line:
    """Rows of one kind that wait: by rank, smaller first, and within a rank by arrival."""

    __slots__ = ("tickets",)

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []

    def __len__(self) -> int:
        return len(self.tickets)

    @property
    def rank(self) -> int:
        """The most urgent one's."""
        return self.tickets[0].rank

    @property
    def oldest(self) -> float:
        """When the first of them came."""
        return min([ticket.came for ticket in self.tickets])

    def add(self, ticket: Ticket) -> None:
        """Put a row where it belongs."""
        at = len(self.tickets)
        while at and self.tickets[at - 1].rank > ticket.rank:
            at -= 1
        self.tickets.insert(at, ticket)

    def take(self, count: int) -> list[Ticket]:
        """Take out the first ones."""
        taken, self.tickets = self.tickets[:count], self.tickets[count:]
        return taken
