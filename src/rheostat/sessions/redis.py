"""Conversations in Redis, which machines may share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from rheostat.clock import Clock
from rheostat.guarded import Guarded
from rheostat.sessions.settings import SessionRedis
from rheostat.sessions.store import LEASE_S, NOTHING, OVERHEAD, Change, Kept, SessionKey, Told

T = TypeVar("T")
# Each is one script, so that it is whole or not at all. KEYS: the lease, the head with what is told, the turns.
# `count` beside the turns tells when Redis, short of memory, has dropped one key and not the other.
_OPEN: Final = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
local turns = redis.call('LRANGE', KEYS[3], 0, -1)
if tonumber(redis.call('HGET', KEYS[2], 'count') or '0') ~= #turns then
  redis.call('DEL', KEYS[2], KEYS[3])
  return {''}
end
return {redis.call('HGET', KEYS[2], 'head') or '', unpack(turns)}
"""
_RENEW: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
_CLOSE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
if #ARGV == 1 then return 1 end
local first, last = tonumber(ARGV[2]), tonumber(ARGV[3])
if last <= first then redis.call('DEL', KEYS[3]) else redis.call('LTRIM', KEYS[3], first, last - 1) end
for at = 8, #ARGV do redis.call('RPUSH', KEYS[3], ARGV[at]) end
redis.call('HSET', KEYS[2], 'head', ARGV[4], 'key', ARGV[5], 'used', ARGV[6], 'count', redis.call('LLEN', KEYS[3]))
redis.call('PEXPIRE', KEYS[2], ARGV[7])
redis.call('PEXPIRE', KEYS[3], ARGV[7])
return 1
"""
_PAGE = 200


class RedisStore:
    """Keeps each session for `max_age_s` seconds after its last turn, under `prefix:session:{DIGEST}`.

    Raises:
        MissingExtra: redis-py is not installed.
    """

    def __init__(self, settings: SessionRedis, clock: Clock, max_age_s: float, mask: Callable[[str], str] = str) -> None:
        instead = "requests that need what was said before are refused"
        self.guarded = Guarded("the store of sessions", instead, clock, float(settings.timeout), mask)
        self._redis: Any = settings.client("sessions")
        self._prefix = f"{settings.prefix}:session:"
        self._clock = clock
        self._lease_ms = str(round(LEASE_S * 1000))
        self._age_ms = str(max(1, round(max_age_s * 1000)))
        self._open, self._renew, self._close = map(self._redis.register_script, (_OPEN, _RENEW, _CLOSE))

    async def open(self, key: SessionKey, token: str) -> Kept | None:
        found = await self._ask(lambda: self._open(self._keys(key), (token, self._lease_ms)))
        if found is None:
            return None
        return Kept(found[0], tuple(found[1:])) if found[0] else NOTHING

    async def renew(self, key: SessionKey, token: str) -> bool:
        return bool(await self._ask(lambda: self._renew(self._keys(key), (token, self._lease_ms))))

    async def close(self, key: SessionKey, token: str, change: Change | None) -> bool:
        values: tuple[Any, ...] = (token,)
        if change is not None:
            name, used = msgspec.json.encode(key), repr(self._clock.wall())
            values += (change.first, change.last, change.head, name, used, self._age_ms, *change.turns)
        return bool(await self._ask(lambda: self._close(self._keys(key), values)))

    async def forget(self, key: SessionKey) -> bool:
        lease, head, turns = self._keys(key)
        gone: int = await self._ask(lambda: self._redis.delete(head, turns))
        await self._ask(lambda: self._redis.delete(lease))
        return gone > 0

    async def told(self, most: int) -> Sequence[Told]:
        found: list[Told] = []
        cursor: Any = 0
        while True:
            cursor, names = await self._page(cursor)
            for name in names:
                told = await self._told(name)
                if told is not None:
                    found.append(told)
            if not cursor:
                break
        return sorted(found, key=lambda each: -each.used)[:most]

    async def aclose(self) -> None:
        await self.guarded.close(self._redis.aclose)

    async def _page(self, cursor: Any) -> Any:
        return await self._ask(lambda: self._redis.scan(cursor, f"{self._prefix}*:head", _PAGE))

    async def _told(self, name: bytes) -> Told | None:
        stem = name.removesuffix(b":head")

        async def read() -> Any:
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.hmget(name, "key", "used", "count", "head")
                pipe.lrange(stem + b":turns", 0, -1)
                pipe.exists(stem + b":lease")
                return await pipe.execute()

        (key, used, count, head), turns, busy = await self._ask(read)
        if key is None:
            return None
        tenant, session = msgspec.json.decode(key, type=tuple[str | None, str])
        size = OVERHEAD + len(head) + sum(map(len, turns))
        return Told(tenant, session, int(count), size, float(used), bool(busy))

    def _keys(self, key: SessionKey) -> tuple[str, str, str]:
        stem = f"{self._prefix}{{{key.digest}}}"  # braces: a cluster keeps the three together
        return f"{stem}:lease", f"{stem}:head", f"{stem}:turns"

    async def _ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await self.guarded.ask(ask)
