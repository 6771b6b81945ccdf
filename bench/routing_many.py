"""Routers over more than two models on unseen rows, beside the oracle, mixing by chance, and the plain methods.

`python -m bench.routing_many [PART ...]` prints one table a part: nine, nine-task, arena, headlines,
headlines-answers, digits-answers.
Predictions are kept in `.cache/routing-many`; a killed run goes on where it was.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import xxhash

import rheostat.lab.many as many_package
from bench import many_data as source
from bench.embeddings import CACHE
from bench.many_answers import Rows, answers
from bench.routing_data import folder
from bench.routing_rows import Table, Target, tell
from rheostat.lab.bootstrap import Difference, Interval
from rheostat.lab.many import METHODS, ManyData, Sweep, Unseen, aiq_gap, guarded, judge, out_of_fold, quality_gap, sweep
from rheostat.lab.metrics import aiq, oracle, zero_router_aiq
from rheostat.lab.metrics_many import arena_score, deferral_area, gains, mixed_cost_at_quality, optimality, qnc
from rheostat.lab.routers.data import folds

OURS = "forest"
TEXT_ONLY = (OURS, "kernel", "ridge", "knn", "ridge+knn", "clusters")
ASSUMED = "The source counts no tokens: a prompt is taken to have length / 4, every answer 200, at the source's list prices."
HEAD = ("router", "AIQ [95 %]", "above the zero router", "quality at trade 0 [95 %]", "cost to match the best single, %")


def main(arguments: Sequence[str]) -> int:
    """Run the named parts, all by default; return the exit status."""
    unknown = [name for name in arguments if name not in PARTS]
    if unknown:
        print(f"unknown part {unknown[0]!r}; known: {', '.join(PARTS)}")
        return 2
    missing = [folder() / name for name in source.NEEDED if not (folder() / name).is_file()]
    if missing:
        print(f"routing_many skipped: {missing[0]} is not there; not shipped, set RHEOSTAT_DATA to where `routing/` lies")
        return 0
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    found: list[Target] = []
    for name in arguments or PARTS:
        start = time.perf_counter()
        table = PARTS[name]()
        print(table.markdown(), flush=True)
        found += table.targets
        tell(f"{name} done in {time.perf_counter() - start:.0f} s")
    for level in ("must", "good"):
        of = [target for target in found if target.level == level]
        print(f"{level}: {sum(target.reached for target in of)} of {len(of)} reached")
    return 0


def nine() -> Table:
    """Nine language models, text only."""
    data, _ = source.nine(tell)
    rows, sweeps, ours = _routers(data, TEXT_ONLY)
    first, match = sweeps[OURS].quality[0], 100.0 * _match(data, sweeps[OURS])
    targets = (
        Target("must", "quality at trade 0", first, ">=", 0.653),
        Target("must", "cost to match, %", match, "<=", 38.0),
        Target("good", "quality at trade 0", first, ">=", 0.660),
        _above(data, sweeps, "ridge"),
        _held(data, ours),
    )
    return Table("Nine language models, text only", HEAD, rows, (ASSUMED, *_notes(data, ours, sweeps[OURS])), targets)


def nine_task() -> Table:
    """Nine language models, text and task."""
    plain, tasks = source.nine(tell)
    data = source.with_task(plain, tasks)
    rows, sweeps, ours = _routers(data, (*TEXT_ONLY, "means"))
    first, match = sweeps[OURS].quality[0], 100.0 * _match(data, sweeps[OURS])
    targets = (
        Target("must", "quality at trade 0", first, ">=", 0.664),
        Target("must", "cost to match, %", match, "<=", 18.5),
        Target("good", "quality at trade 0", first, ">=", 0.670),
        _above(data, sweeps, "ridge"),
        _above(data, sweeps, "means"),
        _held(data, ours),
    )
    return Table("Nine language models, text and task", HEAD, rows, (ASSUMED, *_notes(data, ours, sweeps[OURS])), targets)


def arena() -> Table:
    """RouterArena's public split, on which one model dominates."""
    data = source.arena(tell)
    rows, _, ours = _routers(data, TEXT_ONLY)
    picks, chosen = guarded(data, ours)
    at = np.arange(len(data))
    score = arena_score(float(data.quality[at, picks].mean()), 1000.0 * float(data.cost[at, picks].mean()))
    found = optimality(picks, list(data.quality.T), list(data.cost.T))
    notes = (
        *_notes(data, ours, None),
        f"Guarded picks: arena score {100 * score:.2f}; Opt.Sel {found.selection:.3f}, Opt.Cost {found.cost:.3f}, "
        f"Opt.Acc {found.quality:.3f}. The right answer is: always {data.models[data.best]}"
        + (", and that is what the guard says in every fold." if not any(one.routes for one in chosen) else "."),
    )
    share = 100.0 * float((picks == data.best).mean())
    targets = (
        Target("must", "dominating model picked, %", share, ">=", 99.0),
        Target("must", "arena score (rounded)", round(100.0 * score, 1), ">=", 69.7),
        _held(data, ours),
        Target("good", "arena score", 100.0 * score, ">=", 70.0),
    )
    return Table("RouterArena, public split, two models", HEAD, rows, notes, targets)


