"""Models whose rows are put together: what that needs, and what it cannot be together with."""

from __future__ import annotations

from rheostat.config.draft import Draft
from rheostat.pool import ModelSettings
from rheostat.pool.worker.settings import processes_of
from rheostat.resilience.breaker import BreakerSettings


def check_batching(draft: Draft) -> None:
    """Check `batch` of every model."""
    for name, model in draft.models.items():
        if model is not None and model.batch is not None:
            _check(draft, f"models.{name}", model)


def _check(draft: Draft, path: str, model: ModelSettings) -> None:
    batch = model.batch
    assert batch is not None
    if isinstance(model, ModelSettings) and not model.rows_together:
        asks = "`each: true` asks" if getattr(model, "each", False) else "this backend asks"
        draft.wrong(f"{path}.batch", f"{asks} for one row a call, so there is nothing to put together; remove it")
    if model.run == "inline":
        draft.wrong(f"{path}.run", "a batched model computes in threads of its own; remove `run`, or remove `batch`")
    if model.adaptive is not None:
        told = "finds a limit by the time of single calls, and rows of a batch share theirs; remove it, or set `target`"
        draft.wrong(f"{path}.adaptive", told)
    breaker = model.breaker or BreakerSettings()
    worker = processes_of(model.run, model.workers)
    instances = batch.instances if worker is None else worker.count
    places, wanted = model.max_concurrency or breaker.max_concurrent, batch.max_rows * instances
    if places and places < wanted:
        key = "max_concurrency" if model.max_concurrency else "breaker.maxConcurrent"
        told = (
            f"every row of a batch takes a place, and {places} of them never fill {instances} x {batch.max_rows} rows"
            f"; remove it, or set {2 * wanted}, so that the next batch can gather while one computes"
        )
        draft.wrong(f"{path}.{key}", told)
