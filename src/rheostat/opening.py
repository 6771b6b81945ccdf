"""From a model's settings to a model that may take traffic: opened, checked, wrapped."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rheostat.backends import check_contract, check_remote_contract
from rheostat.backends.health_url import check_of
from rheostat.config import Loaded
from rheostat.errors import ConfigError, ContractError, Problem, RheostatError
from rheostat.pool import Backend, Model, ModelSettings, RemoteBackend
from rheostat.signals import calibrated, load_calibrator


async def open_model(name: str, settings: ModelSettings, loaded: Loaded) -> Model:
    """Open the model and hold it to its contract.

    Raises:
        ConfigError, ContractError, MissingExtra: it cannot be used; nothing stays open.
    """
    model = await asyncio.to_thread(_opened, name, settings, loaded)
    if isinstance(model.backend, RemoteBackend):
        try:
            await check_remote_contract(name, model.backend, settings)
        except BaseException:
            await model.aclose()
            raise
    return model


def _opened(name: str, settings: ModelSettings, loaded: Loaded) -> Model:
    """Open what can be opened away from the event loop."""
    backend: Backend | RemoteBackend = settings.open(loaded.base)
    try:
        check = check_of(settings, backend)
        if settings.health.interval and check is None and not settings.probe_rows:
            raise ConfigError([Problem("health.interval", None, "there is nothing to check: set `health.url` or `probe`")])
        report = check_contract(name, backend, settings)
        _check_labels(backend, loaded.config.labels)
        if settings.calibration is not None:
            backend = calibrated(backend, load_calibrator(str(Path(loaded.base) / settings.calibration)))
    except RheostatError:
        if isinstance(backend, Backend):
            backend.close()
        raise
    return Model(name, settings, backend, float("inf") if report.skipped else report.row_s, check)


def _check_labels(backend: Backend | RemoteBackend, common: tuple[str, ...]) -> None:
    if common and backend.labels and set(backend.labels) != set(common):
        missing = ", ".join(sorted(set(common) - set(backend.labels))) or "none"
        extra = ", ".join(sorted(set(backend.labels) - set(common))) or "none"
        raise ContractError(f"its labels differ from the config's `labels`: missing {missing}; not listed: {extra}")
