"""The façade: one object that serves requests over a config and changes to the next one without a gap."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import uuid_utils
from msgspec import structs

import rheostat
from rheostat.build import Wiring, build, open_caching, open_recorder, unchanged
from rheostat.clock import Clock, SystemClock
from rheostat.completing import Completing
from rheostat.config import Config, Loaded, load_config
from rheostat.config.check_fixed import check_fixed
from rheostat.conversing import open_conversing
from rheostat.engine.caching import Caching
from rheostat.engine.engine import Engine, Plan, Served
from rheostat.engine.prober import Prober
from rheostat.engine.stream import Outlet, Stream
from rheostat.errors import BadRequest, ConfigError, NotFound, RheostatError
from rheostat.gauges import register_gauges
from rheostat.recorded import recorded
from rheostat.resilience.holds import Holds
from rheostat.results.result import Result
from rheostat.spent import remember_spent
from rheostat.telemetry import Masker, Metrics, Recorder
from rheostat.types import Feedback, Request, RouteRecord, text_of
from rheostat.types.priority import Priority
from rheostat.versioning import Versioning, open_store, pinned
from rheostat.watch import Watch

_log = logging.getLogger("rheostat.router")


class Router:
    """Serves a pool of models by a config. Make one with `await Router.open(path)`; close it with `aclose`."""

    def __init__(
        self, wiring: Wiring, caching: Caching, recorder: Recorder, metrics: Metrics, masker: Masker, clock: Clock
    ) -> None:
        self.clock = clock
        self.metrics = metrics
        self.recorder = recorder
        self.watch: Watch | None = None
        self.masker = masker
        self.ready = True
        self.last_error: str | None = None
        self.last_error_wall: float | None = None
        self.reloads = 0
        self._path = ""
        self._wiring = wiring
        self._users: dict[int, int] = {}
        self._retired: dict[int, Wiring] = {}
        self._reloading = asyncio.Lock()
        holds, results = wiring.loaded.config.holds, wiring.loaded.config.results
        self.caching = caching
        self.engine = Engine(
            clock, Holds(holds.limit, float(holds.idle)), (metrics.observe, recorder.put, self._watch), caching
        )
        self.prober = Prober(clock)
        self._relief: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self.completing: Completing | None = None
        self.versioning: Versioning | None = None
        if results.path is not None:
            self.completing = Completing(wiring.loaded, clock, masker, lambda: self._wiring, self.request, self.serve)
        self.conversing = open_conversing(wiring.loaded, clock, masker, lambda: self.plan, self.engine, self.serve)
        register_gauges(self, wiring.residency)

    @classmethod
    async def open(cls, path: str, *, clock: Clock | None = None, masker: Masker | None = None) -> Router:
        """Load the config at `path`, open and check every model, and be ready to serve.

        `masker` learns the config's secrets, now and at every reload; give the one that the service log uses.

        Raises:
            ConfigError: with every mistake that was found.
            StoreError: a record file cannot be used.
        """
        file, clock, masker = load_config(path), clock or SystemClock(), masker if masker is not None else Masker()
        masker.add(file.secrets)
        store = open_store(file, clock, masker)
        loaded = file if store is None else await pinned(store, file)
        router = await cls.start(loaded, clock=clock, masker=masker)
        router._path = path
        if store is not None:
            router.versioning = Versioning(store, path, clock, router._reloading, lambda: router.loaded, router._take_up)
            await router.versioning.start(file)
        return router

    @classmethod
    async def start(cls, loaded: Loaded, *, clock: Clock | None = None, masker: Masker | None = None) -> Router:
        """Serve a config that is already loaded."""
        masker = masker if masker is not None else Masker()
        masker.add(loaded.secrets)
        clock = clock or SystemClock()
        caching = open_caching(loaded.config.cache, clock, masker)
        wiring = await build(loaded)
        try:
            watch = None if loaded.config.watch is None else Watch(loaded.config.watch, clock)
            recorder = open_recorder(loaded.config.records, loaded.base, masker, watch)
        except RheostatError:
            for model in wiring.plan.pool.models.values():
                await model.aclose()
            raise
        metrics = Metrics(
            models=tuple(loaded.config.models), routes=tuple(loaded.config.routes), version=rheostat.__version__
        )
        router = cls(wiring, caching, recorder, metrics, masker, clock)
        if watch is not None:
            router.watch, router._looking = watch, asyncio.ensure_future(watch.looks())
        await asyncio.to_thread(remember_spent, router)
        router.prober.follow(wiring.plan.pool.models.values())
        router._watch_memory()
        if router.completing is not None:
            router.completing.later.start()
        return router

    @property
    def config(self) -> Config:
        """The config now in force."""
        return self._wiring.loaded.config

    @property
    def loaded(self) -> Loaded:
        """The config now in force, with where it came from."""
        return self._wiring.loaded

    @property
    def file_version(self) -> str:
        """The version of what was read from the config's file last, served or not."""
        pin = self.versioning.pin if self.versioning is not None else None
        return self._wiring.loaded.version if pin is None else pin.instead_of

    @property
    def plan(self) -> Plan:
        """The plan that the next request will get."""
        return self._wiring.plan

    @property
    def can_answer(self) -> bool:
        """False while every request would fail: on no route is there a model that may be asked, nor a fixed answer, nor a
        promise of a later one."""
        plan, now = self._wiring.plan, self.clock.monotonic()
        for lane in plan.lanes.values():
            fallback = lane.route.fallback
            if fallback.preset is not None or fallback.later:
                return True
            if any(not plan.pool.models[name].retry_after(now) for name in lane.route.links):
                return True
        return False

    def is_quick(self, route: str) -> bool:
        """Return True when every model of the route answers on the spot, so that serving will not be suspended."""
        plan = self._wiring.plan
        lane = plan.lanes.get(route)
        if lane is not None:
            if lane.session is not None or lane.semantic is not None:
                return False
            caching = self.caching
            if lane.route.fallback.later or (lane.cache is not None and (caching.shared is not None or caching.flights)):
                return False  # something is written down, looked up elsewhere, or waited for
            models = plan.pool.models
            for name in lane.route.links:
                if not models[name].inline:
                    return False
        return True

    def request(
        self,
        data: Any,
        *,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        route: str = "default",
        session: str | None = None,
        tenant: str | None = None,
        priority: Priority = "normal",
        timeout_s: float | None = None,
        max_cost: float | None = None,
        force_model: str | None = None,
        skip_route: bool = False,
        no_cache: bool = False,
        no_store: bool = False,
        request_id: str | None = None,
    ) -> Request:
        """Make a request that arrives now.

        `timeout_s` may shorten the route's deadline and `max_cost` lower what it may cost; neither can raise it.
        """
        if max_cost is not None and not max_cost > 0.0:
            raise BadRequest(f"max_cost is a number above 0, got {max_cost}", "max_cost")
        now = self.clock.monotonic()
        lane = self._wiring.plan.lanes.get(route)
        limit = lane.deadline_s if lane is not None else 0.0
        if timeout_s is not None:
            limit = min(limit, timeout_s) if limit else timeout_s
        most = lane.max_cost if lane is not None else inf
        return Request(
            request_id or str(uuid_utils.uuid7()),
            data,
            data if type(data) is str else text_of(data),
            meta if meta is not None else {},
            headers if headers is not None else {},
            route,
            session,
            tenant,
            priority,
            now,
            now + limit if limit else inf,
            most if max_cost is None else min(most, max_cost),
            force_model,
            skip_route,
            no_cache,
            no_store,
        )

    async def serve(self, request: Request, outlet: Outlet | None = None) -> Served:
        """Serve one request; errors come back in `Served.error`. Cancelling the call cancels the models' work.

        Where the route has `later`, a request that no model answered may be completed later: `Served.promise` says so.
        """
        if self.conversing is not None and self.conversing.wants(request):
            return await self.conversing.serve(request, outlet)
        wiring = self._wiring
        key = id(wiring)
        users = self._users
        users[key] = users.get(key, 0) + 1
        try:
            served = await self.engine.serve(wiring.completing if request.completing else wiring.plan, request, outlet)
        finally:
            users[key] -= 1
            if self._retired and users[key] == 0 and key in self._retired:
                await self._close_retired(key)
        if served.later and self.completing is not None:
            return structs.replace(served, promise=await self.completing.promise(request))
        return served

    def stream(self, request: Request) -> Stream:
        """Answer one request text by text: `async with router.stream(request) as texts: async for text in texts`.

        A model whose config has `stream` gives its text as it comes, if its word is the last by the route's policy;
        otherwise the answer is one text. The request's deadline holds until the first text, the model's limits after it.
        """
        return Stream(lambda outlet: self.serve(request, outlet))

    async def result(self, result_id: str, tenant: str | None = None) -> Result:
        """Return what came of a promise (`Served.promise.id`): still pending, done, failed for good, or expired.

        Raises:
            NotFound: nothing of this id was promised to this tenant.
            StoreError: the store of results cannot be used now.
        """
        if self.completing is None:
            raise NotFound("there is no such result")
        return await self.completing.result(result_id, tenant)

    async def apredict(self, data: Any, **options: Any) -> Served:
        """Answer one row; `options` are those of `request`.

        Raises:
            RheostatError: nobody could answer, or the request was wrong; the class says which.
        """
        served = await self.serve(self.request(data, **options))
        if served.error is not None:
            raise served.error
        return served

    async def apredict_batch(self, rows: Sequence[Any], *, concurrency: int = 32, **options: Any) -> list[Served]:
        """Answer many rows, each decided by itself, in order; at most `concurrency` at a time. Errors stay in their row."""
        gate = asyncio.Semaphore(concurrency)

        async def one(row: Any) -> Served:
            async with gate:
                return await self.serve(self.request(row, **options))

        return list(await asyncio.gather(*(one(row) for row in rows)))

    def feedback(self, feedback: Feedback) -> None:
        """Keep a later judgement on a request; it is joined to its record by the request id."""
        self.recorder.put(feedback)
        self.metrics.count_feedback()

    async def reload(self, source: Loaded | ConfigError | None = None) -> bool:
        """Take up a new config (default: the file that was opened, read again); a bad one changes nothing.

        Everything new is built and proven first; then the next request gets it whole. Requests in flight end on what they
        began with. Returns False, with the reason in `last_error`, log and metrics, when the old config stays.
        """
        async with self._reloading:
            versioning, before = self.versioning, self._wiring.loaded.version
            try:
                loaded = await asyncio.to_thread(load_config, self._path) if source is None else source
                if isinstance(loaded, ConfigError):
                    raise loaded
                if versioning is not None:
                    versioning.check(loaded)
                await self._take_up(loaded)
            except RheostatError as error:
                self.last_error = self.masker.mask(str(error))
                self.last_error_wall = self.clock.wall()
                self.metrics.count_reload("failed")
                _log.error("config refused, the old one stays: %s", self.last_error)
                return False
            if versioning is not None:
                await versioning.took(loaded, before)
            return True

    async def _take_up(self, loaded: Loaded) -> None:
        """Change to another config, whole or not at all; the lock of reloads is held."""
        self.last_error = None
        if unchanged(loaded, self._wiring):
            return
        check_fixed(loaded, self._wiring.loaded)
        fresh = await build(loaded, self._wiring)
        old, self._wiring = self._wiring, fresh
        for name, model in fresh.plan.pool.models.items():
            before = old.plan.pool.models.get(name, model)
            if before is not model:
                model.switched(before, self.clock.monotonic())
        self.prober.follow(fresh.plan.pool.models.values())
        self._watch_memory()
        self.masker.add(loaded.secrets)
        self.metrics.allow(models=tuple(loaded.config.models), routes=tuple(loaded.config.routes))
        self.reloads += 1
        self.metrics.count_reload("ok")
        _log.info("config %s is in force", loaded.version)
        self._retired[id(old)] = old
        if not self._users.get(id(old)):
            await self._close_retired(id(old))

    async def _close_retired(self, key: int) -> None:
        wiring = self._retired.pop(key)
        self._users.pop(key, None)
        in_use = {id(model) for model in self._wiring.plan.pool.models.values()}
        for other in self._retired.values():
            in_use |= {id(model) for model in other.plan.pool.models.values()}
        for model in wiring.plan.pool.models.values():
            if id(model) not in in_use:
                await model.aclose()

    def record(self, request_id: str) -> RouteRecord:
        """Return the record of a recent request from the SQLite sink.

        Raises:
            NotFound: no such record, or no SQLite sink is configured.
        """
        return recorded(self._wiring.loaded, self.recorder, request_id)[0]

    def status(self) -> dict[str, Any]:
        """Say what runs: config version, last refusal, every model's state, the recorder's."""
        now = self.clock.monotonic()
        models = {name: model.status(now) for name, model in self._wiring.plan.pool.models.items()}
        return {
            "config_version": self._wiring.plan.version,
            "ready": self.ready,
            "reloads": self.reloads,
            "last_error": self.last_error,
            "last_error_wall": self.last_error_wall,
            "in_flight": self.engine.in_flight,
            "holds": len(self.engine.holds),
            "routes": {name: lane.policy_version for name, lane in self._wiring.plan.lanes.items()},
            "models": models,
            "cache": self.caching.status(),
            "sessions": self.conversing.status() if self.conversing is not None else None,
            "versions": self.versioning.status() if self.versioning is not None else None,
            "results": self.completing.later.status() if self.completing is not None else None,
            "recorder": self.recorder.stats(),
        }

    async def aclose(self, drain_s: float = 0.0) -> None:
        """Stop: wait up to `drain_s` seconds for requests in flight, then close models and flush records."""
        self.ready = False
        await self.prober.aclose()
        for task in (self._relief, self._looking):
            if task is not None:
                task.cancel()
        if self.completing is not None:
            await self.completing.later.aclose()
        until = self.clock.monotonic() + drain_s
        while self.engine.in_flight and self.clock.monotonic() < until:
            await asyncio.sleep(0.02)
        for key in list(self._retired):
            await self._close_retired(key)
        for model in self._wiring.plan.pool.models.values():
            await model.aclose()
        if self.conversing is not None:
            await self.conversing.aclose()
        if self.versioning is not None:
            await self.versioning.aclose()
        if self.caching.shared is not None:
            await self.caching.shared.aclose()
        await asyncio.to_thread(self.recorder.close)

    def _watch_memory(self) -> None:
        if self._relief is None and any(model.on_demand for model in self._wiring.plan.pool.models.values()):
            self._relief = asyncio.ensure_future(self._wiring.residency.watch())

    def _watch(self, record: RouteRecord) -> None:
        """Count and say what is the router's own trouble."""
        if record.status == "degraded" and record.fallback_reason.startswith("router_unavailable"):
            self.metrics.count_router_error("router_unavailable")
            _log.warning("request %s: %s", record.id, self.masker.mask(record.fallback_reason))
