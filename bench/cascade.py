"""Does routing pay on real labelled sets? `python -m bench.cascade [set ...]`

For every set a small and a large model are trained, the product's own lab tunes on dev and measures on test, and its
report goes to bench-out/. On banking77 two under-trained large models are planted as well, which must be flagged.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from bench.labelled import NAMES, SETS, TABLE_SETS, why_absent
from bench.pools import Pool, outcomes, train_pool
from bench.text_models import PLANTS
from rheostat.lab.bootstrap import Difference
from rheostat.lab.figures import Figures
from rheostat.lab.goal import Goal
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.report import write_report
from rheostat.lab.trust import trust
from rheostat.lab.tune import Tuned
from rheostat.lab.verdict import Verdict
from rheostat.policies import Blend

OUT = Path("bench-out")
BUDGET = 0.20
PLANTED = "banking77"
_WIDTHS = (21, 6, 7, 7, 7, 14, 7, 9, 24, 24)
_HEADS = ("set", "test", "small", "large", "oracle", "policy", "share", "accuracy", "against large", "against best single")
_KINDS = ("cascade", "cascade+blend", "blend")


def main(arguments: Sequence[str]) -> int:
    """Run the named sets, all by default; return the exit status."""
    unknown = [name for name in arguments if name not in SETS]
    if unknown:
        print(f"unknown set {unknown[0]!r}; known: {', '.join(SETS)}")
        return 2
    OUT.mkdir(exist_ok=True)
    wanted = tuple(arguments) or SETS
    lines = [_line(_HEADS), _line(tuple("-" * width for width in _WIDTHS))]
    told: list[str] = []
    for name in wanted:
        absent = why_absent(name) or _lacking(name)
        if absent:
            told.append(absent)
            continue
        for planted in ("", *PLANTS) if name == PLANTED else ("",):
            _run(name, lines, told, planted)
    print(f"\n{_machine()}")
    print(
        f"models fitted on train, regularisation, temperature, thresholds and weights on dev (budget {BUDGET:.0%} calls of "
        "large, kept by its one-sided 95 % bound), figures on test; paired bootstrap, 95 %, in points\n"
    )
    print("\n".join(lines))
    print("\n" + "\n".join(told))
    return 0


def _lacking(name: str) -> str | None:
    if name in TABLE_SETS and find_spec("lightgbm") is None:
        return f"{name} skipped: its large model needs LightGBM (pip install lightgbm)"
    return None


def _run(name: str, lines: list[str], told: list[str], planted: str) -> None:
    start = time.perf_counter()
    pool = train_pool(name, _tell, planted)
    table = outcomes(pool)
    shown = f"{name} ({planted})" if planted else name
    report = OUT / f"{name}{f'-planted-{planted}' if planted else ''}.html"
    title = f"{NAMES[name]}{f', large model left under-trained by its {planted}' if planted else ''}"
    said = write_report(
        table,
        report,
        title=title,
        goal=Goal(max_share=BUDGET),
        command=f"python -m bench.cascade {name}",
        stages=table.models,
    )
    by_kind = {one.kind: one.reported for one in said.tuned}
    lines += [_line(_row(shown, kind, by_kind[kind])) for kind in _KINDS if kind in by_kind]
    told += _words(shown, said, table, report)
    if name in TABLE_SETS:
        told.append(f"  {_ranking(pool, table, said.tuned)}")
    _tell(f"{shown} done in {time.perf_counter() - start:.0f} s")


def _row(shown: str, kind: str, found: Figures) -> tuple[str, ...]:
    small, large = found.single(found.first), found.single(found.last)
    best = max(found.vs_each, key=lambda pair: found.single(pair[0]).quality.mean)[1]
    alone = (small.quality.mean, large.quality.mean, found.oracle)
    name, rows = (shown, str(found.n)) if kind == _KINDS[0] else ("", "")
    figures = (f"{value * 100:.2f}" if name else "" for value in alone)
    return (
        name,
        rows,
        *figures,
        kind,
        f"{found.share.mean * 100:.1f} %",
        f"{found.quality.mean * 100:.2f}",
        _gap(found.vs_last),
        _gap(best),
    )


def _gap(gap: Difference) -> str:
    mark = " +" if gap.better else " -" if gap.worse else ""
    return f"{gap.mean * 100:+.2f} [{gap.low * 100:+.2f}, {gap.high * 100:+.2f}]{mark}"


def _words(shown: str, said: Verdict, table: OutcomesTable, report: Path) -> list[str]:
    trusted = trust(table, table.models)
    lines = [f"{shown}: {said.headline}", f"  {said.blending}"]
    for member in trusted.members:
        ended = "converged" if member.converged else "NOT converged" if member.converged is False else "unknown"
        lines.append(
            f"  {member.model}: train {(member.train or 0) * 100:.2f}, dev {(member.dev or 0) * 100:.2f}, "
            f"test {(member.test or 0) * 100:.2f}; {ended} after {member.iterations} steps"
        )
    lines += [f"  FLAG {flag.kind}, {flag.about}: {flag.text}" for flag in trusted.flags]
    return [*lines, f"  report: {report}"]


def _ranking(pool: Pool, table: OutcomesTable, tuned: Sequence[Tuned]) -> str:
    """AUC and log loss of both models and of the blend, on test, for sets that are about ranking."""
    from sklearn.metrics import log_loss, roc_auc_score

    fresh = table.select(split="test")
    scores = {name: np.asarray(fresh.model(name).scores, dtype=np.float64) for name in fresh.models}
    scores = {name: values / values.sum(axis=1, keepdims=True) for name, values in scores.items()}
    blend = next((one.policy for one in tuned if isinstance(one.policy, Blend)), None)
    if blend is not None:
        total = sum(blend.weights.values())
        scores["blend"] = np.sum([scores[name] * weight / total for name, weight in blend.weights.items()], axis=0)
    truth = pool.truth["test"]
    parts = [
        f"{name} {roc_auc_score(truth, values[:, 1]):.4f} / {log_loss(truth, values):.4f}" for name, values in scores.items()
    ]
    return f"AUC / log loss: {', '.join(parts)}"


def _line(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def _machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("rheostat", "scikit-learn", "onnxruntime", "numpy"))
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}; {packages}"
    )


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
