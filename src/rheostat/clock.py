"""Time is injected: the system's clock in service, a manual one in tests."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two kinds of time that must not be mixed."""

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps; for deadlines, durations and breakers."""

    def wall(self) -> float:
        """Seconds since 1970 UTC; for people reading records only."""


class SystemClock:
    """The machine's own clocks."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class ManualClock:
    """A clock that moves only when told; both times move together."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move time forward by `seconds` (>= 0)."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._now += seconds
