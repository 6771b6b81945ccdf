"""A request that stands in a model's queue."""

from __future__ import annotations

import asyncio

from rheostat.types import Failure


class Waiter:
    """`came` is set to None when its place has come, or to why there will be none. `deadline` is the request's."""

    __slots__ = ("came", "deadline")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.came: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()
