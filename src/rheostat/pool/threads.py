"""How many threads models may compute on, all together: what a container has to have processors for."""

from __future__ import annotations

from collections.abc import Mapping

from rheostat.pool.model import Model
from rheostat.pool.processors import processors


def compute_threads(model: Model) -> int:
    """Return the most threads that compute for a model at a time, in this process and in its own; 0 for one elsewhere.

    A library's threads inside a call are shared by the calls of one process.
    """
    inside = getattr(model.settings, "threads", 1)
    if model.workers is not None:
        return model.workers.count * (model.workers.settings.threads or inside)
    if model.runs == "remote":
        return 0
    if model.batched is not None:
        calls = model.batched.settings.instances
    else:
        calls = 1 if model.inline else model.settings.max_concurrency or processors()
    return calls + inside - 1


def threads_told(models: Mapping[str, Model]) -> str:
    """Say how many threads there may be, and whose."""
    counts = {name: count for name, model in models.items() if (count := compute_threads(model))}
    each = ", ".join(f"{name}: {count} ({models[name].runs})" for name, count in counts.items())
    return f"models compute on up to {sum(counts.values())} threads ({each}); {processors()} processors may be used"
