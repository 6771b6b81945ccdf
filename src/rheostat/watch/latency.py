"""How long models and routes take, lately and usually."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

from msgspec import Struct

from rheostat.types import RouteRecord
from rheostat.watch.finding import Finding
from rheostat.watch.keyed import Keyed
from rheostat.watch.settings import WatchSettings
from rheostat.watch.sketch import Sketch
from rheostat.watch.windows import Windows

_TAIL = 0.05
_SURE = 6.0  # standard errors
_NO_TIME = frozenset({"unavailable", "overloaded", "cancelled", "over_budget", "ramping", "unsupported"})


class Percentiles(Struct, frozen=True):
    """Times in seconds over the window; None while nothing was counted in it."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None


class Slowness(Keyed[tuple[str, str], Sketch]):
    """Finds models whose calls, and routes whose own time, take longer than they should.

    Keys are `("model", its name)`, `("version", name and version)`, `("route", name)`, `("overhead", route)` and
    `("path", route and kind of decision)`.
    """

    def __init__(self, settings: WatchSettings) -> None:
        super().__init__(settings, Sketch)

    def observe(self, record: RouteRecord, now: float) -> None:
        """Count the times of a request and of its calls."""
        at, route = self.kept.at, record.route
        at(("route", route), now).add(record.elapsed_s)
        at(("overhead", route), now).add(record.overhead_s)
        if record.route_type:
            at(("path", f"{route}, {record.route_type}"), now).add(record.elapsed_s)
        for outcome in record.outcomes:
            for attempt in outcome.attempts:
                if attempt.failure is not None and attempt.failure.kind in _NO_TIME:
                    continue
                at(("model", attempt.model), now).add(attempt.elapsed_s)
                if outcome.version and attempt.failure is None:
                    at(("version", f"{attempt.model} {outcome.version}"), now).add(attempt.elapsed_s)

    def judge(self, key: tuple[str, str], windows: Windows[Sketch], now: float) -> Iterator[Finding]:
        """Compare how many calls are in what is usually the slowest twentieth; and a route's own time with its limit."""
        what, name = key
        if what not in ("model", "overhead"):
            return
        recent, least = windows.recent(now), self.settings.least
        if recent.total < least:
            return
        if what == "overhead":
            own = recent.quantile(0.99) or 0.0
            if own > self.settings.overhead:
                yield Finding(
                    kind="router_slow", subject=f"route {name}", value=own, usual=float(self.settings.overhead),
                    requests=recent.total,
                    text=f"the router's own time is {_ms(own)} for one request in a hundred, or more",
                )  # fmt: skip
            return
        usual = windows.usual()
        tail = usual.quantile(1.0 - _TAIL)
        if usual.total < least or tail is None:
            return
        slow = recent.above(tail)
        apart = (slow - _TAIL * recent.total) / sqrt(recent.total * _TAIL * (1.0 - _TAIL))
        if slow < self.settings.slow * recent.total or apart < _SURE:
            return
        here, there = recent.quantile(0.5) or 0.0, usual.quantile(0.5) or 0.0
        yield Finding(
            kind="model_slow",
            subject=f"model {name}",
            text=f"{slow / recent.total:.0%} of the calls take longer than {_ms(tail)}, usually one in twenty does; "
            f"the median is {_ms(here)}, {_ms(there)} is usual",
            value=here,
            usual=there,
            requests=recent.total,
        )

    def percentiles(self, now: float) -> dict[tuple[str, str], Percentiles]:
        """Return the sliding percentiles of everything that was seen, by key."""
        found: dict[tuple[str, str], Percentiles] = {}
        for key, windows in self.kept:
            recent = windows.recent(now)
            found[key] = Percentiles(recent.total, *(recent.quantile(share) for share in (0.5, 0.95, 0.99)))
        return found


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"
