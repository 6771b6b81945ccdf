"""Answers shared between gateways. The store is an optimisation: when it is slow or away, requests go on without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from rheostat.clock import Clock
from rheostat.errors import StoreError
from rheostat.guarded import Guarded

T = TypeVar("T")
MOST_WRITES = 256
"""Writes under way; what comes beyond is not shared."""


class Store(Protocol):
    """Speaks to a store of bytes; any exception says that it failed."""

    async def get(self, key: bytes) -> bytes | None: ...

    async def put(self, key: bytes, value: bytes, seconds: float) -> None: ...

    async def aclose(self) -> None: ...


class Shared(Guarded):
    """A store under a time limit and a breaker. Nothing it does can fail a request.

    Args:
        store: where the answers are.
        timeout_s: the longest that a request, or a write in the background, waits for it.
        mask: hides secrets in what the store's errors say.
    """

    def __init__(self, store: Store, clock: Clock, timeout_s: float, mask: Callable[[str], str] = str) -> None:
        super().__init__("the shared cache", "answers are kept in this gateway only", clock, timeout_s, mask)
        self.store = store
        self._writes: set[asyncio.Task[None]] = set()

    async def get(self, key: bytes) -> bytes | None:
        """Return what is kept under `key`; None when there is nothing or the store is away."""
        return await self._tried(lambda: self.store.get(key))

    def put(self, key: bytes, value: bytes, seconds: float) -> None:
        """Keep `value` for `seconds`, in the background."""
        if len(self._writes) < MOST_WRITES and self.admits:
            task = asyncio.ensure_future(self._tried(lambda: self.store.put(key, value, seconds)))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def _tried(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await self.ask(ask)
        except StoreError:
            return None

    async def aclose(self) -> None:
        """Give back what was opened; writes under way are given up."""
        writes = tuple(self._writes)
        for task in writes:
            task.cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        await self.close(self.store.aclose)
