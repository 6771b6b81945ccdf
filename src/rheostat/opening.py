"""From a model's settings to a model that may take traffic: opened, checked, wrapped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from rheostat.backends import ContractReport, check_contract, check_remote_contract, warm_up
from rheostat.backends.health_url import check_of
from rheostat.clock import SystemClock
from rheostat.config import Loaded
from rheostat.errors import ConfigError, ContractError, ModelError, Problem, RheostatError
from rheostat.pool import Backend, Checkable, Model, ModelSettings, RemoteBackend, Switchable
from rheostat.pool.batching import Batched
from rheostat.pool.memory import process_bytes
from rheostat.pool.prepared import Made, in_call, preparation
from rheostat.pool.prepared_beside import beside
from rheostat.pool.profile import load_profile
from rheostat.pool.residency import Residency
from rheostat.pool.shape import any_shape, shape_of
from rheostat.pool.stamp import file_bytes, stamp
from rheostat.signals import calibrated, load_calibrator

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
    model = await asyncio.to_thread(_opened, name, settings, loaded, residency, before)
    if profile is not None:
        model.profiled(profile)
    asked = model.backend if model.batched is None else model.batched.inner
    if isinstance(asked, RemoteBackend):
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
    size = 0 if isinstance(backend, RemoteBackend) else max(0, process_bytes() - before)
    row_s = _row_s(report) if made is None or before_it is None else before_it.latency_s
    switchable = origin if isinstance(origin, Switchable) else None
    return Model(name, settings, _queued(name, settings, ready, backend), row_s, check, size=size, origin=switchable)


def _successor(settings: ModelSettings, loaded: Loaded, before: Model | None) -> Backend | None:
    return None if before is None or before.origin is None else before.origin.successor(settings, loaded.base)


def _on_demand(name: str, settings: ModelSettings, loaded: Loaded, residency: Residency) -> Model:
    """Open it once, to hold it to its contract and to measure it; it stays in memory only with `preload`."""
    seen: list[tuple[Made | None, ContractReport, Checkable | None]] = []
    then = stamp(settings, loaded.base)

    def first() -> Backend:
        backend, ready, report, check = _proven(name, settings, loaded, settings.open(loaded.base))
        if isinstance(backend, RemoteBackend):
            raise ConfigError([Problem("resident", None, "this model is not in this process: remove `resident`")])
        seen.append((ready, report, check))
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
    ((ready, report, check),) = seen
    return Model(name, settings, _queued(name, settings, ready, guest), _row_s(report), check, guest)


def _proven(
    name: str, settings: ModelSettings, loaded: Loaded, backend: Backend | RemoteBackend, briefly: bool = False
) -> tuple[Backend | RemoteBackend, Made | None, ContractReport, Checkable | None]:
    """Try the model and time it; `briefly` where only its weights are new, so that one row says whether they are sound."""
    try:
        check = check_of(settings, backend)
        if settings.health.interval and check is None and not settings.probe_rows:
            raise ConfigError([Problem("health.interval", None, "there is nothing to check: set `health.url` or `probe`")])
        if settings.adaptive is not None and isinstance(backend, Backend):
            said = "a model in this process has as many calls at a time as threads: set `max_concurrency` instead"
            raise ConfigError([Problem("adaptive", None, said)])
        ready = preparation(settings, backend)
        report = check_contract(name, in_call(ready, backend, tried=True), settings, most=1 if briefly else 0)
        _check_labels(backend, loaded.config.labels)
        backend = _calibrated(in_call(ready, backend), settings, loaded)
    except RheostatError:
        if isinstance(backend, Backend):
            backend.close()
        raise
    return backend, ready, report, check


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
