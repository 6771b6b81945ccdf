"""A storm in virtual time: a whole router over a random config with random faults, and what must hold whatever happens."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter, defaultdict
from contextlib import aclosing, suppress
from random import Random
from typing import Any

from msgspec import Struct

from rheostat.build import Wiring
from rheostat.cache.answers import is_good
from rheostat.clock import Clock
from rheostat.engine.caching import Caching
from rheostat.engine.engine import Served
from rheostat.engine.stream import Outlet
from rheostat.errors import ConfigError, Problem, RheostatError, StoreError
from rheostat.pool import Model
from rheostat.results.later import Later
from rheostat.results.store import Store
from rheostat.results.table import TABLES
from rheostat.router import Router
from rheostat.telemetry import Masker, Metrics, Recorder
from rheostat.testing.storm_config import RESULTS, ROUTES, first_config, next_config
from rheostat.testing.storm_laws import Serving, broken_at_the_end, broken_by, text_is_wrong, weather
from rheostat.testing.virtual import VirtualLoop, run_virtual
from rheostat.testing.weathered import ASKING, Here, Sky, VirtualThreads
from rheostat.types import Request, RouteRecord

QUESTIONS = ("one", "two", "three", "four", "a question of many more words than some models can take")
CALM_S = 200.0
"""How long models that are all well again may take to keep every promise."""


class Result(Struct, frozen=True):
    """What one storm came to: how its requests ended, by status and by level, how often each rare thing happened, and
    every law that was broken."""

    endings: dict[str, int]
    levels: dict[int, int]
    happened: dict[str, int]
    violations: tuple[str, ...]


class MemoryStore(Store):
    """A store of results in memory that answers at once; `fails` makes it a bad one."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(":memory:", clock)
        self.fails = False
        self._database = sqlite3.connect(":memory:", isolation_level=None)
        self._database.executescript(TABLES)

    def _open(self) -> sqlite3.Connection:
        assert self._database is not None
        return self._database

    async def _do(self, job: Any, patience_s: float) -> Any:  # noqa: ARG002
        if self.fails:
            raise StoreError("planted")
        self._transact([job])
        return job.done.result()


class StormRouter(Router):
    """A router whose every serving is held to the laws."""

    def __init__(
        self, wiring: Wiring, caching: Caching, recorder: Recorder, metrics: Metrics, masker: Masker, clock: Clock
    ) -> None:
        super().__init__(wiring, caching, recorder, metrics, masker, clock)
        self.records: list[RouteRecord] = []
        self.servings = 0
        self.broken: list[str] = []
        self.said: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self.idled: Counter[str] = Counter()
        self.store = MemoryStore(clock)
        self.promised = 0
        self.engine.observers += (self.records.append,)
        if self.completing is not None:
            self.completing.later = Later(
                self.store, RESULTS, clock, self.completing.ask, self.completing.rooms, first_pause_s=0.5,
                longest_pause_s=8.0, new_id=self._new_id,
            )  # fmt: skip

    def _new_id(self) -> str:
        self.promised += 1
        return f"promise-{self.promised}"

    async def serve(self, request: Request, outlet: Outlet | None = None) -> Served:
        self.servings += 1
        asking, plan = f"{request.id}/{self.servings}", self.plan
        ASKING.set(asking)
        served: Served | None = None
        try:
            served = await super().serve(request, outlet)
            return served
        finally:
            record = next(r for r in reversed(self.records) if (r.id, r.completes) == (request.id, request.completing))
            pieces = outlet.pieces if outlet is not None else 0
            one = Serving(request, plan, asking, record, served, self.clock.monotonic(), pieces, self.idled[request.id])
            self.broken += [f"request {asking}: {told}" for told in broken_by(one, self.said[request.route, request.data])]
            if served is not None and served.prediction is not None and is_good(record):
                self.said[request.route, request.data].append(served.prediction.label)


