"""What models have said on average, so that a blend can go on without one that failed. Pure, no I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from math import isfinite

from msgspec import Struct

from rheostat.resilience.holds import short_key

LEAST = 20
"""Answers that a mean needs before it may stand in for one."""
WINDOW = 200
"""From here on a new answer counts 1 / WINDOW, so that a mean follows a model that drifts."""
MAX_LABELS = 256
"""Labels that one mean keeps: those that count most."""

Scores = Mapping[str, float]


class Mean(Struct, frozen=True):
    """The mean of `count` distributions over labels, exponentially weighted once there are WINDOW of them."""

    count: int = 0
    scores: Scores = {}

    def with_one(self, scores: Scores) -> Mean:
        """Return the mean with one more distribution; one with a score that is negative or not finite changes nothing."""
        total = sum(scores.values())
        if not isfinite(total) or total <= 0.0 or min(scores.values()) < 0.0:
            return self
        share = 1.0 / min(self.count + 1, WINDOW)
        mixed = {label: (1.0 - share) * score for label, score in self.scores.items()}
        for label, score in scores.items():
            mixed[label] = mixed.get(label, 0.0) + share * (score / total)
        if len(mixed) > MAX_LABELS:
            heaviest = sorted(mixed, key=mixed.__getitem__, reverse=True)[:MAX_LABELS]
            kept = sum(mixed[label] for label in heaviest)
            mixed = {label: mixed[label] / kept for label in heaviest}
        return Mean(self.count + 1, mixed)


class Means:
    """Remember at most `limit` (1 or more) means by model, version and segment; the least recently used begin anew.

    The segment "" holds all of a model's answers. Means that were given out do not change any more.
    """

    def __init__(self, limit: int = 10_000, least: int = LEAST) -> None:
        if limit < 1:
            raise ValueError(f"`limit` must be 1 or more, got {limit}")
        self.limit = limit
        self.least = least
        self._means: OrderedDict[tuple[str, str, str], Mean] = OrderedDict()

    def __len__(self) -> int:
        return len(self._means)

    def note(self, model: str, version: str, segments: Collection[str], scores: Scores) -> None:
        """Take in a good answer, for its segments and for all of the model's."""
        for part in {"", *segments}:
            key = (model, version, short_key(part))
            self._means[key] = self._means.get(key, _NONE).with_one(scores)
            self._means.move_to_end(key)
        while len(self._means) > self.limit:
            self._means.popitem(last=False)

    def of(self, model: str, version: str, segments: Collection[str]) -> dict[str, Scores]:
        """Return what may stand in for the model, by segment: "" and `segments`, each if enough answers made it."""
        found: dict[str, Scores] = {}
        for part in {"", *segments}:
            mean = self._means.get((model, version, short_key(part)))
            if mean is not None and mean.count >= self.least:
                found[part] = mean.scores
        return found


_NONE = Mean()
