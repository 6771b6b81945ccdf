"""Whether the weights of a blend still tell one request from another."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Self

from rheostat.types import RouteRecord
from rheostat.watch.finding import Finding
from rheostat.watch.keyed import Keyed
from rheostat.watch.settings import WatchSettings
from rheostat.watch.windows import Windows

_BINS = 20
_ALL = 0.95  # a mean weight from here on leaves the others nothing
_STILL = 0.1  # of the usual spread


class WeightCounts:
    """Histograms of the weights by model over the requests that were answered, and how many answers mixed several."""

    __slots__ = ("bins", "mixed", "requests", "squares", "sums")

    def __init__(self) -> None:
        self.requests = 0
        self.mixed = 0
        self.sums: dict[str, float] = {}
        self.squares: dict[str, float] = {}
        self.bins: dict[str, list[int]] = {}

    def add(self, weights: dict[str, float]) -> None:
        """Count one answer's weights; they sum to 1."""
        self.requests += 1
        self.mixed += len(weights) > 1
        for model, weight in weights.items():
            if model not in self.bins:
                self.sums[model] = self.squares[model] = 0.0
                self.bins[model] = [0] * _BINS
            self.sums[model] += weight
            self.squares[model] += weight * weight
            self.bins[model][min(int(weight * _BINS), _BINS - 1) if weight > 0.0 else 0] += 1

    def merge(self, other: Self) -> None:
        """Add the other's."""
        self.requests += other.requests
        self.mixed += other.mixed
        for model, bins in other.bins.items():
            mine = self.bins.get(model, [0] * _BINS)
            self.bins[model] = [one + more for one, more in zip(mine, bins, strict=True)]
            self.sums[model] = self.sums.get(model, 0.0) + other.sums[model]
            self.squares[model] = self.squares.get(model, 0.0) + other.squares[model]

    def mean(self, model: str) -> float:
        """Return the model's mean weight; a request that did not name it gave it none."""
        return self.sums.get(model, 0.0) / self.requests

    def spread(self, model: str) -> float:
        """Return the standard deviation of the model's weight."""
        mean = self.mean(model)
        return sqrt(max(0.0, self.squares.get(model, 0.0) / self.requests - mean * mean))


class WeightCollapse(Keyed[str, WeightCounts]):
    """Finds a route that used to mix and whose weights now all go to one model, or are the same for every request."""

    def __init__(self, settings: WatchSettings) -> None:
        super().__init__(settings, WeightCounts)

    def observe(self, record: RouteRecord, now: float) -> None:
        """Count the weights of an answer."""
        if record.weights and not record.forced:
            self.kept.at(record.route, now).add(dict(record.weights))

    def judge(self, key: str, windows: Windows[WeightCounts], now: float) -> Iterator[Finding]:
        """Compare where the weights lie, and how far they are spread."""
        recent, usual = windows.recent(now), windows.usual()
        least = self.settings.least
        if recent.requests < least or usual.requests < least or usual.mixed * 10 < usual.requests:
            return
        top = max(recent.sums, key=recent.mean)
        here, there = recent.mean(top), usual.mean(top)
        if here >= _ALL and there < _ALL - 0.05:
            text = f"{top} has {here:.0%} of the weight; {there:.0%} are usual"
        elif usual.spread(top) >= 0.02 and recent.spread(top) <= _STILL * usual.spread(top):
            text = f"every request gets about the same weights ({top} {here:.2f}); usually they differ"
        else:
            return
        yield Finding(
            kind="weight_collapse", subject=f"route {key}", text=text, value=here, usual=there, requests=recent.requests,
            severity="critical",
        )  # fmt: skip
