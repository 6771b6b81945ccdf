"""Records of a day's traffic, with a fault planted from a moment on."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from rheostat.types import Attempt, Feedback, InputSummary, Outcome, Prediction, RouteRecord
from rheostat.types.outcome import Failure

DAY_S = 86_400.0


class Traffic:
    """A cascade of a small and a large model, and a blend beside it, on a day that is busy at noon and calm at night.

    Whoever plants a fault changes the fields.
    """

    def __init__(self, seed: int = 0, rate: float = 4.0) -> None:
        self.chance = random.Random(seed)
        self.rate = rate  # requests a second at noon
        self.escalated = 0.3
        self.slower = 1.0
        self.unsure = 1.0
        self.version = "1"
        self.longer = 1.0
        self.dearer = 1.0
        self.overhead_s = 0.0004
        self.flip_s = 0.0
        self.right = 0.92
        self.broken = 0.0
        self.full = 0.0
        self.collapse = ""

    def records(self, begin: float, end: float) -> Iterator[RouteRecord]:
        """Yield what happens from `begin` to `end`, in seconds of the day."""
        now, number = begin, 0
        while True:
            noon = 0.55 - 0.45 * math.cos(2 * math.pi * now / DAY_S)
            now += self.chance.expovariate(self.rate * noon)
            if now >= end:
                return
            number += 1
            yield self._cascade(f"c{number}", now) if number % 2 else self._blend(f"b{number}", now)

    def feedback(self, record: RouteRecord) -> Feedback:
        """Judge an answer."""
        label = record.label if self.chance.random() < self.right else "another"
        return Feedback(request_id=record.id, wall=record.wall + 1.0, label=label)

    def _outcome(self, model: str, version: str, mean_s: float, started_s: float, cost: float) -> Outcome:
        elapsed_s = self.chance.lognormvariate(math.log(mean_s), 0.5)
        unsure = min(0.5, self.chance.betavariate(1.0, 6.0) * (self.unsure if model == "small" else 1.0))
        attempt = Attempt(model, started_s, elapsed_s)
        said = Prediction("yes", 1.0 - unsure)
        return Outcome(model, said, None, (attempt,), model, version, 0, elapsed_s, cost)

    def _summary(self) -> InputSummary:
        return InputSummary("text", max(1, int(self.chance.lognormvariate(5.0, 0.7) * self.longer)), "ab")

    def _cascade(self, key: str, now: float) -> RouteRecord:
        daily = 0.03 * math.sin(2 * math.pi * now / DAY_S)  # a little more is hard in the morning
        escalates = self.chance.random() < self.escalated + daily
        if self.flip_s:
            escalates = int(now / self.flip_s) % 2 == 0
        outcomes = [self._outcome("small", self.version, 0.004, 0.0, 1.0)]
        if escalates:
            outcomes.append(self._outcome("large", "1", 0.08 * self.slower, outcomes[0].elapsed_s, 20.0 * self.dearer))
        if escalates and self.chance.random() < self.full:
            outcomes[1] = Outcome("large", None, Failure("overloaded", "no place"), (), "", "", 0, 0.0, 0.0)
        last = next(each for each in reversed(outcomes) if each.prediction is not None)
        broken = self.chance.random() < self.broken
        elapsed_s = sum(each.elapsed_s for each in outcomes) + self.overhead_s
        return RouteRecord(
            id=key, wall=1.7e9 + now, route="default", status="error" if broken else "ok", route_type="cascade",
            label=None if broken else "yes", confidence=None if broken else last.confidence,
            error_type="no_answer" if broken else None,
            weights={} if broken else {last.model: 1.0}, selected_model="" if broken else last.model,
            selected_version=last.version, outcomes=tuple(outcomes), cost=sum(each.cost for each in outcomes),
            elapsed_s=elapsed_s, overhead_s=self.overhead_s * self.chance.lognormvariate(0.0, 0.4),
            deciding_s=5e-5, input=self._summary(), signals={"difficulty": self.chance.betavariate(2.0, 4.0 / self.longer)},
        )  # fmt: skip

    def _blend(self, key: str, now: float) -> RouteRecord:
        outcomes = (
            self._outcome("small", self.version, 0.004, 0.0, 1.0),
            self._outcome("large", "1", 0.08 * self.slower, 0.0, 20.0 * self.dearer),
        )
        weight = self.chance.betavariate(2.0, 2.0)
        if self.collapse == "corner":
            weight = 0.99
        elif self.collapse == "still":
            weight = 0.5 + self.chance.uniform(-0.005, 0.005)
        return RouteRecord(
            id=key, wall=1.7e9 + now, route="mixed", status="ok", route_type="blend", label="yes", confidence=0.9,
            weights={"small": 1.0 - weight, "large": weight}, selected_model="large", outcomes=outcomes,
            cost=sum(each.cost for each in outcomes), elapsed_s=max(each.elapsed_s for each in outcomes) + self.overhead_s,
            overhead_s=self.overhead_s * self.chance.lognormvariate(0.0, 0.4), deciding_s=5e-5, input=self._summary(),
        )  # fmt: skip
