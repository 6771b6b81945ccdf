"""Equal requests of the same moment: one is answered by the models, the others wait for its answer."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Flights(Generic[T]):
    """What is being answered now, by question. Whoever finds nobody ahead of him leads; who waits holds no place of a model.

    A leader that leaves without an answer to share (its client is gone, its own time was over) harms nobody: the first of
    those that wait leads next.
    """

    def __init__(self) -> None:
        self._ahead: dict[bytes, asyncio.Future[T | None]] = {}

    def __len__(self) -> int:
        return len(self._ahead)

    async def join(self, key: bytes, seconds: float) -> T | None:
        """Wait at most `seconds` for the answer of those ahead; None: lead, or the time is over (see `lead`)."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (ahead := self._ahead.get(key)) is not None:
            left = until - loop.time()
            if left <= 0.0:
                return None
            done, _ = await asyncio.wait((ahead,), timeout=None if left == float("inf") else left)
            if done and (came := ahead.result()) is not None:
                return came
        return None

    def lead(self, key: bytes) -> bool:
        """Take the lead; False when somebody else has it, whose time this request did not have."""
        if key in self._ahead:
            return False
        self._ahead[key] = asyncio.get_running_loop().create_future()
        return True

    def landed(self, key: bytes, answer: T | None) -> None:
        """The leader has ended, with what the others may have, or with None."""
        self._ahead.pop(key).set_result(answer)
