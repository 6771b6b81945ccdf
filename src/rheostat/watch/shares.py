"""Whether models get as much of a route's traffic as they usually do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from rheostat.types import RouteRecord
from rheostat.watch.compare import shares_apart
from rheostat.watch.finding import Finding
from rheostat.watch.keyed import Keyed
from rheostat.watch.settings import WatchSettings
from rheostat.watch.windows import Windows

_SURE = 5.0  # standard errors


class Calls:
    """How many requests there were, and how many of them asked each model."""

    __slots__ = ("by_model", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.by_model: dict[str, int] = {}

    def merge(self, other: Self) -> None:
        """Add the other's."""
        self.requests += other.requests
        for model, count in other.by_model.items():
            self.by_model[model] = self.by_model.get(model, 0) + count


class ShareDrift(Keyed[str, Calls]):
    """Finds a model whose share of a route's requests moved away from its usual one."""

    def __init__(self, settings: WatchSettings) -> None:
        super().__init__(settings, Calls)

    def observe(self, record: RouteRecord, now: float) -> None:
        """Count who was asked."""
        if record.forced or not record.outcomes:
            return
        calls = self.kept.at(record.route, now)
        calls.requests += 1
        by_model = calls.by_model
        for outcome in record.outcomes:
            name = outcome.model
            by_model[name] = by_model.get(name, 0) + 1

    def judge(self, key: str, windows: Windows[Calls], now: float) -> Iterator[Finding]:
        """Compare every model's share."""
        recent, usual = windows.recent(now), windows.usual()
        least = self.settings.least
        if recent.requests < least or usual.requests < least:
            return
        for model in sorted({*recent.by_model, *usual.by_model}):
            found, before = recent.by_model.get(model, 0), usual.by_model.get(model, 0)
            here, there = found / recent.requests, before / usual.requests
            apart = shares_apart(found, recent.requests, before, usual.requests)
            if abs(here - there) >= self.settings.share and abs(apart) >= _SURE:
                yield Finding(
                    kind="share_drift",
                    subject=f"route {key}, model {model}",
                    text=f"{here:.0%} of the requests asked {model}; {there:.0%} are usual",
                    value=here,
                    usual=there,
                    requests=recent.requests,
                )
