"""Whether a route's traffic swings to and fro between models."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import sqrt

from rheostat.types import RouteRecord
from rheostat.watch.finding import Finding
from rheostat.watch.keyed import Keyed
from rheostat.watch.settings import WatchSettings
from rheostat.watch.shares import Calls
from rheostat.watch.windows import Windows

_SLOTS = 30
_SWING = 0.4  # by how much of the traffic
_SWINGS = 4
_SURE = 4.0
_LEAST = 8  # requests of a slot that is looked at


class Flapping(Keyed[str, Calls]):
    """Finds a route on which a model's share of the answers jumps up and down again and again within the window."""

    def __init__(self, settings: WatchSettings) -> None:
        super().__init__(settings, Calls, _SLOTS)

    def observe(self, record: RouteRecord, now: float) -> None:
        """Count who answered."""
        if record.forced or not record.selected_model:
            return
        calls = self.kept.at(record.route, now)
        calls.requests += 1
        calls.by_model[record.selected_model] = calls.by_model.get(record.selected_model, 0) + 1

    def judge(self, key: str, windows: Windows[Calls], now: float) -> Iterator[Finding]:
        """Count the jumps of the model that jumps most."""
        slots = [each for each in windows.slots(now) if each.requests >= _LEAST]
        models = {model for each in slots for model in each.by_model}
        found = {model: _swings(slots, model) for model in models}
        if not found:
            return
        model = max(sorted(found), key=found.__getitem__)
        if found[model] < _SWINGS:
            return
        yield Finding(
            kind="flapping",
            subject=f"route {key}",
            text=f"the share of {model} jumped up and down {found[model]} times in {float(self.settings.window):.0f} s",
            value=float(found[model]),
            usual=0.0,
            requests=sum(each.requests for each in slots),
        )


def _swings(slots: list[Calls], model: str) -> int:
    """Count how often the model's share jumps, each time against the direction of the last."""
    count, direction = 0, 0
    for before, after in pairwise(slots):
        one, other = before.by_model.get(model, 0) / before.requests, after.by_model.get(model, 0) / after.requests
        error = sqrt(0.25 * (1.0 / before.requests + 1.0 / after.requests))
        step = other - one
        if abs(step) >= max(_SWING, _SURE * error):
            way = 1 if step > 0.0 else -1
            count += way != direction
            direction = way
    return count
