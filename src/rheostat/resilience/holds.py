"""What hysteresis remembers, bounded in number and age."""

from __future__ import annotations

from collections import OrderedDict

import xxhash

MAX_KEY = 64  # longer keys are kept as their hash


class Holds:
    """Remember one short value per key: at most `limit` (1 or more) keys, each for `idle_s` seconds after its last use.

    The least recently used go first; a forgotten key simply starts anew.
    """

    def __init__(self, limit: int = 10_000, idle_s: float = 600.0) -> None:
        if limit < 1:
            raise ValueError(f"`limit` must be 1 or more, got {limit}")
        self.limit = limit
        self.idle_s = idle_s
        self._entries: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str, now: float) -> str | None:
        """Return what is held for `key`, or None."""
        key = short_key(key)
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, used = entry
        if now - used > self.idle_s:
            del self._entries[key]
            return None
        self._entries[key] = (value, now)
        self._entries.move_to_end(key)
        return value

    def put(self, key: str, value: str, now: float) -> None:
        """Hold `value` for `key`."""
        key = short_key(key)
        self._entries[key] = (value, now)
        self._entries.move_to_end(key)
        while len(self._entries) > self.limit:
            self._entries.popitem(last=False)
        oldest = next(iter(self._entries))
        if now - self._entries[oldest][1] > self.idle_s:
            del self._entries[oldest]


def short_key(key: str) -> str:
    """Return a key of at most `MAX_KEY` characters: itself, or its hash."""
    return key if len(key) <= MAX_KEY else xxhash.xxh3_128_hexdigest(key.encode("utf-8", "surrogatepass"))
