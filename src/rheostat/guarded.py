"""A store elsewhere, asked under a time limit and a breaker: one that is slow or away costs a request little time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec import Struct

from rheostat.clock import Clock
from rheostat.errors import MissingExtra, StoreError
from rheostat.resilience.breaker import CLOSED, BreakerSettings, BreakerState, abandoned, admits, failed, started, succeeded
from rheostat.types.duration import Duration

T = TypeVar("T")
_log = logging.getLogger("rheostat.store")
BREAKER = BreakerSettings(failure_threshold=3, success_threshold=1, timeout_seconds=Duration(5.0), error_rate=0.0)
"""Three failures in a row: it is left alone for 5 seconds, then one request tries it again."""


class RedisSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Redis server that gateways share. All keys begin with `prefix`. A request waits for it no longer than `timeout`; a
    server that keeps failing is left alone for 5 seconds at a time."""

    url: str
    prefix: str = "rheostat"
    timeout: Duration = Duration(0.05)

    def __post_init__(self) -> None:
        if not self.url.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("`url` must be redis://host:6379/0, rediss://host:6379/0 or unix:///path")
        if not self.timeout > 0.0:
            raise ValueError("`timeout` must be more than 0")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(url=***, prefix={self.prefix!r}, timeout={self.timeout:g})"

    def client(self, what: str) -> Any:
        """Return a client of redis-py that does not try again by itself.

        Args:
            what: what it is for, for the error.

        Raises:
            MissingExtra: redis-py is not installed.
        """
        try:
            from redis.asyncio import Redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ModuleNotFoundError:
            raise MissingExtra(f"{what} in Redis", "redis") from None
        limit = float(self.timeout)
        return Redis.from_url(
            self.url, socket_timeout=limit, socket_connect_timeout=limit, retry=Retry(NoBackoff(), 0), max_connections=64
        )


class Guarded:
    """Asks a store; whatever it does is a `StoreError`.

    Args:
        what: what is kept there, as the log says it: `the shared cache`.
        instead: what the gateway does without it, for the log.
        timeout_s: the longest that one question waits.
        mask: hides secrets in what the store's errors say.
    """

    def __init__(self, what: str, instead: str, clock: Clock, timeout_s: float, mask: Callable[[str], str] = str) -> None:
        self.timeout_s = timeout_s
        self.breaker: BreakerState = CLOSED
        self.failures = 0
        self.last_error: str | None = None
        self._what = what
        self._instead = instead
        self._clock = clock
        self._mask = mask

    @property
    def admits(self) -> bool:
        """False while the store is left alone."""
        return admits(self.breaker, BREAKER, self._clock.monotonic())

    async def ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what the store answers.

        Raises:
            StoreError: it is left alone, failed, or was too slow.
        """
        began = self._clock.monotonic()
        if not admits(self.breaker, BREAKER, began):
            raise StoreError(f"{self._what} is away: {self.last_error}")
        self.breaker = started(self.breaker, BREAKER, began)
        try:
            async with asyncio.timeout(self.timeout_s):
                found = await ask()
        except asyncio.CancelledError:
            self.breaker = abandoned(self.breaker, BREAKER, began, self._clock.monotonic())
            raise
        except Exception as error:
            self._failed(began, error)
            raise StoreError(f"{self._what} failed: {self.last_error}") from None
        self._went_well(began)
        return found

    def status(self) -> dict[str, object]:
        """Say how the store is: `ok` or `degraded`."""
        state = "ok" if self.breaker.name == "closed" and self.last_error is None else "degraded"
        return {"state": state, "failures": self.failures, "last_error": self.last_error}

    async def close(self, close: Callable[[], Awaitable[object]]) -> None:
        """Give back what was opened; a store that cannot even do that is let be."""
        try:
            async with asyncio.timeout(self.timeout_s + 1.0):
                await close()
        except Exception as error:
            _log.info("%s could not be closed in order: %s", self._what, self._mask(str(error)))

    def _went_well(self, began: float) -> None:
        before = self.breaker.name
        self.breaker = succeeded(self.breaker, BREAKER, began, self._clock.monotonic())
        if before != "closed" and self.breaker.name == "closed":
            self.last_error = None
            _log.info("%s is back", self._what)

    def _failed(self, began: float, error: Exception) -> None:
        self.failures += 1
        late = isinstance(error, TimeoutError)
        self.last_error = (
            f"no answer within {self.timeout_s:g} s" if late else self._mask(f"{type(error).__name__}: {error}")
        )
        before = self.breaker.name
        self.breaker = failed(self.breaker, BREAKER, began, self._clock.monotonic())
        if before == "closed" and self.breaker.name == "open":
            _log.warning("%s is away, %s: %s", self._what, self._instead, self.last_error)
