"""A client that leaves: noticed while its answer is made, so that the work for it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from rheostat.gateway.body import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed its connection; nobody waits for an answer."""


async def wait_for_leave(receive: Receive, task: asyncio.Task[Any]) -> None:
    """Cancel `task` when the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()


def left(watcher: asyncio.Task[None]) -> bool:
    """Return whether a task of `wait_for_leave` saw the client leave."""
    return watcher.done() and not watcher.cancelled()


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Do work that is never suspended, without a task for it.

    Raises:
        RuntimeError: it was suspended.
    """
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("work that answers at once was suspended")


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """Do the work while watching the client: when it leaves, the work stops.

    Raises:
        ClientGone: it left.
    """
    task = asyncio.current_task()
    assert task is not None
    watcher = asyncio.ensure_future(wait_for_leave(receive, task))
    try:
        return await work
    except asyncio.CancelledError:
        if left(watcher):
            task.uncancel()
            raise ClientGone from None
        raise
    finally:
        watcher.cancel()
