"""Whether more requests than allowed fail, fall back or find no place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from rheostat.types import RouteRecord
from rheostat.watch.compare import shares_apart
from rheostat.watch.finding import Finding
from rheostat.watch.keyed import Keyed
from rheostat.watch.settings import WatchSettings
from rheostat.watch.windows import Windows

_SURE = 4.0
_FALLEN = 2  # the ladder's rung from which another than the chosen model answered


class Endings:
    """How requests of a route ended."""

    __slots__ = ("errors", "fallen", "overflow", "reasons", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        self.fallen = 0
        self.overflow: dict[str, int] = {}
        self.reasons: dict[str, int] = {}

    def merge(self, other: Self) -> None:
        """Add the other's."""
        self.requests += other.requests
        self.errors += other.errors
        self.fallen += other.fallen
        for mine, theirs in ((self.overflow, other.overflow), (self.reasons, other.reasons)):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count


class Failing(Keyed[str, Endings]):
    """Finds routes with too many errors, more fallbacks than usual, or a model that is too full for the traffic it gets."""

    def __init__(self, settings: WatchSettings) -> None:
        super().__init__(settings, Endings)

    def observe(self, record: RouteRecord, now: float) -> None:
        """Count how it ended; what was the client's doing counts as a request only."""
        endings = self.kept.at(record.route, now)
        endings.requests += 1
        endings.errors += record.status == "error"
        if record.level >= _FALLEN or record.status == "error":
            endings.fallen += record.level >= _FALLEN
            reason = (record.fallback_reason or record.error_type or "unknown")[:80]
            if reason in endings.reasons or len(endings.reasons) < 20:
                endings.reasons[reason] = endings.reasons.get(reason, 0) + 1
        for outcome in record.outcomes:
            failure = outcome.failure
            if failure is not None and failure.kind == "overloaded":
                endings.overflow[outcome.model] = endings.overflow.get(outcome.model, 0) + 1

    def judge(self, key: str, windows: Windows[Endings], now: float) -> Iterator[Finding]:
        """Compare with the limits, and fallbacks with what is usual."""
        recent, usual, settings = windows.recent(now), windows.usual(), self.settings
        count = recent.requests
        if count < settings.least:
            return
        why = max(sorted(recent.reasons), key=recent.reasons.__getitem__) if recent.reasons else "unknown"
        if recent.errors > settings.errors * count:
            share = recent.errors / count
            yield Finding(
                kind="errors", subject=f"route {key}", value=share, usual=settings.errors, requests=count,
                text=f"{share:.1%} of the requests got no answer, mostly: {why}", severity="critical",
            )  # fmt: skip
        fallen = recent.fallen / count
        before = usual.fallen / usual.requests if usual.requests else 0.0
        sure = usual.requests < settings.least or shares_apart(recent.fallen, count, usual.fallen, usual.requests) > _SURE
        if fallen >= before + settings.share and sure:
            yield Finding(
                kind="fallbacks", subject=f"route {key}", value=fallen, usual=before, requests=count,
                text=f"{fallen:.1%} of the requests were answered by a fallback, {before:.1%} are usual; mostly: {why}",
            )  # fmt: skip
        for model, missed in sorted(recent.overflow.items()):
            if missed > settings.overflow * count:
                yield Finding(
                    kind="overflow", subject=f"route {key}, model {model}", value=missed / count, usual=settings.overflow,
                    requests=count, text=f"{missed / count:.1%} of the requests got no place at {model}",
                )  # fmt: skip
