"""A client that leaves: noticed while its answer is made, so that the work for it stops."""

from __future__ import annotations

import asyncio
from typing import Any

from rheostat.gateway.body import Receive


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
