"""Models that are not always in memory: what they cannot be together with, and what has no effect."""

from __future__ import annotations

from rheostat.config.draft import Draft
from rheostat.pool import ModelSettings


def check_residency(draft: Draft) -> None:
    """Check `resident`, `keep` and `preload` of every model, and `memory`."""
    on_demand = 0
    for name, model in draft.models.items():
        if model is None:
            on_demand += 1  # nothing is known of it
        elif model.resident:
            for key in ("keep", "preload"):
                path = f"models.{name}.{key}"
                if path in draft.decoder.lines:
                    draft.wrong(path, f"is for models that are loaded on demand; set `resident: false`, or remove `{key}`")
        else:
            on_demand += 1
            _on_demand(draft, f"models.{name}", model)
    if "memory" in draft.sections and not on_demand:
        draft.doubtful("memory", "no model has `resident: false`, so this changes nothing")


def _on_demand(draft: Draft, path: str, model: ModelSettings) -> None:
    if model.run == "inline":
        draft.wrong(f"{path}.run", "a model with `resident: false` may have to be loaded, which takes long: remove `run`")
    if model.health.interval and not model.health.url:
        draft.wrong(f"{path}.health.interval", "every check would load the model; remove it, or set `health.url`")
