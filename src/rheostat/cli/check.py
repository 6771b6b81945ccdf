"""`rheostat check`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rheostat.cli.console import WRONG_USE, note, say, say_json, say_table, told

if TYPE_CHECKING:
    from rheostat.config import Loaded
    from rheostat.pool import Model


@told
def check(
    config: Annotated[str, typer.Argument(help="The config file.", metavar="CONFIG")] = "rheostat.yaml",
    load: Annotated[bool, typer.Option("--load", help="Also open every model, try its contract and time it.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the config's JSON Schema, for editors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a config: every mistake with its line, then what was understood.

    Exit code 0: it can be used; 2: it cannot.

    Example: `rheostat check rheostat.yaml --load`
    """
    from rheostat.config import json_schema, load_config
    from rheostat.errors import ConfigError

    if schema:
        say_json(json_schema())
        return
    models: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[str]] = {}
    try:
        loaded = load_config(config)
        if load:
            models, groups = asyncio.run(_opened(loaded))
    except ConfigError as error:
        if not as_json:
            raise
        problems = [{"path": each.path, "line": each.line, "message": each.message} for each in error.problems]
        say_json({"ok": False, "problems": problems})
        raise typer.Exit(WRONG_USE) from None
    if as_json:
        say_json(_as_data(loaded, models, groups))
        return
    for warning in loaded.warnings:
        note(f"warning: {warning}")
    _tell(loaded, models)
    for name, lines in groups.items():
        for line in lines:
            say(f"signal {name}: {line}")


async def _opened(loaded: Loaded) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    """Return what was seen of the models, and how well the examples of groups tell them apart."""
    from rheostat.build import build
    from rheostat.signals.groups import GroupScorer

    wiring = await build(loaded)
    pool = wiring.plan.pool
    try:
        scorers = {name: scorer for name, (_, scorer) in wiring.scorers.items() if isinstance(scorer, GroupScorer)}
        groups = {name: scorer.quality().lines() for name, scorer in scorers.items()}
        return {name: _seen(pool[name]) for name in pool}, groups
    finally:
        for name in pool:
            await pool[name].aclose()


def _seen(model: Model) -> dict[str, Any]:
    count = model.workers.count if model.workers is not None else 0
    where = {
        "remote": "elsewhere",
        "inline": "on the event loop",
        "thread": "in a thread",
        "process": f"in {count} process{'es' if count > 1 else ''} of its own",
    }
    return {"runs": where[model.runs], "latency_s": model.latency_s or None, "labels": list(model.labels or ())}


def _as_data(loaded: Loaded, models: dict[str, dict[str, Any]], groups: dict[str, list[str]]) -> dict[str, Any]:
    from rheostat.cli.policy_words import in_words
    from rheostat.policies import live_of

    config = loaded.config
    return {
        "ok": True,
        "version": loaded.version,
        "warnings": [{"path": each.path, "line": each.line, "message": each.message} for each in loaded.warnings],
        "models": {
            name: {"version": each.version, "cost": each.cost, **models.get(name, {})}
            for name, each in config.models.items()
        },
        "routes": {
            name: {
                "policy": in_words(loaded.policies[name]),
                "policy_version": loaded.policy_versions[name],
                "reads_load": list(live_of(loaded.policies[name])),
            }
            for name in config.routes
        },
        "signals": list(config.signals),
        "groups": groups,
    }


def _tell(loaded: Loaded, models: dict[str, dict[str, Any]]) -> None:
    from rheostat.cli.policy_words import in_words
    from rheostat.policies import signals_of
    from rheostat.policies.reads import without_load

    config = loaded.config
    say(f"{loaded.path} can be used (version {loaded.version})")
    say()
    head = ["model", "backend", "version", "cost"] + (["a row takes", "runs", "labels"] if models else [])
    rows = []
    for name, settings in config.models.items():
        row = [name, str(settings.__struct_config__.tag), settings.version, f"{settings.cost:g}"]
        rows.append(row + (_measured(models[name]) if name in models else []))
    say_table(head, rows)
    for name, settings in config.models.items():
        if settings.weak_at:
            say(f"{name} is weak at: {settings.weak_at}")
    for name, route in config.routes.items():
        say()
        limit = f"deadline {float(route.deadline):g} s" if route.deadline else "no deadline of its own"
        say(f"route {name} ({limit}, policy version {loaded.policy_versions[name]})")
        for line in in_words(loaded.policies[name]):
            say(f"  {line}")
        read = signals_of(loaded.policies[name])
        if read:
            say(f"  reads the signals {', '.join(read)}")
        if unseen := without_load(loaded.policies[name]):
            say(f"  {unseen}")
        for line in _ladder(route.fallback):
            say(f"  {line}")
        if others := _others(loaded, name):
            say(f"  any other model may stand in at L3 ({', '.join(others)}): name those that may in the route's `models`")
        if route.cache is not None:
            say(f"  an answer is given again for {float(route.cache.ttl):g} s to whoever asks the same")
        if route.cache is not None and (near := route.cache.semantic) is not None:
            say(f"  and to whoever asks what is {near.similarity:g} similar, which is sometimes something else")
    kept = [f"{kind} {place}" for kind in ("jsonl", "sqlite") if (place := getattr(config.records, kind))]
    say()
    say(f"records: {', '.join(kept) or 'none are kept'}")
    if not models:
        say("models were not opened: --load opens, tries and times them")


def _others(loaded: Loaded, route: str) -> list[str]:
    """Name the models that may answer at L3 although nothing says so: a route without `models` has all of them."""
    from rheostat.policies import models_of

    settings, models = loaded.config.routes[route], loaded.config.models
    if settings.models or not settings.fallback.lighter:
        return []
    named = list(models_of(loaded.policies[route]))
    for name in named:  # grows as it goes
        stand_ins = (*models[name].peers, models[name].lighter)
        named += [each for each in stand_ins if each is not None and each not in named]
    return [name for name in models if name not in named]


def _ladder(fallback: Any) -> list[str]:
    steps = []
    if fallback.retry:
        steps.append(f"L1 again ({fallback.retry} time{'s' if fallback.retry > 1 else ''})")
    steps += ["L2 a peer"] * bool(fallback.peer) + ["L3 a lighter model"] * bool(fallback.lighter)
    steps += ["L4 the last answer to the same question"] * fallback.cached
    if fallback.preset is not None:
        steps.append(f"L5 the preset {fallback.preset.label!r}")
    later = "; then a model's own answer follows later" if fallback.later else ""
    return [f"when models fail: {', '.join(steps) or 'an error'}{later}"]


def _measured(seen: dict[str, Any]) -> list[str]:
    latency, labels = seen["latency_s"], seen["labels"]
    shown = ", ".join(labels[:4]) + (f", ... ({len(labels)})" if len(labels) > 4 else "")
    return [f"{latency * 1000:.3g} ms" if latency else "not tried", seen["runs"], shown or "not declared"]
