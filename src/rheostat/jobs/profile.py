"""Measures models one after another: alone, under load, by the length of the input, and against the right labels."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from time import perf_counter
from typing import Any, cast

from msgspec import Struct, structs

from rheostat.build import build
from rheostat.config import Loaded
from rheostat.engine.execute import judged
from rheostat.errors import ModelError
from rheostat.jobs.evaluate import chosen_models
from rheostat.jobs.example import Example
from rheostat.jobs.lines import DataError
from rheostat.lab.live_profile import quality_of
from rheostat.pool import Backend, Model, ModelSettings, RemoteBackend, Reply
from rheostat.pool.memory import process_bytes
from rheostat.pool.profile import Length, Load, Profile, spread_of, this_machine
from rheostat.types import tokens_of

PATIENCE_S = 30.0
LENGTHS = 4
_CALLS, _SECONDS = 30, 1.0  # of one load: at least so many calls, and no more once so long

Progress = Callable[[int, int], None]


class Effort(Struct, frozen=True, kw_only=True):
    """How much is asked: every row up to `rows` alone, then loads of 1, 2, 4 ... up to `most` rows or calls."""

    rows: int = 500
    most: int = 32

    def __post_init__(self) -> None:
        for name in ("rows", "most"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be 1 or more, got {getattr(self, name)}")


async def profile_models(
    loaded: Loaded,
    examples: Iterable[Example],
    *,
    models: Sequence[str] = (),
    effort: Effort | None = None,
    progress: Progress | None = None,
) -> list[Profile]:
    """Measure the named models (none named: all) on the examples (none: on each model's `probe`), one model at a time;
    labels, where there are any, give the quality.

    Args:
        progress: called with (steps done, steps in all).

    Raises:
        DataError: there are no rows, or the config has no such model.
        ConfigError: a model cannot be loaded or breaks its contract.
    """
    effort = effort or Effort()
    rows = list(islice(examples, effort.rows))
    chosen = chosen_models(loaded, models)
    asked = {name: rows or [Example("", "", "", row, {}) for row in each.probe_rows] for name, each in chosen.items()}
    for name, own in asked.items():
        if not own:
            raise DataError(f"there is no row to ask {name} about: name a file of rows, or set its `probe`")
    sizes = [2**power for power in range(effort.most.bit_length()) if 2**power <= effort.most]
    total, found = len(chosen) * (1 + len(sizes)), []
    for number, (name, settings) in enumerate(chosen.items()):
        done = number * (1 + len(sizes))

        def step(part: int, done: int = done) -> None:
            if progress is not None:
                progress(done + part, total)

        step(0)
        found.append(await _profile(name, structs.replace(settings, profile=None), loaded, asked[name], sizes, step))
    if progress is not None:
        progress(total, total)
    return found


async def _profile(
    name: str, settings: ModelSettings, loaded: Loaded, rows: Sequence[Example], sizes: Sequence[int],
    step: Callable[[int], None],
) -> Profile:  # fmt: skip
    load_s, memory = await asyncio.to_thread(_opening, settings, loaded.base)
    only = structs.replace(loaded.config, models={name: settings}, routes={}, signals={})
    wiring = await build(structs.replace(loaded, config=only))
    model = wiring.plan.pool[name]
    try:
        times, right, failures = await _alone(model, rows)
        if not times:
            kinds = ", ".join(f"{kind} {count}" for kind, count in failures.items())
            raise DataError(f"{name} answered none of the {len(rows)} rows ({kinds})")
        loads = []
        for part, size in enumerate(sizes):
            step(1 + part)
            loads.append(await _load(model, [example.data for example in rows], size))
    finally:
        await model.aclose()
    labelled = [value for example, value in zip(rows, right, strict=True) if example.label]
    return Profile(
        model=name,
        version=settings.version,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=this_machine(),
        source="measured",
        unit="calls at a time" if model.remote else "rows in a call",
        cost=settings.cost,
        alone=spread_of([seconds for _, seconds in times]),
        loads=tuple(load for load in loads if load is not None),
        lengths=_lengths(times),
        quality=quality_of(labelled) if labelled else None,
        load_s=load_s,
        memory=memory,
        failures=dict(failures),
    )


def _opening(settings: ModelSettings, base: str) -> tuple[float | None, int | None]:
    """Open the model by itself and close it again: how long that took, and what it added to the process."""
    before, began = process_bytes(), perf_counter()
    backend = settings.open(base)
    took, after = perf_counter() - began, process_bytes()
    if not isinstance(backend, Backend):
        return None, None
    backend.close()
    return took, max(0, after - before)


async def _alone(model: Model, rows: Sequence[Example]) -> tuple[list[tuple[int, float]], list[float], Mapping[str, int]]:
    """Ask for every row by itself: (tokens, seconds) of those answered, 1 or 0 for right or wrong, failures by kind."""
    times: list[tuple[int, float]] = []
    right: list[float] = []
    failures: Counter[str] = Counter()
    for example in rows:
        began = perf_counter()
        replies = await _asked(model, [example.data])
        took = perf_counter() - began
        prediction, failure = judged(model, replies[0])
        if failure is not None:
            failures[failure.kind] += 1
        else:
            times.append((tokens_of(example.data), took))
        right.append(float(prediction is not None and prediction.label == example.label))
    return times, right, failures


async def _load(model: Model, rows: Sequence[Any], size: int) -> Load | None:
    """Ask with `size` rows in each call, or `size` calls at a time, for about a second; None when nothing was answered."""
    times: list[float] = []
    answered, at, began = 0, 0, perf_counter()
    while (len(times) < _CALLS or size == 1) and perf_counter() - began < _SECONDS:
        taken = [rows[(at + offset) % len(rows)] for offset in range(size)]
        at += size
        calls = [[row] for row in taken] if model.remote else [taken]
        for took, replies in await asyncio.gather(*(_timed(model, call) for call in calls)):
            times.append(took)
            answered += sum(not isinstance(reply, ModelError) for reply in replies)
    spent = perf_counter() - began
    return Load(size=size, call=spread_of(times), rows_per_s=answered / spent) if answered else None


async def _timed(model: Model, rows: Sequence[Any]) -> tuple[float, Sequence[Reply]]:
    began = perf_counter()
    replies = await _asked(model, rows)
    return perf_counter() - began, replies


async def _asked(model: Model, rows: Sequence[Any]) -> Sequence[Reply]:
    """One call; what it raises is the reply to each of its rows."""
    try:
        if model.remote:
            return await cast("RemoteBackend", model.backend).apredict(rows, PATIENCE_S)
        if model.inline:
            return cast("Backend", model.backend).predict(rows)
        return await asyncio.to_thread(cast("Backend", model.backend).predict, rows)
    except ModelError as error:
        return [error] * len(rows)
    except Exception as error:  # whatever a backend raises is this call's failure only
        return [ModelError("crashed", f"{type(error).__name__}: {error}")] * len(rows)


def _lengths(times: Sequence[tuple[int, float]]) -> tuple[Length, ...]:
    """Cut the rows into quarters by their length; equal lengths stay together."""
    ordered = sorted(times)
    found: list[Length] = []
    start = 0
    for part in range(1, LENGTHS + 1):
        stop = part * len(ordered) // LENGTHS
        while 0 < stop < len(ordered) and ordered[stop][0] == ordered[stop - 1][0]:
            stop += 1
        if stop > start:
            spread = spread_of([seconds for _, seconds in ordered[start:stop]])
            found.append(Length(tokens=ordered[stop - 1][0], call=spread))
            start = stop
    return tuple(found)
