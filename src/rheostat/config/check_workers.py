"""Models in processes of their own: what they cannot be together with, and what has no effect."""

from __future__ import annotations

from rheostat.config.draft import Draft
from rheostat.pool import ModelSettings
from rheostat.pool.worker.settings import WorkerSettings, processes_of

ELSEWHERE = ("chat", "http", "openai", "inference_protocol")


def check_workers(draft: Draft) -> None:
    """Check `workers` and `run: process` of every model."""
    for name, model in draft.models.items():
        worker = None if model is None else processes_of(model.run, model.workers)
        if model is not None and worker is not None:
            _check(draft, f"models.{name}", model, worker)


def _check(draft: Draft, path: str, model: ModelSettings, worker: WorkerSettings) -> None:
    key = "workers" if model.workers is not None else "run"
    if isinstance(model, ModelSettings) and model.__struct_config__.tag in ELSEWHERE:
        draft.wrong(f"{path}.{key}", f"this model computes elsewhere, so it needs no process here; remove `{key}`")
        return
    if model.run not in ("auto", "process"):
        told = f"`workers` are processes and `run: {model.run}` says that there are none; remove one of the two"
        draft.wrong(f"{path}.run", told)
    if not model.resident:
        told = "a process keeps its model in memory, so this cannot be loaded on demand; remove it"
        draft.wrong(f"{path}.{key}", f"{told}, or remove `resident: false`")
    if model.adaptive is not None:
        draft.wrong(f"{path}.adaptive", "as many calls run at a time as there are processes: remove it, or set `workers`")
    if model.timeout > worker.stuck:
        told = f"a call that takes {worker.stuck:g} s is killed with its process (`workers.stuck`), so {model.timeout:g} s"
        draft.wrong(f"{path}.timeout", f"{told} are never waited; set `workers.stuck` to more, or shorten `timeout`")
    if f"{path}.batch.instances" in draft.decoder.lines:
        told = f"a model with processes has a call at a time in each, here {worker.count}; remove it and set `workers`"
        draft.wrong(f"{path}.batch.instances", told)
    if model.prepare is not None and model.prepare.threads:
        draft.wrong(f"{path}.prepare.threads", "rows are prepared in the model's processes; remove it, or set 0")
