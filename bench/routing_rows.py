"""One table of the routing bench: held-out scores of several routers, kept on disk, beside published figures and targets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import xxhash

import rheostat.lab.routers.learners as learners_module
from bench.embeddings import CACHE
from rheostat.lab.bootstrap import Difference
from rheostat.lab.metrics import Floats, apgr, call_performance_curve, cpt, pgr
from rheostat.lab.routers import LEARNERS, RoutingData, against, judge, out_of_fold

STRONG, WEAK = 24.7, 0.24
"""RouteLLM's prices, $ per million tokens (GPT-4-1106 and Mixtral 8x7B)."""
MEANS = {"mean": ("kernel", "forest"), "ridge+knn": ("ridge", "knn")}
"""Means of others: their held-out scores are the means of the others' held-out scores."""


class Line(NamedTuple):
    """One router of a table; CPT in percent."""

    name: str
    apgr: float
    low: float
    high: float
    cpt50: float
    cpt80: float
    cost95: float

    def cells(self) -> list[str]:
        shown = f" [{self.low:.3f}, {self.high:.3f}]" if np.isfinite(self.low) else ""
        rest = (self.cpt50, self.cpt80, self.cost95)
        return [self.name, f"{self.apgr:.3f}{shown}", *(f"{value:.1f}" if np.isfinite(value) else "" for value in rest)]


class Target(NamedTuple):
    """What a table should reach: `found` against `bound`."""

    level: Literal["must", "good"]
    what: str
    found: float
    sign: Literal[">=", "<=", ">"]
    bound: float

    @property
    def reached(self) -> bool:
        if self.sign == "<=":
            return self.found <= self.bound
        return self.found > self.bound if self.sign == ">" else self.found >= self.bound

    def words(self) -> str:
        """Return the target, what was found, and whether it is reached."""
        said = "reached" if self.reached else "MISSED"
        return f"{self.level}: {self.what} {self.sign} {self.bound:g}: {self.found:.4g}, {said}"


@dataclass(frozen=True)
class Table:
    """What one part of the bench found."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()

    def markdown(self) -> str:
        """Return it as Markdown."""
        lines = [f"### {self.title}", "", "| " + " | ".join(self.head) + " |", "|" + "---|" * len(self.head)]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        lines += ["", *self.notes, *(f"- {target.words()}" for target in self.targets), ""]
        return "\n".join(lines)


HEAD = ("router", "APGR [95 %]", "CPT50 %", "CPT80 %", "cost at 95 % quality, %")


def tell(line: str) -> None:
    """Say on standard error how far it is."""
    print(line, file=sys.stderr, flush=True)


def held_out(data: RoutingData, name: str, seeds: int) -> list[Floats]:
    """Return out-of-fold scores for each split seed, from `.cache/routing` where nothing they depend on changed."""
    if name in MEANS:
        each = [held_out(data, member, seeds) for member in MEANS[name]]
        return [np.mean(scores, axis=0) for scores in zip(*each, strict=True)]
    mark = _mark(data, name)
    found = []
    for seed in range(seeds):
        path = CACHE / "routing" / f"{name}-{seed}-{mark}.npy"
        if not path.is_file():
            tell(f"{name}, split seed {seed}: {len(data)} rows ...")
            score = out_of_fold(data, LEARNERS[name], seed=seed).score
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.with_suffix(".part").open("wb") as file:
                np.save(file, score)
            path.with_suffix(".part").replace(path)
        found.append(np.load(path))
    return found


def line_of(name: str, data: RoutingData, scores: Sequence[Floats], *, cascade: bool = False, interval: bool = True) -> Line:
    """Return a router's figures, the mean over split seeds."""
    curves = [call_performance_curve(data.weak, data.strong, score) for score in scores]
    weak, strong = float(data.weak.mean()), float(data.strong.mean())
    reach = pgr(0.95 * strong, weak, strong)
    low, high = (np.nan, np.nan)
    if interval:
        _, low, high, _ = judge(data, scores).apgr
    costs = [relative_cost(cpt(curve, reach), cascade) for curve in curves]
    middle = [float(np.mean([measure(curve) for curve in curves])) for measure in _MEASURES]
    return Line(name, middle[0], low, high, 100 * middle[1], 100 * middle[2], 100 * float(np.mean(costs)))


_MEASURES: tuple[Callable[..., float], ...] = (apgr, lambda curve: cpt(curve, 0.5), lambda curve: cpt(curve, 0.8))


def relative_cost(share: float, cascade: bool) -> float:
    """Return mean cost relative to always asking the strong model; in a cascade the weak one is always asked."""
    return (share * STRONG + (1.0 if cascade else 1.0 - share) * WEAK) / STRONG


def plain_lines(data: RoutingData, *, cascade: bool = False) -> list[Line]:
    """Return what needs no learning: random, longest prompt first, and the oracle."""
    length = data.x[:, data.features.index("length")].astype(np.float64)
    named = {"random": np.zeros(len(data)), "longest prompt first": length, "oracle (upper bound incl. chance)": data.gain}
    return [
        line_of(name, data, [score], cascade=cascade, interval=name.startswith("longest")) for name, score in named.items()
    ]


def published(*lines: tuple[str, float, float, float]) -> list[Line]:
    """Return published figures (RouteLLM, arXiv 2406.18665, tables 1 to 3) as lines."""
    return [Line(f"*{name}*", value, np.nan, np.nan, half, most, np.nan) for name, value, half, most in lines]


def gap_words(ours: str, theirs: str, gap: Difference) -> str:
    """Say how two routers differ on the same prompts."""
    return f"{ours} against {theirs}: {gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}], p = {gap.p:.3f}"


def gap_of(data: RoutingData, ours: Sequence[Floats], theirs: Sequence[Floats]) -> Difference:
    """Return the paired difference of APGR, the same prompts in every draw."""
    return against(data, ours, theirs)


def _mark(data: RoutingData, name: str) -> str:
    """A hash of what held-out scores depend on: the rows and the code of the routers."""
    digest = xxhash.xxh3_64(name.encode())
    for path in sorted(Path(str(learners_module.__file__)).parent.glob("*.py")):
        if path.name not in ("save.py", "__init__.py"):
            digest.update(path.read_bytes())
    for array in (data.x, data.weak, data.strong, data.same):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
