"""The rows of one list, served a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

BATCH_WORKERS = 32
"""Rows of one list that are served at a time when their models do not answer on the spot."""
_TURN = 16
One = Callable[[int], Awaitable[None]]


async def in_turns(count: int, one: One) -> None:
    """Serve rows one after another, letting other requests in between."""
    for index in range(count):
        await one(index)
        if index % _TURN == _TURN - 1:
            await asyncio.sleep(0)


async def in_parallel(count: int, one: One, most: int = 0) -> None:
    """Serve rows, some at a time, `most` of them if that is not 0. When this is cancelled, rows in flight are stopped and
    the others are not begun."""

    async def worker(order: Iterable[int]) -> None:
        for index in order:
            await one(index)

    order = iter(range(count))
    workers = [asyncio.ensure_future(worker(order)) for _ in range(min(BATCH_WORKERS, most or BATCH_WORKERS, count))]
    try:
        await asyncio.gather(*workers)
    finally:
        for running in workers:
            running.cancel()
