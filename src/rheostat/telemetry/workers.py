"""The numbers of models in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rheostat.pool.worker.workers import Workers
from rheostat.telemetry.series import Family, counter_samples

Cells = dict[tuple[str, ...], float]


def worker_families(models: Mapping[str, Workers]) -> Iterator[Family]:
    """Yield how many processes each model has, and how often they were replaced."""
    up: Cells = {(model,): float(workers.up) for model, workers in models.items()}
    yield Family("rheostat_workers_up", "gauge", "Processes of a model that serve now.", counter_samples(("model",), up))
    count: Cells = {(model,): float(workers.count) for model, workers in models.items()}
    yield Family("rheostat_workers", "gauge", "Processes that a model should have.", counter_samples(("model",), count))
    restarts: Cells = {
        (model, reason): float(number) for model, workers in models.items() for reason, number in workers.restarts.items()
    }
    text = "Processes that were replaced, by why: ended, stuck, memory, start (the one before did not start)."
    yield Family("rheostat_worker_restarts_total", "counter", text, counter_samples(("model", "reason"), restarts))
