"""Whether requests cost what they usually do."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Self

from rheostat.types import RouteRecord
from rheostat.watch.finding import Finding
from rheostat.watch.keyed import Keyed
from rheostat.watch.settings import WatchSettings
from rheostat.watch.windows import Windows

_SURE = 5.0


class Costs:
    """Count, sum and sum of squares of what requests cost."""

    __slots__ = ("requests", "squares", "total")

    def __init__(self) -> None:
        self.requests = 0
        self.total = 0.0
        self.squares = 0.0

    def merge(self, other: Self) -> None:
        """Add the other's."""
        self.requests += other.requests
        self.total += other.total
        self.squares += other.squares

    @property
    def mean(self) -> float:
        """Cost of a request."""
        return self.total / self.requests

    @property
    def variance(self) -> float:
        """Of the mean."""
        return max(0.0, self.squares / self.requests - self.mean**2) / self.requests


class CostOverrun(Keyed[str, Costs]):
    """Finds a route whose requests cost several times what is usual."""

    def __init__(self, settings: WatchSettings) -> None:
        super().__init__(settings, Costs)

    def observe(self, record: RouteRecord, now: float) -> None:
        """Count what it cost."""
        costs = self.kept.at(record.route, now)
        costs.requests += 1
        costs.total += record.cost
        costs.squares += record.cost * record.cost

    def judge(self, key: str, windows: Windows[Costs], now: float) -> Iterator[Finding]:
        """Compare the means (Welch's t)."""
        recent, usual = windows.recent(now), windows.usual()
        least = self.settings.least
        if recent.requests < least or usual.requests < least or usual.mean <= 0.0:
            return
        error = sqrt(recent.variance + usual.variance)
        if recent.mean < self.settings.cost * usual.mean or recent.mean - usual.mean < _SURE * error:
            return
        yield Finding(
            kind="cost_overrun",
            subject=f"route {key}",
            text=f"a request costs {recent.mean:.4g}, {recent.mean / usual.mean:.1f} times the usual {usual.mean:.4g}",
            value=recent.mean,
            usual=usual.mean,
            requests=recent.requests,
        )
