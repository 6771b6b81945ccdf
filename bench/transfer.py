"""Does what is chosen on some rows hold on others? `python -m bench.transfer [set ...]`

A budget of large calls: a threshold chosen on dev against the spend controller, on test. Confidence: before and after a
calibrator fitted on 500 rows of dev, on test. A threshold for 98 % of the large model's accuracy: from a random half of dev
and test to the other half.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from msgspec import structs

from bench.cascade import BUDGET
from bench.labelled import SETS, TEXT_SETS, why_absent
from bench.pools import outcomes, train_pool
from rheostat.lab.calibration import CalibrationError, calibrate
from rheostat.lab.curve import ESCALATE_ALL, cascade_curve
from rheostat.lab.goal import Goal, GoalError
from rheostat.lab.outcomes import SPLITS, OutcomesTable
from rheostat.lab.replay import ReplayResult, replay
from rheostat.lab.tune import choose_policy
from rheostat.policies import Cascade, Policy, Use
from rheostat.resilience.spend import Spend, SpendSettings

WINDOW = 1_000  # requests over which the dearest stretch is looked for
HELD_OUT = 500  # rows a calibrator is fitted on
DRAWS = 10
RELATIVE = 0.98


def main(arguments: Sequence[str]) -> int:
    """Run the named sets, all of text by default; return the exit status."""
    unknown = [name for name in arguments if name not in SETS]
    if unknown:
        print(f"unknown set {unknown[0]!r}; known: {', '.join(SETS)}")
        return 2
    budgets = [
        f"A budget of {BUDGET:.0%} large calls, test rows in {DRAWS} random orders; both begin with dev's cascade\n",
        "| set | threshold from dev: large calls, accuracy | controller: large calls (farthest), accuracy | dearest 1,000 |",
        "|---|---|---|---|",
    ]
    trusted = ["| set | model | ECE as given | ECE after | fitted on | method |", "|---|---|---|---|---|---|"]
    moved = [
        "| set | quality minus target, points: mean (worst) | large calls, expected - got | kept surely: the same |",
        "|---|---|---|---|",
    ]
    for name in arguments or TEXT_SETS:
        absent = why_absent(name)
        if absent:
            print(absent)
            continue
        pool = train_pool(name, lambda line: print(line, file=sys.stderr, flush=True))
        table = outcomes(pool)
        budgets.append(_budget_line(name, table))
        trusted += _calibration_lines(name, outcomes(pool, raw=True))
        moved.append(_transfer_line(name, table))
        print(f"{name} done", file=sys.stderr, flush=True)
    print("\n".join([*budgets, "", *trusted, "", f"A threshold for {RELATIVE:.0%} of the large model's accuracy\n", *moved]))
    return 0


def _budget_line(name: str, table: OutcomesTable) -> str:
    """The share of large calls and the accuracy with a threshold that stays, and with one that a budget moves."""
    goal = Goal(max_share=BUDGET, sure=False)
    chosen = choose_policy(table.select(split="dev"), goal, table.models, "cascade+blend", "dev")
    if not isinstance(chosen, Cascade) or not isinstance(chosen.threshold, float):
        return f"| {name} | one model alone is best on dev | - | - |"
    start = min(0.999, max(0.001, chosen.threshold))
    spend = Spend(name="large", settings=SpendSettings(share=BUDGET, models=table.models[-1:], start=start))
    moving = structs.replace(chosen, threshold="spend.large")
    test = table.select(split="test")
    cells = [name]
    figures = [_figures(replay(chosen, test))]
    cells.append(f"{figures[0][0]:.1%}, {figures[0][2]:.2%}")
    orders = [test.subset(np.random.default_rng(seed).permutation(len(test))) for seed in range(DRAWS)]
    shares, dearest, right = np.array([_figures(replay(moving, rows, spends=(spend,))) for rows in orders]).T
    far = shares[np.abs(shares - BUDGET).argmax()]
    cells += [f"{shares.mean():.1%} ({far:.2%}), {right.mean():.2%}", f"{dearest.max():.1%}"]
    return f"| {' | '.join(cells)} |"


def _figures(played: ReplayResult) -> tuple[float, float, float]:
    """The share of large calls, the share in the dearest window, and the accuracy."""
    called = played.called[:, -1].astype(np.float64)
    width = min(WINDOW, len(called))
    dearest = float(np.convolve(called, np.ones(width), "valid").max()) / width
    return float(called.mean()), dearest, float(played.correct.sum() / max(1, played.judged.sum()))


def _calibration_lines(name: str, raw: OutcomesTable) -> list[str]:
    """The expected calibration error on test of every model, before and after fitting on 500 rows of dev."""
    dev = np.flatnonzero(raw.split == SPLITS.index("dev"))
    some = np.random.default_rng(0).permutation(dev)[:HELD_OUT]
    table = raw.subset(np.sort(np.concatenate([some, np.flatnonzero(raw.split == SPLITS.index("test"))])))
    lines = []
    for model in table.models:
        try:
            found = calibrate(table, model)
        except CalibrationError as error:
            lines.append(f"| {name} | {model} | - | - | - | {error} |")
            continue
        method = type(found.fitted).__name__.lower()
        lines.append(
            f"| {name} | {model} | {found.ece_before:.3f} | {found.ece_after:.3f} | {found.fitted_on} rows | {method} |"
        )
    return lines


def _transfer_line(name: str, table: OutcomesTable) -> str:
    """Choose a threshold for 98 % of the large model's accuracy on a random half, apply it to the other; ten times."""
    both = table.subset(table.split != SPLITS.index("train"))
    cells = [name]
    for sure in (False, True):
        gaps, expected, got = [], [], []
        for seed in range(DRAWS):
            order = np.random.default_rng(seed).permutation(len(both))
            left, right = both.subset(order[: len(both) // 2]), both.subset(order[len(both) // 2 :])
            goal = Goal(min_relative_quality=RELATIVE, sure=sure)
            try:
                policy = choose_policy(left, goal, table.models, "cascade")
            except GoalError:
                continue
            cut = _threshold(policy, table.models[-1])
            before, after = (_applied(rows, cut) for rows in (left, right))
            gaps.append(after[0] * 100)
            expected.append(before[1])
            got.append(after[1])
        if not gaps:
            cells.append("not reachable")
            continue
        quality = f"{np.mean(gaps):+.2f} ({min(gaps):+.2f})"
        share = f"{np.mean(expected):.1%} - {np.mean(got):.1%}"
        cells += [quality, share] if not sure else [f"{quality}; {share}"]
    return f"| {' | '.join(cells)} |"


def _threshold(policy: Policy, last: str) -> float:
    if isinstance(policy, Cascade) and isinstance(policy.threshold, float):
        return policy.threshold
    return ESCALATE_ALL if isinstance(policy, Use) and policy.model == last else 0.0


def _applied(rows: OutcomesTable, cut: float) -> tuple[float, float]:
    """Quality minus the target of these rows, and the share of large calls."""
    curve = cascade_curve(rows, rows.models)
    if cut <= 0.0:
        return float(curve.correct[:, 0].mean() - RELATIVE * curve.alone.mean()), 0.0
    point = curve.point(max(0, curve.index(cut)))
    return point.quality - RELATIVE * float(curve.alone.mean()), point.share


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
