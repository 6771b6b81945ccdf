"""A monitor that counts by key and compares lately with usual."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from rheostat.types import Feedback, RouteRecord
from rheostat.watch.finding import Finding
from rheostat.watch.settings import WatchSettings
from rheostat.watch.windows import Kept, Sum, Windows

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Sum)


class Keyed(ABC, Generic[K, T]):
    """Counts by key; while something is found there, what happens does not become usual."""

    def __init__(self, settings: WatchSettings, make: Callable[[], T], slots: int = 6) -> None:
        self.settings = settings
        self.kept: Kept[K, T] = Kept(make, float(settings.window), float(settings.usual), slots)
        self._subjects: dict[K, frozenset[str]] = {}

    @abstractmethod
    def observe(self, record: RouteRecord, now: float) -> None:
        """Take note of a finished request."""

    @abstractmethod
    def judge(self, key: K, windows: Windows[T], now: float) -> Iterable[Finding]:
        """Return what is not as usual there now."""

    def judged(self, feedback: Feedback, now: float) -> None:
        """Judgements are of no use to most monitors."""

    def findings(self, now: float) -> Iterator[Finding]:
        """Return what is not as usual now."""
        for key, windows in self.kept:
            found = tuple(self.judge(key, windows, now))
            windows.frozen = bool(found)
            self._subjects[key] = frozenset(each.subject for each in found)
            yield from found

    def accept(self, subject: str) -> None:
        """Take what happens there now for usual."""
        for key, windows in self.kept:
            if subject in self._subjects.get(key, ()):
                windows.accept()
