"""Conversations in this process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from rheostat.clock import Clock
from rheostat.sessions.store import LEASE_S, NOTHING, OVERHEAD, Change, Kept, SessionKey, Told, changed, size_of


class _Entry:
    __slots__ = ("kept", "size", "token", "until", "used")

    def __init__(self) -> None:
        self.kept = NOTHING
        self.size = OVERHEAD
        self.token = ""
        self.until = 0.0
        self.used = 0.0


class MemoryStore:
    """Keeps about `max_total` bytes, each session for `max_age_s` seconds after its last turn."""

    def __init__(self, clock: Clock, max_age_s: float, max_total: int) -> None:
        self.bytes = 0
        self._clock = clock
        self._max_age_s = max_age_s
        self._max_total = max_total
        self._entries: OrderedDict[SessionKey, _Entry] = OrderedDict()  # used last comes last

    def __len__(self) -> int:
        return len(self._entries)

    async def open(self, key: SessionKey, token: str) -> Kept | None:
        now = self._clock.wall()
        entry = self._entries.get(key)
        if entry is not None and entry.token and entry.until > now:
            return None
        if entry is not None and entry.kept is not NOTHING and now - entry.used >= self._max_age_s:
            self._drop(key)
            entry = None
        if entry is None:
            entry = self._entries[key] = _Entry()
            self.bytes += entry.size
        entry.token, entry.until = token, now + LEASE_S
        return entry.kept

    async def renew(self, key: SessionKey, token: str) -> bool:
        entry = self._entries.get(key)
        if entry is None or entry.token != token or entry.until <= self._clock.wall():
            return False
        entry.until = self._clock.wall() + LEASE_S
        return True

    async def close(self, key: SessionKey, token: str, change: Change | None) -> bool:
        entry = self._entries.get(key)
        if entry is None or entry.token != token or entry.until <= self._clock.wall():
            return False
        entry.token = ""
        if change is not None:
            entry.kept, entry.used = changed(entry.kept, change), self._clock.wall()
            self.bytes -= entry.size
            entry.size = size_of(entry.kept)
            self.bytes += entry.size
            self._entries.move_to_end(key)
            self._tidy()
        elif entry.kept is NOTHING:
            self._drop(key)
        return True

    async def forget(self, key: SessionKey) -> bool:
        entry = self._entries.get(key)
        if entry is None:
            return False
        self._drop(key)
        return entry.kept is not NOTHING

    async def told(self, most: int) -> Sequence[Told]:
        now = self._clock.wall()
        found: list[Told] = []
        for key, entry in reversed(self._entries.items()):
            if len(found) >= most:
                break
            if entry.kept is not NOTHING and now - entry.used < self._max_age_s:
                busy = bool(entry.token) and entry.until > now
                found.append(Told(*key, len(entry.kept.turns), entry.size, entry.used, busy))
        return found

    async def aclose(self) -> None:
        self._entries.clear()
        self.bytes = 0

    def _tidy(self) -> None:
        """Drop what is too old, and what is too much."""
        now = self._clock.wall()
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            old = now - entry.used >= self._max_age_s and not (entry.token and entry.until > now)
            if not old and self.bytes <= self._max_total:
                return
            self._drop(key)

    def _drop(self, key: SessionKey) -> None:
        self.bytes -= self._entries.pop(key).size
