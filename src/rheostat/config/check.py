"""What only the whole config can show: names that must exist, circles, clashes, values that make no sense."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from rheostat.config.check_access import check_access
from rheostat.config.check_batching import check_batching
from rheostat.config.check_cache import check_cache
from rheostat.config.check_chat import check_chat
from rheostat.config.check_joint import check_joint
from rheostat.config.check_limits import check_limits
from rheostat.config.check_residency import check_residency
from rheostat.config.check_results import check_results
from rheostat.config.check_routes import check_routes
from rheostat.config.check_sessions import check_sessions
from rheostat.config.check_workers import check_workers
from rheostat.config.draft import Draft, nearest
from rheostat.errors import Problem
from rheostat.pool import ModelSettings
from rheostat.resilience.spend import SpendSettings, spends_of
from rheostat.signals.base import ScorerSettings

FILE_FIELDS = (
    "path", "tokenizer", "head", "lexicon", "calibration", "encoder", "weights", "delta", "label_file", "profile", "cues",
)  # fmt: skip
"""Settings of models and signals that name a file or a folder."""
RUNS = ("auto", "inline", "thread", "process")


def check(draft: Draft) -> list[Problem]:
    """Note every mistake with the draft's decoder; return the warnings."""
    if "models" in draft.sections and not draft.models:
        draft.wrong("models", "there is no model; name at least one")
    if "routes" in draft.sections and not draft.routes:
        draft.wrong("routes", "there is no route; name at least one, usually `default`")
    if len(set(draft.labels)) != len(draft.labels):
        draft.wrong("labels", "a label stands twice")
    for name, model in draft.models.items():
        if model is not None:
            _model(draft, f"models.{name}", name, model)
    for name, scorer in draft.signals.items():
        if scorer is not None:
            _files(draft, f"signals.{name}", scorer)
        if name in draft.features:
            draft.wrong(f"signals.{name}", f"`{name}` is a built-in text feature; choose another name")
    _circles(draft)
    _references(draft)
    _budgets(draft)
    _pins(draft)
    check_routes(draft)
    check_cache(draft)
    check_results(draft)
    check_residency(draft)
    check_batching(draft)
    check_workers(draft)
    check_chat(draft)
    check_sessions(draft)
    check_limits(draft)
    check_joint(draft)
    _general(draft)
    check_access(draft)
    return draft.warnings


def _model(draft: Draft, path: str, name: str, model: ModelSettings) -> None:
    if not (isfinite(model.cost) and model.cost >= 0.0):
        draft.wrong(f"{path}.cost", f"must be a finite number, 0 or more, got {model.cost}")
    for key in ("max_concurrency", "queue", "tier"):
        if getattr(model, key) < 0:
            draft.wrong(f"{path}.{key}", f"must be 0 or more, got {getattr(model, key)}")
    if model.adaptive is not None and model.max_concurrency:
        draft.wrong(f"{path}.adaptive", "finds the limit itself: remove `max_concurrency`, or say `adaptive.most`")
    if model.run not in RUNS:
        draft.wrong(f"{path}.run", f"must be one of {', '.join(RUNS)}, got {model.run!r}; {nearest(model.run, RUNS)}")
    if not model.version:
        draft.wrong(f"{path}.version", "must not be empty; it is what a policy file is checked against")
    for index, peer in enumerate(model.peers):
        draft.exists(f"{path}.peers[{index}]", peer, draft.models, "model")
        if peer == name:
            draft.wrong(f"{path}.peers[{index}]", "a model cannot stand in for itself")
    if model.lighter is not None:
        draft.exists(f"{path}.lighter", model.lighter, draft.models, "model")
    if len(set(model.labels)) != len(model.labels):
        draft.wrong(f"{path}.labels", "a label stands twice")
    elif model.labels and draft.labels and set(model.labels) != set(draft.labels):
        missing = [label for label in draft.labels if label not in model.labels]
        extra = [label for label in model.labels if label not in draft.labels]
        said = "; ".join(f"{what}: {', '.join(names)}" for what, names in (("missing", missing), ("extra", extra)) if names)
        draft.wrong(f"{path}.labels", f"must be the labels of the task (in any order); {said}")
    _files(draft, path, model)


def _files(draft: Draft, path: str, settings: Any) -> None:
    for key in FILE_FIELDS:
        value = getattr(settings, key, None)
        if isinstance(value, str) and value and not os.path.exists(os.path.join(draft.base, value)):
            draft.wrong(f"{path}.{key}", f"there is no file {value} (paths start from the config's folder)")


