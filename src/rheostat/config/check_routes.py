"""Routes: their models, their ladder, and policies that would share one memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rheostat.config.draft import Draft, nearest
from rheostat.config.schema import RouteSettings
from rheostat.resilience.ladder import Preset


def check_routes(draft: Draft) -> None:
    """Note what is wrong with any route."""
    for name, route in draft.routes.items():
        if route is not None:
            _route(draft, f"routes.{name}", route, _used_by(draft, name))
    _memories(draft)


def _route(draft: Draft, path: str, route: RouteSettings, used: Mapping[str, str]) -> None:
    for index, name in enumerate(route.models):
        draft.exists(f"{path}.models[{index}]", name, draft.models, "model")
    if route.models:
        for name, where in used.items():
            if name in draft.models and name not in route.models:
                draft.wrong(where, f"`{name}` is not among the `models` of this route ({', '.join(route.models)})")
    fallback = route.fallback
    if fallback.default is not None:
        candidates = route.models or draft.models
        draft.exists(f"{path}.fallback.default", fallback.default, candidates, "model")
    if fallback.preset is not None:
        _preset(draft, f"{path}.fallback.preset", fallback.preset, route.models or tuple(used))
    for name in used:
        model = draft.models.get(name)
        if model is not None and 0.0 < route.deadline < model.timeout:
            message = f"its timeout of {model.timeout:g} s is longer than the deadline of {path}, {route.deadline:g} s"
            draft.doubtful(f"models.{name}.timeout", message)


def _preset(draft: Draft, path: str, preset: Preset, answering: Sequence[str]) -> None:
    if not 0.0 <= preset.confidence <= 1.0:
        draft.wrong(f"{path}.confidence", f"must lie in [0, 1], got {preset.confidence}")
    labels = list(draft.labels)
    if not labels:
        candidates = [draft.models.get(name) for name in answering]
        if candidates and all(model is not None and model.labels for model in candidates):
            labels = [label for model in candidates if model is not None for label in model.labels]
    if labels and preset.label not in labels:
        hint = nearest(preset.label, dict.fromkeys(labels))
        draft.wrong(f"{path}.label", f"`{preset.label}` is no label of the task; {hint}")


def _memories(draft: Draft) -> None:
    for route in draft.routes:
        seen: dict[str, int] = {}
        for _, name, path, line in draft.reader.named:
            if not path.startswith(f"routes.{route}.policy"):
                continue
            if name in seen:
                message = f"two policies with hysteresis share the name `{name}` (line {seen[name]}) and so one memory"
                draft.decoder.problem(path, line, f"{message}; give each its own `name`")
            seen.setdefault(name, line)


def _used_by(draft: Draft, route: str) -> dict[str, str]:
    """Return the models that a route's policy names, each with the path where it first does."""
    prefix = f"routes.{route}.policy"
    used: dict[str, str] = {}
    for reference in draft.reader.references:
        if reference.kind == "model" and (reference.path + ".").startswith((prefix + ".", prefix + "[")):
            used.setdefault(reference.name, reference.path)
    return used
