"""Which models' weights are in memory: who may be loaded, and who has to go for it. Pure.

A model that is loaded on demand goes round `unloaded -> loading -> loaded -> unloaded`, or through `unloading` when it was
told to go while calls still used it. Sources: watermarks as in the Linux page cache; the longer protection of a model that
was missed soon after it had to go follows the idea of its refault distance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import inf
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from rheostat.types.bytes import bytes_of

MISSED_WITHIN = 4.0
"""A model wanted again within this many times its `keep` after an eviction was evicted too soon."""
MOST_BOUNCES = 4
"""Every such time doubles how long it is kept, up to 2 ** this."""
FIRST_RETRY_S = 1.0
LAST_RETRY_S = 60.0
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")

State = Literal["unloaded", "loading", "loaded", "unloading"]


class MemorySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much memory the gateway may fill with models that are loaded on demand (`resident: false`).

    `limit` is a size (`4GiB`, `500MB`: what this process may take in all) or a share (`70%`) of the container's memory
    limit, or of the machine's memory where there is none; that one holds beside a size, too. When a load would fill more
    than the share `high` of it, the models that were used longest ago are unloaded until less than `low` is full; a model
    that does not fit under `limit` even so is not loaded, and its requests fall back.
    """

    limit: str = "100%"
    high: float = 0.85
    low: float = 0.7

    def __post_init__(self) -> None:
        amount = self.amount
        if self.limit.strip().endswith("%") and not 0.0 < amount <= 1.0:
            raise ValueError(f"`limit` must be more than 0% and at most 100%, got {self.limit}")
        if not self.limit.strip().endswith("%") and amount < 2**20:
            raise ValueError(f"`limit` must be 1MiB or more, got {self.limit}")
        if not 0.0 < self.high <= 1.0:
            raise ValueError(f"`high` must be more than 0 and at most 1, got {self.high:g}")
        if not 0.0 < self.low <= self.high:
            raise ValueError(f"`low` must be more than 0 and at most `high` ({self.high:g}), got {self.low:g}")

    @property
    def is_share(self) -> bool:
        """True when `limit` is a share."""
        return self.limit.strip().endswith("%")

    @property
    def amount(self) -> float:
        """`limit` in bytes, or as a share in (0, 1]."""
        share = _SHARE.fullmatch(self.limit.strip())
        if share is not None:
            return float(share[1]) * 0.01
        try:
            return float(bytes_of(self.limit))
        except ValueError:
            told = f"`limit` must be a size such as 4GiB or 500MB, or a share such as 70%, got {self.limit!r}"
            raise ValueError(told) from None


class Room(NamedTuple):
    """Bytes that are free now under the limit and the two marks; negative when it is fuller than that."""

    limit: float
    high: float
    low: float


class Holding(Struct, frozen=True, gc=False):
    """One model that is loaded on demand.

    `bytes` is what it takes, measured (a guess from its files before it was ever loaded); `keep_s` how long it stays at
    least. `users` calls compute on it now. `bounces` counts how often in a row it was missed soon after an eviction, and
    `failures` loads that failed in a row: none is tried before `retry_at`.
    """

    bytes: int = 0
    keep_s: float = 60.0
    state: State = "unloaded"
    users: int = 0
    pinned: bool = False
    loaded_at: float = -inf
    used_at: float = -inf
    evicted_at: float = -inf
    bounces: int = 0
    failures: int = 0
    retry_at: float = -inf


class Plan(NamedTuple):
    """What has to go before a model is loaded; or, with `refused`, why it cannot be loaded now, when to ask again, and
    whether that is only because of calls that run now (`busy`)."""

    evict: tuple[str, ...] = ()
    refused: str = ""
    retry_after_s: float = 0.0
    busy: bool = False


def wanted(holding: Holding, now: float) -> Holding:
    """Take note that a model that is not loaded is asked for: was it evicted too soon?"""
    if holding.evicted_at == -inf:
        return holding
    soon = now - holding.evicted_at < MISSED_WITHIN * holding.keep_s
    return structs.replace(holding, evicted_at=-inf, bounces=min(holding.bounces + 1, MOST_BOUNCES) if soon else 0)


def loading(holding: Holding) -> Holding:
    """Its load begins."""
    _must_be(holding, "unloaded")
    return structs.replace(holding, state="loading")


def loaded(holding: Holding, size: int, now: float) -> Holding:
    """Its load has ended; it takes `size` bytes."""
    _must_be(holding, "loading")
    return structs.replace(holding, state="loaded", bytes=size, loaded_at=now, used_at=now, failures=0, retry_at=-inf)