def _circles(draft: Draft) -> None:
    done: set[str] = set()
    for start in draft.models:
        chain: list[str] = []
        name: str | None = start
        while name is not None and name not in done and name not in chain:
            chain.append(name)
            model = draft.models.get(name)
            name = model.lighter if model is not None else None
        if name in chain:
            circle = [*chain[chain.index(name) :], name]
            draft.wrong(f"models.{circle[0]}.lighter", f"goes round in a circle: {' -> '.join(circle)}")
        done.update(chain)


def _references(draft: Draft) -> None:
    whole = {entry: scorer for entry, scorer in draft.signals.items() if isinstance(scorer, ScorerSettings)}
    broken = [entry for entry in draft.signals if entry not in whole]
    made = [*broken, *(name for entry, scorer in whole.items() for name in scorer.signals(entry))]
    sound = {name: each for name, each in draft.budgets.items() if isinstance(each, SpendSettings)}
    made += [signal for spend in spends_of(sound, ()).values() for signal in spend.signals]
    broken += [f"spend.{name}" for name in draft.budgets if name not in sound]
    for kind, name, path, line in draft.reader.references:
        known = [*made, *draft.features] if kind == "signal" else list(draft.models)
        if name not in known and not (kind == "signal" and _of_any(name, broken)):
            draft.decoder.problem(path, line, f"unknown {kind} `{name}`; {nearest(name, known)}")


def _of_any(name: str, entries: Sequence[str]) -> bool:
    return any(name == entry or name.startswith(f"{entry}.") for entry in entries)


def _budgets(draft: Draft) -> None:
    for name, settings in draft.budgets.items():
        for model in settings.models if isinstance(settings, SpendSettings) else ():
            draft.exists(f"budgets.{name}.models", model, draft.models, "model")
        moves = not isinstance(settings, SpendSettings) or settings.moves
        read = any(kind == "signal" and _of_any(read, [f"spend.{name}"]) for kind, read, *_ in draft.reader.references)
        if moves and not read:
            draft.doubtful(f"budgets.{name}", f"no policy reads `spend.{name}`, so its threshold changes nothing")


def _pins(draft: Draft) -> None:
    for pin, file, path, line in draft.reader.pins:
        model = draft.models.get(pin.name)
        if pin.name not in draft.models:
            message = f"{file} was tuned with the model `{pin.name}`, which is not in this config; tune again"
            draft.decoder.problem(path, line, message)
        elif model is not None and model.version != pin.version:
            message = (
                f"{file} was tuned with `{pin.name}` version {pin.version}, the config has version {model.version}: "
                "its thresholds may not hold any more; tune again, or go back to that version"
            )
            draft.decoder.problem(path, line, message)


def _general(draft: Draft) -> None:
    if draft.routes and "default" not in draft.routes:
        draft.doubtful("routes", "no route is named `default`, so every request has to name its route")
    records = draft.decoder.decoded.get("records")
    if "records" not in draft.sections or (records is not None and records.jsonl is None and records.sqlite is None):
        message = "no records are kept (`jsonl` or `sqlite`), so no answer can be explained later"
        draft.doubtful("records", message)
    files = [] if records is None else [os.path.normpath(file) for file in (records.jsonl, records.sqlite) if file]
    if len(files) != len(set(files)):
        draft.wrong("records.sqlite", "is the same file as `records.jsonl`, and one would spoil the other; name another")
    if all(name in draft.policies for name in draft.routes):
        wanted = set(_named_anywhere(draft))
        routes = [route for route in draft.routes.values() if route is not None]
        open_to_all = any(route.fallback.lighter and not route.models for route in routes)
        stands_in = ", but where a route has no `models` it may answer at L3, when the others failed" if open_to_all else ""
        for name in draft.models:
            if name not in wanted:
                draft.doubtful(f"models.{name}", f"no route names this model{stands_in}")


def _named_anywhere(draft: Draft) -> Iterator[str]:
    for reference in draft.reader.references:
        yield reference.name
    for route in draft.routes.values():
        if route is not None:
            yield from (*route.models, route.fallback.default or "")
    for model in draft.models.values():
        if model is not None:
            yield from (*model.peers, model.lighter or "", *(getattr(model, part) for part in getattr(model, "parts", ())))
