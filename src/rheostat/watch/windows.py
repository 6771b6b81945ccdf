"""What happened lately, and what is usual."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, Protocol, Self, TypeVar

_COARSE = 24
MOST_KEYS = 1_000


class Sum(Protocol):
    """Something counted that can be added up."""

    def merge(self, other: Self, /) -> None: ...


T = TypeVar("T", bound=Sum)
K = TypeVar("K", bound=Hashable)


class Windows(Generic[T]):
    """Keeps what was counted in the last `recent_s` seconds apart from what was counted in the `usual_s` before that.

    Args:
        make: an empty count.
        slots: parts into which the recent time is cut; a slot is forgotten as one.
    """

    def __init__(self, make: Callable[[], T], recent_s: float, usual_s: float, slots: int = 6) -> None:
        self._make = make
        self._slot_s = recent_s / slots
        self._coarse_s = max(usual_s / _COARSE, self._slot_s)
        self._slots = slots
        self._recent: deque[tuple[int, T]] = deque()
        self._usual: deque[tuple[int, T]] = deque()
        self._usually: T | None = None  # their sum, until they change
        self.frozen = False
        """True: what leaves the recent time does not become usual."""

    def at(self, now: float) -> T:
        """Return the count to which something that happens `now` belongs; a time before the last one counts as the last."""
        slot = int(now / self._slot_s)
        recent = self._recent
        if recent and recent[-1][0] >= slot:
            return recent[-1][1]
        self._move(slot)
        made = self._make()
        recent.append((slot, made))
        return made

    def recent(self, now: float) -> T:
        """Return what was counted lately."""
        self._move(int(now / self._slot_s))
        return self._sum(self._recent)

    def usual(self) -> T:
        """Return what was counted before that: not to be changed, and not to be kept."""
        if self._usually is None:
            self._usually = self._sum(self._usual)
        return self._usually

    def slots(self, now: float) -> list[T]:
        """Return the recent time slot by slot, oldest first."""
        self._move(int(now / self._slot_s))
        return [each for _, each in self._recent]

    def accept(self) -> None:
        """Forget what was usual: what happens from now on is."""
        self._usual.clear()
        self._usually = None
        self.frozen = False

    def _sum(self, kept: deque[tuple[int, T]]) -> T:
        total = self._make()
        for _, each in kept:
            total.merge(each)
        return total

    def _move(self, slot: int) -> None:
        while self._recent and self._recent[0][0] <= slot - self._slots:
            old, each = self._recent.popleft()
            if self.frozen:
                continue
            if self._usually is not None:
                self._usually.merge(each)
            coarse = int(old * self._slot_s / self._coarse_s)
            if self._usual and self._usual[-1][0] == coarse:
                self._usual[-1][1].merge(each)
            else:
                self._usual.append((coarse, each))
        oldest = int(slot * self._slot_s / self._coarse_s) - _COARSE
        while not self.frozen and self._usual and self._usual[0][0] < oldest:
            self._usual.popleft()
            self._usually = None


class Kept(Generic[K, T]):
    """Windows by key; at most 1,000 of them, beyond which a new key takes the place of the oldest."""

    def __init__(self, make: Callable[[], T], recent_s: float, usual_s: float, slots: int = 6) -> None:
        self._make = make
        self._sizes = (recent_s, usual_s, slots)
        self._windows: dict[K, Windows[T]] = {}

    def at(self, key: K, now: float) -> T:
        """Return the count of `key` to which something that happens `now` belongs."""
        windows = self._windows.get(key)
        return (windows if windows is not None else self._new(key)).at(now)

    def get(self, key: K) -> Windows[T] | None:
        """Return the windows of a key, if anything was counted."""
        return self._windows.get(key)

    def __iter__(self) -> Iterator[tuple[K, Windows[T]]]:
        return iter(list(self._windows.items()))

    def drop(self, key: K) -> None:
        """Forget a key."""
        self._windows.pop(key, None)

    def _new(self, key: K) -> Windows[T]:
        if len(self._windows) >= MOST_KEYS:
            del self._windows[next(iter(self._windows))]
        made = self._windows[key] = Windows(self._make, *self._sizes)
        return made
