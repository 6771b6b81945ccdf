"""Answers in Redis."""

from __future__ import annotations

from typing import Any

from rheostat.guarded import RedisSettings


class RedisStore:
    """Keeps bytes in Redis under `prefix:answer:KEY`, which Redis forgets by itself when their time is over.

    Raises:
        MissingExtra: redis-py is not installed.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self._redis: Any = settings.client("the cache")
        self._prefix = f"{settings.prefix}:answer:".encode()

    async def get(self, key: bytes) -> bytes | None:
        """Return what is kept under `key`."""
        found: bytes | None = await self._redis.get(self._prefix + key.hex().encode())
        return found

    async def put(self, key: bytes, value: bytes, seconds: float) -> None:
        """Keep `value` for `seconds`."""
        await self._redis.set(self._prefix + key.hex().encode(), value, px=max(1, round(seconds * 1000.0)))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._redis.aclose()