def headlines() -> Table:
    """Six classifiers of headlines, before any has answered."""
    data, _ = source.headlines(tell)
    rows, sweeps, ours = _routers(data, TEXT_ONLY)
    return Table(
        "Headlines, six classifiers, cost in ms", HEAD, rows, _notes(data, ours, sweeps[OURS]), (_held(data, ours),)
    )


def headlines_answers() -> Table:
    """Six classifiers of headlines, looking at answers."""
    data, confidence = source.headlines(tell)
    predicted = _unseen(data, OURS).predicted
    rows = Rows(data.models, data.quality, confidence, predicted, data.cost.mean(axis=0))
    return answers("Headlines, six classifiers, looking at answers", rows)


def digits_answers() -> Table:
    """Four classifiers of digits, looking at answers; what is predicted is each one's accuracy on a third of the rows."""
    models, quality, confidence, prices = source.digits()
    third = len(quality) // 3
    said = np.tile(quality[:third].mean(axis=0), (len(quality) - third, 1))
    return answers(
        "Digits, four classifiers, looking at answers", Rows(models, quality[third:], confidence[third:], said, prices)
    )


PARTS: dict[str, Callable[[], Table]] = {
    "nine": nine, "nine-task": nine_task, "arena": arena, "headlines": headlines,
    "headlines-answers": headlines_answers, "digits-answers": digits_answers,
}  # fmt: skip


def _routers(data: ManyData, names: Sequence[str]) -> tuple[tuple[tuple[str, ...], ...], dict[str, Sweep], Unseen]:
    unseen = {name: _unseen(data, name) for name in names}
    sweeps = {name: sweep(data, one.predicted) for name, one in unseen.items()}
    tell("intervals ...")
    judged = judge(data, sweeps)
    best = data.models[data.best]
    lines = [_oracle(data), (f"best single ({best})", "", "", f"{data.quality[:, data.best].mean():.4f}", "100")]
    lines.append(("zero router (mixing models by chance)", f"{zero_router_aiq(data.singles):.4f}", "0", "", "100"))
    for name, one in judged.items():
        shown = f"**{name}** (ours)" if name == OURS else name
        match = f"{100 * one.match:.1f}" if np.isfinite(one.match) else "never"
        lines.append((shown, _shown(one.aiq), _shown(one.above, "+"), _shown(one.first), match))
    lines += [_guarded(data, unseen[OURS], "quality"), _guarded(data, unseen[OURS], "match")]
    return tuple(lines), sweeps, unseen[OURS]


