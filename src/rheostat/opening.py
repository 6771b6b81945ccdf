"""From a model's settings to a model that may take traffic: opened, checked, wrapped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from rheostat.backends import ContractReport, check_contract, check_remote_contract, warm_up
from rheostat.backends.health_url import check_of
from rheostat.backends.interpreter import holds_interpreter
from rheostat.clock import SystemClock
from rheostat.config import Loaded
from rheostat.errors import ConfigError, ContractError, ModelError, Problem, RheostatError
from rheostat.pool import Backend, Checkable, Model, ModelSettings, RemoteBackend, Switchable
from rheostat.pool.awaited import asked_as
from rheostat.pool.batching import Batched
from rheostat.pool.memory import process_bytes
from rheostat.pool.on_demand import OnDemand
from rheostat.pool.prepared import Made, in_call, preparation
from rheostat.pool.prepared_beside import beside
from rheostat.pool.profile import load_profile
from rheostat.pool.residency import Residency
from rheostat.pool.shape import any_shape, shape_of
from rheostat.pool.stamp import file_bytes, stamp
from rheostat.pool.worker.settings import WorkerSettings
from rheostat.pool.worker.workers import PATIENCE_S, Workers
from rheostat.signals import calibrated, load_calibrator

APART_S = 0.01
"""A local model that takes at least this long for a row, and lets no other thread run, gets a process of its own."""
_log = logging.getLogger("rheostat.pool")
T = TypeVar("T", Backend, RemoteBackend, Backend | RemoteBackend)


async def open_model(
    name: str, settings: ModelSettings, loaded: Loaded, residency: Residency, before: Model | None = None
) -> Model:
    """Open the model and hold it to its contract. `before` is the one of its name in service, which stays usable; where only
    the weights differ, the new model is made with parts of it.

    Raises:
        ConfigError, ContractError, MissingExtra: it cannot be used; nothing stays open.
    """
    path = None if settings.profile is None else Path(loaded.base) / settings.profile
    profile = None if path is None else load_profile(path, name, settings.version)
    worker = settings.processes
    if worker is not None:
        model = await _apart(name, settings, loaded, worker)
    else:
        model = await asyncio.to_thread(_opened, name, settings, loaded, residency, before)
        backend = _movable(model)
        if backend is not None and await asyncio.to_thread(holds_interpreter, backend, settings):
            model = await _moved(model, loaded)
    if profile is not None:
        model.profiled(profile)
    asked = model.backend if model.batched is None else model.batched.inner
    if not isinstance(asked, Backend) and model.workers is None:
        try:
            await check_remote_contract(name, asked, settings)
        except BaseException:
            await model.aclose()
            raise
    return model


async def preload(models: Iterable[Model], residency: Residency) -> list[Problem]:
    """Load what is to be in memory before the first request and had to go again while others were opened."""
    problems = []
    for model in models:
        guest = model.on_demand
        if guest is not None and model.settings.preload and not guest.loaded:
            try:
                await asyncio.to_thread(residency.load, guest)
            except ModelError as error:
                problems.append(Problem(f"{model.name}.preload", None, f"{error}: raise `memory.limit`, or preload less"))
    return problems


def _opened(name: str, settings: ModelSettings, loaded: Loaded, residency: Residency, before_it: Model | None) -> Model:
    """Open what can be opened away from the event loop."""
    if not settings.resident:
        return _on_demand(name, settings, loaded, residency)
    before = process_bytes()
    made = _successor(settings, loaded, before_it)
    origin = settings.open(loaded.base) if made is None else made
    backend, ready, report, check = _proven(name, settings, loaded, origin, made is not None)
    size = max(0, process_bytes() - before) if isinstance(backend, Backend) else 0
    row_s = _row_s(report) if made is None or before_it is None else before_it.latency_s
    switchable = origin if isinstance(origin, Switchable) else None
    return Model(name, settings, _queued(name, settings, ready, backend), row_s, check, size=size, origin=switchable)


async def _apart(name: str, settings: ModelSettings, loaded: Loaded, worker: WorkerSettings) -> Model:
    """Open it in processes of its own, of which the first holds it to its contract; this one never has it in memory."""
    then = stamp(settings, loaded.base)
    clock = SystemClock()
    patience_s = 0.0 if settings.peers or settings.lighter is not None else PATIENCE_S  # another one can answer at once
    workers, found = await Workers.open(
        name, settings, worker, loaded.base, clock, lambda: stamp(settings, loaded.base) == then, patience_s
    )
    try:
        check = _check(settings, workers)
        _check_labels(workers, loaded.config.labels)
        backend = _calibrated(workers, settings, loaded)
    except RheostatError:
        await workers.aclose()
        raise
    batch = None if settings.batch is None else structs.replace(settings.batch, instances=worker.count)
    queued = _queued(name, structs.replace(settings, batch=batch), None, backend)
    return Model(name, settings, queued, float("inf") if found.skipped else found.row_s, check, workers=workers)


def _movable(model: Model) -> Backend | None:
    """Return the backend of a model that may compute anywhere, and takes so long that where it does matters."""
    backend = model.backend if model.batched is None else model.batched.inner
    if model.settings.run != "auto" or model.latency_s < APART_S or isinstance(backend, RemoteBackend):
        return None
    fixed = model.on_demand is not None or model.origin is not None or model.prepared is not None
    return None if fixed else backend


async def _moved(model: Model, loaded: Loaded) -> Model:
    """Move such a model into a process of its own; where that cannot be, it stays in threads."""
    name, took_ms = model.name, 1000.0 * model.latency_s
    try:
        apart = await _apart(name, model.settings, loaded, WorkerSettings())
    except RheostatError as error:
        told = "model %s takes %.0f ms for a row and keeps others waiting, but cannot have a process of its own: %s"
        _log.warning(told, name, took_ms, error)
        return model
    await model.aclose()
    _log.info(
        "model %s computes in a process of its own, as it takes %.0f ms for a row and keeps others waiting meanwhile; "
        "`run: thread` keeps it in this one", name, took_ms,
    )  # fmt: skip
    return apart


def _successor(settings: ModelSettings, loaded: Loaded, before: Model | None) -> Backend | None:
    return None if before is None or before.origin is None else before.origin.successor(settings, loaded.base)


def _on_demand(name: str, settings: ModelSettings, loaded: Loaded, residency: Residency) -> Model:
    """Open it once, to hold it to its contract and to measure it; it stays in memory only with `preload`."""
    seen: list[tuple[Callable[[OnDemand], Backend | RemoteBackend], Made | None, ContractReport, Checkable | None]] = []
    then = stamp(settings, loaded.base)

    def first() -> Backend:
        backend, ready, report, check = _proven(name, settings, loaded, settings.open(loaded.base))
        if not isinstance(backend, Backend):
            raise ConfigError([Problem("resident", None, "this model is not in this process: remove `resident`")])
        seen.append((asked_as(backend), ready, report, check))
        return backend

    def again() -> Backend:
        if stamp(settings, loaded.base) != then:
            raise ContractError("its files have changed since the config was taken up: reload the config")
        backend = settings.open(loaded.base)
        assert isinstance(backend, Backend)
        try:
            warm_up(name, in_call(ready, backend, tried=True), settings)
            return _calibrated(in_call(ready, backend), settings, loaded)
        except BaseException:
            backend.close()
            raise

    guest = residency.host(name, float(settings.keep), file_bytes(settings, loaded.base), first, again)
    if not settings.preload:
        residency.unload(guest)
    ((asked, ready, report, check),) = seen
    return Model(name, settings, _queued(name, settings, ready, asked(guest)), _row_s(report), check, guest)


def _proven(
    name: str, settings: ModelSettings, loaded: Loaded, backend: Backend | RemoteBackend, briefly: bool = False
) -> tuple[Backend | RemoteBackend, Made | None, ContractReport, Checkable | None]:
    """Try the model and time it; `briefly` where only its weights are new, so that one row says whether they are sound."""
    try:
        check = _check(settings, backend)
        if settings.adaptive is not None and isinstance(backend, Backend):
            said = "a model in this process has as many calls at a time as threads: set `max_concurrency` instead"
            raise ConfigError([Problem("adaptive", None, said)])
        ready = preparation(settings, backend)
        report = _tried(name, settings, ready, backend, briefly)
        _check_labels(backend, loaded.config.labels)
        backend = _calibrated(in_call(ready, backend), settings, loaded)
    except RheostatError:
        if isinstance(backend, Backend):
            backend.close()
        raise
    return backend, ready, report, check


def _tried(
    name: str, settings: ModelSettings, ready: Made | None, backend: Backend | RemoteBackend, briefly: bool
) -> ContractReport:
    if briefly and isinstance(backend, Switchable):
        try:
            return check_contract(name, in_call(ready, backend.rehearsal(), tried=True), settings, briefly=True)
        except ContractError:
            pass  # whatever the short trial says against it, the whole model has the last word
    return check_contract(name, in_call(ready, backend, tried=True), settings, briefly=briefly)


def _queued(
    name: str, settings: ModelSettings, ready: Made | None, backend: Backend | RemoteBackend
) -> Backend | RemoteBackend:
    """Put rows together where the config says so, and prepare them beside that; a model with named features makes all rows
    alike itself."""
    if settings.batch is None:
        return backend
    kind_of = any_shape if getattr(settings, "features", ()) else shape_of
    clock, repeat = SystemClock(), not settings.side_effects
    batched = Batched(backend, settings.batch, clock, kind_of=kind_of, repeat=repeat, name=name)
    return beside(settings, ready, batched, clock, name)


def _check(settings: ModelSettings, backend: Backend | RemoteBackend) -> Checkable | None:
    check = check_of(settings, backend)
    if settings.health.interval and check is None and not settings.probe_rows:
        raise ConfigError([Problem("health.interval", None, "there is nothing to check: set `health.url` or `probe`")])
    return check


def _row_s(report: ContractReport) -> float:
    return float("inf") if report.skipped else report.row_s


def _calibrated(backend: T, settings: ModelSettings, loaded: Loaded) -> T:
    if settings.calibration is None:
        return backend
    return calibrated(backend, load_calibrator(str(Path(loaded.base) / settings.calibration)))


def _check_labels(backend: Backend | RemoteBackend, common: tuple[str, ...]) -> None:
    if common and backend.labels and set(backend.labels) != set(common):
        missing = ", ".join(sorted(set(common) - set(backend.labels))) or "none"
        extra = ", ".join(sorted(set(backend.labels) - set(common))) or "none"
        raise ContractError(f"its labels differ from the config's `labels`: missing {missing}; not listed: {extra}")
