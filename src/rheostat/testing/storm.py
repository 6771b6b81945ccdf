"""A storm in virtual time: the whole engine over a random pool with random faults, and what must hold whatever happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from msgspec import Struct

from rheostat.engine.engine import Engine, Lane, Plan, Served
from rheostat.engine.journey import Route
from rheostat.errors import ModelError
from rheostat.policies import answering_of, parse_policy, steering_of
from rheostat.pool import Model, ModelSettings, Pool, Reply, Row
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.holds import Holds
from rheostat.resilience.ladder import FallbackSettings, Preset
from rheostat.resilience.ramp import RampSettings
from rheostat.testing.virtual import VirtualLoop, run_virtual
from rheostat.types import Prediction, Request, RouteRecord
from rheostat.types.duration import Duration

EPSILON_S = 0.001
NAMES = ("a", "b", "c", "d")
FAULTS = ("ok", "slow", "hang", "crash", "upstream_error", "connection", "reset", "rate_limited", "bad_output",
          "input_refused", "misconfigured", "input_too_large")  # fmt: skip


class Result(Struct, frozen=True):
    """What one storm came to: how its requests ended, by status and by level, and every rule that was broken."""

    endings: dict[str, int]
    levels: dict[int, int]
    violations: tuple[str, ...]


class Weathered:
    """A remote backend whose behaviour changes with time. It counts its calls by request, which is the row it is given."""

    def __init__(self, loop: VirtualLoop, changes: Sequence[tuple[float, str]], label: str) -> None:
        self.labels: tuple[str, ...] | None = None
        self.calls: Counter[str] = Counter()
        self.running = 0
        self.most_running = 0
        self._loop, self._changes, self._label = loop, changes, label

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:  # noqa: ARG002
        self.calls[rows[0]] += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            now = self._loop.time()
            fault = next(name for at, name in reversed(self._changes) if at <= now)
            await asyncio.sleep(0.5 if fault == "slow" else 0.02)
            if fault == "hang":
                await asyncio.Event().wait()
            if fault == "crash":
                raise ValueError("a fault of its own")
        finally:
            self.running -= 1
        if fault in ("ok", "slow"):
            return [Prediction(self._label, 0.3 + 0.6 * (self.calls.total() % 2)) for _ in rows]
        wait = 1.5 if fault == "rate_limited" else None
        return [ModelError(fault, "planted", retry_after_s=wait) for _ in rows]

    async def aclose(self) -> None:
        """Nothing to give back."""


class Storm:
    """One random set-up: `seed` decides everything, so that a violation can be seen again."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = Random(seed)
        self.loop = VirtualLoop()
        self.records: list[RouteRecord] = []
        names = NAMES[: dice.randint(1, 4)]
        self.models = {name: self._model(name, names) for name in names}
        policy = parse_policy(self._policy(names))
        preset = Preset(label="preset") if dice.random() < 0.3 else None
        self.fallback = FallbackSettings(
            retry=dice.randint(0, 2), peer=dice.random() < 0.7, lighter=dice.random() < 0.7, preset=preset
        )
        links = {name: model.link() for name, model in self.models.items()}
        route = Route(policy=policy, fallback=self.fallback, links=links, default=answering_of(policy)[0],
                      steering=steering_of(policy))  # fmt: skip
        lane = Lane(name="default", route=route, live=True, deadline_s=5.0)
        self.plan = Plan(version="storm", lanes={"default": lane}, pool=Pool(self.models))
        self.engine = Engine(self.loop, Holds(), (self.records.append,))
        self.broken: list[str] = []

    def run(self, requests: int = 100) -> Result:
        """Send `requests` and wait for all of them."""
        run_virtual(self._all(requests), self.loop)
        ids = Counter(record.id for record in self.records)
        self._must(len(ids) == requests and max(ids.values()) == 1, f"{len(self.records)} records of {requests} requests")
        for name, model in self.models.items():
            backend = self._weather(model)
            self._must(model.in_flight == 0 and not model.waiting, f"{name} keeps {model.in_flight} places")
            self._must(backend.running == 0, f"{name} is still running")
            most = model.settings.max_concurrency
            self._must(not most or backend.most_running <= most, f"{name} had {backend.most_running} calls at a time")
        self._must(self.engine.in_flight == 0, "the engine counts a request that has ended")
        endings = Counter(record.status for record in self.records)
        levels = Counter(record.level for record in self.records)
        return Result(dict(endings), dict(levels), tuple(self.broken))

    def _model(self, name: str, names: Sequence[str]) -> Model:
        dice = self.dice
        changes = [(0.0, dice.choice(FAULTS))]
        while changes[-1][0] < self.loop.time() + 60.0:
            last = max(changes[-1][0], self.loop.time())
            changes.append((last + dice.uniform(0.5, 12.0), dice.choice(("ok", "ok", "ok", *FAULTS))))
        breaker = BreakerSettings(failure_threshold=dice.choice((0, 1, 3, 5)), success_threshold=dice.randint(1, 3),
                                  timeout_seconds=Duration(dice.uniform(0.5, 5.0)))  # fmt: skip
        others = [other for other in names if other != name]
        settings = ModelSettings(
            cost=float(names.index(name) + 1), timeout=Duration(dice.choice((0.0, 0.1, 1.0))),
            max_concurrency=dice.choice((0, 0, 1, 3)), queue=dice.choice((0, 2, 10)),
            peers=tuple(dice.sample(others, dice.randint(0, len(others)))), side_effects=dice.random() < 0.15,
            breaker=breaker, ramp=RampSettings(seconds=Duration(dice.choice((0.0, 5.0, 20.0)))),
        )  # fmt: skip
        return Model(name, settings, Weathered(self.loop, changes, f"said by {name}"))

    def _policy(self, names: Sequence[str]) -> Any:
        kinds: list[Any] = [names[0], {"balance": list(names)}]
        if len(names) > 1:
            kinds.append({"cascade": {"stages": list(names), "threshold": 0.5}})
            kinds.append({"blend": {"weights": dict.fromkeys(names, 1.0)}})
            kinds.append({"delegate": {"weak": names[0], "strong": names[1], "parallel": True, "low": 0.2}})
            kinds.append(
                {"by_label": {"model": names[0], "map": {"x": names[1]}, "default": names[-1], "on_error": names[1]}}
            )
        return self.dice.choice(kinds)

    async def _all(self, requests: int) -> None:
        tasks = []
        for number in range(requests):
            tasks.append(asyncio.ensure_future(self._one(str(number))))
            if self.dice.random() < 0.6:
                await asyncio.sleep(self.dice.expovariate(2.0))
        await asyncio.gather(*tasks)

    async def _one(self, name: str) -> None:
        now = self.loop.time()
        allowed = self.dice.choice((0.05, 0.3, 1.0, 5.0))
        session = self.dice.choice((None, "s", "t"))
        request = Request(id=name, data=name, session=session, received=now, deadline=now + allowed)
        task = asyncio.ensure_future(self.engine.serve(self.plan, request))
        if self.dice.random() < 0.1:
            self.loop.call_later(self.dice.uniform(0.0, allowed), task.cancel)
        try:
            served = await task
        except asyncio.CancelledError:
            served = None
        self._must(
            self.loop.time() - now <= allowed + EPSILON_S, f"request {name} ended {self.loop.time() - now - allowed} s late"
        )
        self._check(name, served)

    def _check(self, name: str, served: Served | None) -> None:
        record = next(each for each in reversed(self.records) if each.id == name)
        tried = Counter(attempt.model for outcome in record.outcomes for attempt in outcome.attempts)
        effects = 0
        for each, model in self.models.items():
            calls = self._weather(model).calls[name]
            self._must(calls <= 1 + self.fallback.retry, f"request {name} called {each} {calls} times")
            told = tried[each]
            whole = each not in record.cancelled and record.status != "cancelled" and self._in_time(record)
            self._must(
                told == calls if whole else told <= calls, f"request {name}: {each} had {calls} calls, {told} are told"
            )
            effects += model.settings.side_effects and calls > 0
        unsure = [o for o in record.outcomes if o.failure is not None and o.failure.kind == "uncertain"]
        self._must(len({o.served_by for o in unsure}) <= max(1, effects), f"request {name} went on after an uncertain call")
        if served is None or served.prediction is None:
            return
        good = {outcome.model for outcome in record.outcomes if outcome.ok}
        heavy = {model for model, weight in record.weights.items() if weight > 0.0}
        self._must(heavy <= good, f"request {name}: weight on {heavy - good}, which gave no answer")
        said = {"preset"} if record.level == 5 else {o.prediction.label for o in record.outcomes if o.prediction is not None}
        self._must(served.prediction.label in said, f"request {name}: nobody said {served.prediction.label}")

    @staticmethod
    def _in_time(record: RouteRecord) -> bool:
        """Whether no call was cut off by the request's deadline: such a call is told as a failure without its attempts."""
        kinds = {outcome.failure.kind for outcome in record.outcomes if outcome.failure is not None}
        return not kinds & {"deadline"}

    def _must(self, holds: bool, told: str) -> None:
        if not holds:
            self.broken.append(told)

    @staticmethod
    def _weather(model: Model) -> Weathered:
        assert isinstance(model.backend, Weathered)
        return model.backend
