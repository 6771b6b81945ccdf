"""Answers shared between gateways. The store is an optimisation: when it is slow or away, requests go on without it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from rheostat.clock import Clock
from rheostat.resilience.breaker import CLOSED, BreakerSettings, BreakerState, abandoned, admits, failed, started, succeeded
from rheostat.types.duration import Duration

T = TypeVar("T")
_log = logging.getLogger("rheostat.cache")
BREAKER = BreakerSettings(failure_threshold=3, success_threshold=1, timeout_seconds=Duration(5.0), error_rate=0.0)
"""Three failures in a row: it is left alone for 5 seconds, then one request tries it again."""
MOST_WRITES = 256
"""Writes under way; what comes beyond is not shared."""


class Store(Protocol):
    """Speaks to a store of bytes; any exception says that it failed."""

    async def get(self, key: bytes) -> bytes | None: ...

    async def put(self, key: bytes, value: bytes, seconds: float) -> None: ...

    async def aclose(self) -> None: ...


class Shared:
    """A store under a time limit and a breaker. Nothing it does can fail a request.

    Args:
        store: where the answers are.
        timeout_s: the longest that a request, or a write in the background, waits for it.
        mask: hides secrets in what the store's errors say.
    """

    def __init__(self, store: Store, clock: Clock, timeout_s: float, mask: Callable[[str], str] = str) -> None:
        self.store = store
        self.timeout_s = timeout_s
        self.breaker: BreakerState = CLOSED
        self.failures = 0
        self.last_error: str | None = None
        self._clock = clock
        self._mask = mask
        self._writes: set[asyncio.Task[None]] = set()

    async def get(self, key: bytes) -> bytes | None:
        """Return what is kept under `key`; None when there is nothing or the store is away."""
        return await self._asked(lambda: self.store.get(key))

    def put(self, key: bytes, value: bytes, seconds: float) -> None:
        """Keep `value` for `seconds`, in the background."""
        if len(self._writes) < MOST_WRITES and admits(self.breaker, BREAKER, self._clock.monotonic()):
            task = asyncio.ensure_future(self._asked(lambda: self.store.put(key, value, seconds)))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Ask the store under its breaker and time limit; None when it is left alone or fails."""
        began = self._clock.monotonic()
        if not admits(self.breaker, BREAKER, began):
            return None
        self.breaker = started(self.breaker, BREAKER, began)
        try:
            async with asyncio.timeout(self.timeout_s):
                found = await ask()
        except asyncio.CancelledError:
            self.breaker = abandoned(self.breaker, BREAKER, began, self._clock.monotonic())
            raise
        except Exception as error:
            self._failed(began, error)
            return None
        self._went_well(began)
        return found

    def _went_well(self, began: float) -> None:
        before = self.breaker.name
        self.breaker = succeeded(self.breaker, BREAKER, began, self._clock.monotonic())
        if before != "closed" and self.breaker.name == "closed":
            self.last_error = None
            _log.info("the shared cache is back")

    def _failed(self, began: float, error: Exception) -> None:
        self.failures += 1
        late = isinstance(error, TimeoutError)
        self.last_error = (
            f"no answer within {self.timeout_s:g} s" if late else self._mask(f"{type(error).__name__}: {error}")
        )
        before = self.breaker.name
        self.breaker = failed(self.breaker, BREAKER, began, self._clock.monotonic())
        if before == "closed" and self.breaker.name == "open":
            _log.warning("the shared cache is away, answers are kept in this gateway only: %s", self.last_error)

    def status(self) -> dict[str, object]:
        """Say how the store is: `ok` or `degraded`."""
        state = "ok" if self.breaker.name == "closed" and self.last_error is None else "degraded"
        return {"state": state, "failures": self.failures, "last_error": self.last_error}

    async def aclose(self) -> None:
        """Give back what was opened; writes under way are given up."""
        writes = tuple(self._writes)
        for task in writes:
            task.cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        try:
            async with asyncio.timeout(self.timeout_s + 1.0):
                await self.store.aclose()
        except Exception as error:
            _log.info("the shared cache could not be closed in order: %s", self._mask(str(error)))