def failed(holding: Holding, now: float) -> Holding:
    """Its load failed: the next one is tried after a pause that doubles, up to a minute."""
    _must_be(holding, "loading")
    pause = min(FIRST_RETRY_S * 2.0**holding.failures, LAST_RETRY_S)
    return structs.replace(holding, state="unloaded", failures=min(holding.failures + 1, 30), retry_at=now + pause)


def refused(holding: Holding, until: float) -> Holding:
    """There is no room for it: ask again at `until`, or when something else goes."""
    _must_be(holding, "loading")
    return structs.replace(holding, state="unloaded", retry_at=until)


def entered(holding: Holding, now: float) -> Holding:
    """A call uses it."""
    _must_be(holding, "loaded")
    return structs.replace(holding, users=holding.users + 1, used_at=now)


def left(holding: Holding, now: float) -> Holding:
    """A call has ended; the last one lets an unloading model go."""
    users = holding.users - 1
    if users < 0:
        raise ValueError("more calls ended than began")
    if holding.state == "unloading" and not users:
        return structs.replace(holding, state="unloaded", users=0)
    return structs.replace(holding, users=users, used_at=now)


def sent_off(holding: Holding) -> Holding:
    """Unload a loaded model on request: at once, or when the calls that use it have ended."""
    _must_be(holding, "loaded")
    return structs.replace(holding, state="unloading" if holding.users else "unloaded")


def evicted(holding: Holding, now: float) -> Holding:
    """Unload it to make room.

    Raises:
        ValueError: it is in use, pinned or not loaded.
    """
    _must_be(holding, "loaded")
    if holding.users or holding.pinned:
        raise ValueError("a model that is pinned or in use is not evicted")
    return structs.replace(holding, state="unloaded", evicted_at=now)


def kept_until(holding: Holding) -> float:
    """Return until when it is kept: its minimum time in memory, twice as long for every time it was missed."""
    return holding.loaded_at + holding.keep_s * 2.0**holding.bounces


def make_room(name: str, holdings: Mapping[str, Holding], room: Room, now: float, forced: bool = False) -> Plan:
    """Say what has to go before `name` is loaded: those used longest ago, until `low` is reached.

    A model that is pinned, in use or not kept long enough yet stays; `forced` (an operator's wish) overrides the last.
    Nothing is evicted for a load that would not fit all the same.
    """
    need = holdings[name].bytes
    if need <= room.high:
        return Plan()
    there = [(key, each) for key, each in holdings.items() if key != name and each.state == "loaded" and not each.pinned]
    idle = [(key, each) for key, each in there if not each.users]
    free = [(key, each) for key, each in idle if forced or kept_until(each) <= now]
    chosen, freed = _oldest(free, need - room.low)
    if need <= room.limit + freed:
        return Plan(chosen)
    if need <= room.limit + sum(each.bytes for _, each in idle):
        waits = sorted((kept_until(each), each.bytes) for _, each in idle if kept_until(each) > now)
        for until, size in waits:
            freed += size
            if need <= room.limit + freed:
                return Plan((), _told(need, room, "what is in memory was loaded too short a time ago (`keep`)"), until - now)
    going = [each for each in holdings.values() if each.state == "unloading"]
    if need <= room.limit + sum(each.bytes for _, each in there) + sum(each.bytes for each in going):
        return Plan((), _told(need, room, "what is in memory is in use"), FIRST_RETRY_S, True)
    return Plan((), _told(need, room, "nothing more can be unloaded"), LAST_RETRY_S)


def relieve(holdings: Mapping[str, Holding], room: Room, now: float) -> tuple[str, ...]:
    """Say what has to go because memory is fuller than `high`; above the limit itself, `keep` does not hold."""
    if room.high >= 0.0:
        return ()
    over = room.limit < 0.0
    free = [
        (key, each)
        for key, each in holdings.items()
        if each.state == "loaded" and not each.pinned and not each.users and (over or kept_until(each) <= now)
    ]
    return _oldest(free, -room.low)[0]


def _oldest(free: Iterable[tuple[str, Holding]], wanted_bytes: float) -> tuple[tuple[str, ...], int]:
    chosen: list[str] = []
    freed = 0
    for key, each in sorted(free, key=lambda pair: (pair[1].used_at, pair[0])):
        if freed >= wanted_bytes:
            break
        chosen.append(key)
        freed += each.bytes
    return tuple(chosen), freed


def _told(need: int, room: Room, why: str) -> str:
    return f"no room: it takes {need / 2**20:.0f} MiB, {max(0.0, room.limit) / 2**20:.0f} MiB are free, and {why}"


def _must_be(holding: Holding, state: State) -> None:
    if holding.state != state:
        raise ValueError(f"expected a model that is {state}, this one is {holding.state}")