def _guarded(data: ManyData, unseen: Unseen, goal: Literal["quality", "match"]) -> tuple[str, ...]:
    picks, chosen = guarded(data, unseen, goal)
    gap, at = quality_gap(data, picks), np.arange(len(data))
    routed = sum(one.routes for one in chosen)
    return (
        f"ours, goal {goal}, guarded ({routed} of {len(chosen)} folds route)", "", "",
        f"{data.quality[at, picks].mean():.4f}; over the best single {_shown(gap, '+')}",
        f"costs {100 * data.cost[at, picks].mean() / data.singles[data.best][0]:.1f}",
    )  # fmt: skip


def _oracle(data: ManyData) -> tuple[str, ...]:
    picks, at = oracle(list(data.quality.T), list(data.cost.T)), np.arange(len(data))
    cost, quality = data.cost[at, picks].mean(), data.quality[at, picks].mean()
    match = mixed_cost_at_quality(
        [cost, *(c for c, _ in data.singles)], [quality, *(q for _, q in data.singles)], data.singles[data.best][1]
    )
    value = aiq([cost], [quality], data.singles)
    zero = zero_router_aiq(data.singles)
    return (
        "oracle (upper bound incl. chance)", f"{value:.4f}", f"{value - zero:+.4f}", f"{quality:.4f}",
        f"{100 * match / data.singles[data.best][0]:.1f}",
    )  # fmt: skip


def _above(data: ManyData, sweeps: dict[str, Sweep], other: str) -> Target:
    gap = aiq_gap(data, sweeps[OURS], sweeps[other])
    return Target("must", f"AIQ above that of {other} (lower bound of the paired gap)", gap.low, ">", 0.0)


def _held(data: ManyData, ours: Unseen) -> Target:
    under = min(100.0 * quality_gap(data, guarded(data, ours, goal)[0]).mean for goal in ("quality", "match"))
    return Target("must", "guarded quality less the best single model's, points, either goal", under, ">=", -0.2)


def _notes(data: ManyData, ours: Unseen, one: Sweep | None) -> tuple[str, ...]:
    first = guarded(data, ours)[1][0]
    notes = [f"{len(data)} rows, {len(data.models)} models, 5 folds. Guard, first fold: {first.why}."]
    if one is not None:
        more = gains(one.cost, one.quality, data.singles)
        notes.append(
            f"Ours: deferral-curve area {deferral_area(one.cost, one.quality, data.singles):.4f}, "
            f"QNC {_percent(qnc(one.cost, one.quality, data.singles))}, PerfGain {100 * more.quality:+.1f} %, "
            f"CostSave {_percent(more.saved)}."
        )
    return tuple(notes)


def _match(data: ManyData, one: Sweep) -> float:
    return mixed_cost_at_quality(one.cost, one.quality, data.singles[data.best][1]) / data.singles[data.best][0]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if np.isfinite(share) else "none (never reached)"


def _shown(one: Interval | Difference, sign: str = "") -> str:
    return f"{one.mean:{sign}.4f} [{one.low:{sign}.4f}, {one.high:{sign}.4f}]"


def _unseen(data: ManyData, name: str) -> Unseen:
    """Out-of-fold predictions, from `.cache/routing-many` where nothing they depend on changed."""
    digest = xxhash.xxh3_64()
    for file in sorted(Path(many_package.__path__[0]).glob("*.py")):
        if file.stem in ("methods", "forest", "linear", "neighbours"):
            digest.update(file.read_bytes())
    for part in (data.x, data.quality, data.same):
        digest.update(np.ascontiguousarray(part).tobytes())
    path_ = CACHE / "routing-many" / f"{name}-{digest.hexdigest()}.npy"
    dealt = folds(data.same, 5, 0)
    if not path_.is_file():
        tell(f"{name}: {len(data)} rows ...")
        found = out_of_fold(data, METHODS[name], part=dealt, tell=tell).predicted
        path_.parent.mkdir(parents=True, exist_ok=True)
        with path_.with_suffix(".part").open("wb") as file_:
            np.save(file_, found)
        path_.with_suffix(".part").replace(path_)
    return Unseen(np.load(path_), dealt)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