class Storm:
    """One random set-up: `seed` decides everything, so that a violation can be seen again.

    `policy` puts one policy through it, in its form in the config; its models are `a`, `b`, `c` and `d` (costs 1 to 4). Each
    of them says `said by NAME` with a confidence of .3 or .9, when it says anything.
    """

    def __init__(self, seed: int, policy: Any = None) -> None:
        self.policy = policy
        self.dice = Random(seed)
        self.loop = VirtualLoop()
        self.sky = Sky(self.loop)
        self.models: dict[str, Model] = {}
        self.happened: Counter[str] = Counter()
        self.promises: list[tuple[str, str | None]] = []
        self.router: StormRouter

    def run(self, requests: int = 100) -> Result:
        """Send `requests`, wait for all of them and for what was promised, and close the router."""
        began = self.loop.time()
        run_virtual(self._all(requests), self.loop)
        router = self.router
        broken = router.broken
        broken += broken_at_the_end(self.models, self.loop.time() - began)
        mine = [record for record in router.records if not record.completes]
        if len({record.id for record in mine}) != requests or len(router.records) != router.servings:
            broken.append(f"{len(router.records)} records of {router.servings} servings of {requests} requests")
        if router.engine.in_flight:
            broken.append("the engine counts a request that has ended")
        if len(self.models) != len(self.sky.opened):
            broken.append(f"{len(self.sky.opened)} models were opened, {len(self.models)} were in service")
        self.happened["retries refused"] = sum(model.retries_refused for model in self.models.values())
        self.happened["completions tried"] = router.servings - requests
        self.happened["cached answers"] = sum(record.level == 4 for record in mine)
        self.happened["cache hits"] = sum(record.cache == "hit" for record in mine)
        self.happened["shared answers"] = sum(record.cache == "shared" for record in mine)
        endings, levels = Counter(record.status for record in mine), Counter(record.level for record in mine)
        return Result(dict(endings), dict(levels), dict(+self.happened), tuple(broken))

    async def _all(self, requests: int) -> None:
        loaded = first_config(self.dice, self.sky, self.policy)
        router = await StormRouter.start(loaded, clock=self.loop)
        assert isinstance(router, StormRouter)
        self.router = router
        self._take_up()
        tasks = []
        for number in range(requests):
            ask = self._streamed if self.dice.random() < 0.3 else self._one
            tasks.append(asyncio.ensure_future(ask(str(number))))
            if self.dice.random() < 0.6:
                await asyncio.sleep(self.dice.expovariate(2.0))
            if self.dice.random() < 0.02:
                await self._reload()
            if self.dice.random() < 0.03:
                router.store.fails = not router.store.fails
        await asyncio.gather(*tasks)
        await self._calm()
        await router.aclose()
        await asyncio.sleep(0)

    async def _reload(self) -> None:
        before = self.router.plan
        if self.dice.random() < 0.3:
            await self.router.reload(ConfigError([Problem("", None, "planted")]))
            if self.router.plan is not before:
                self.router.broken.append("a bad config changed the plan")
            return
        self.happened["reloads"] += 1
        loaded = next_config(self.dice, self.sky, self.router.loaded, self.happened["reloads"], self.policy)
        if not await self.router.reload(loaded):
            self.router.broken.append(f"a good config was refused: {self.router.last_error}")
        self._take_up()

    def _take_up(self) -> None:
        """Give the new models in service threads in virtual time."""
        for model in self.router.plan.pool.models.values():
            backend = weather(model)
            if all(model is not known for known in self.models.values()):
                self.models[f"{model.name} ({len(self.models)})"] = model
                if isinstance(backend, Here):
                    model._threads = VirtualThreads(self.loop, model.settings.max_concurrency or 2, backend)  # type: ignore[assignment]

    def _request(self, name: str) -> tuple[Request, float]:
        dice, models = self.dice, tuple(self.router.plan.pool)
        allowed = dice.choice((0.05, 0.3, 1.0, 5.0))
        request = self.router.request(
            dice.choice(QUESTIONS), route=dice.choice(ROUTES), session=dice.choice((None, "s", "t")),
            tenant=dice.choice((None, None, "acme")),
            priority=dice.choice(("high", "normal", "normal", "low")), timeout_s=allowed,
            max_cost=dice.choice((None, None, None, 2.0, 5.0)), request_id=name,
            force_model=dice.choice(models) if dice.random() < 0.05 else None, skip_route=dice.random() < 0.03,
        )  # fmt: skip
        return request, allowed

    async def _one(self, name: str) -> None:
        request, allowed = self._request(name)
        task = asyncio.ensure_future(self.router.serve(request))
        if self.dice.random() < 0.1:
            self.loop.call_later(self.dice.uniform(0.0, allowed), task.cancel)
        with suppress(asyncio.CancelledError):
            self._note(request, await task)

    async def _streamed(self, name: str) -> None:
        request, _ = self._request(name)
        pieces: list[str] = []
        leaves = self.dice.randint(0, 3) if self.dice.random() < 0.15 else -1
        async with aclosing(self.router.stream(request)) as stream:
            try:
                async for text in stream:
                    pieces.append(text)
                    if len(pieces) == leaves:
                        break
                    if self.dice.random() < 0.1:
                        self.router.idled[name] += 1  # seconds
                        await asyncio.sleep(1.0)
            except RheostatError:
                pass
        self.happened["streams with several pieces"] += stream.pieces > 1
        if text_is_wrong(pieces, stream.served):
            self.router.broken.append(f"request {name}: the stream said {''.join(pieces)!r}")
        if stream.served is not None:
            self._note(request, stream.served)

    def _note(self, request: Request, served: Served) -> None:
        promise = served.promise
        if promise is not None and promise.id is not None:
            self.promises.append((promise.id, request.tenant))

    async def _calm(self) -> None:
        """All models are well: every promise is kept, or given up for a reason that lies in the request."""
        self.sky.calm, self.router.store.fails = True, False
        self.happened["health turns"] = sum(not model.health.healthy for model in self.models.values())
        until = self.loop.time() + CALM_S
        states: Counter[str] = Counter(pending=len(self.promises))
        while states["pending"] and self.loop.time() < until:
            await asyncio.sleep(4.0)
            results = [await self.router.result(key, tenant) for key, tenant in self.promises]
            states = Counter(result.state for result in results)
        self.happened["promises kept"], self.happened["promises given up"] = states["done"], states["failed"]
        if states["pending"] or states["expired"]:
            self.router.broken.append(f"of {len(self.promises)} promises {dict(states)}")
        while any(weather(model).running for model in self.models.values()) and self.loop.time() < until:
            await asyncio.sleep(1.0)
