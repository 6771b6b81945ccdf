"""Does what is chosen on some rows hold on others: calibration from dev to test, thresholds between random halves."""

from __future__ import annotations

import numpy as np

from rheostat.lab.calibration import CalibrationError, calibrate
from rheostat.lab.curve import ESCALATE_ALL, cascade_curve
from rheostat.lab.goal import Goal, GoalError
from rheostat.lab.outcomes import SPLITS, OutcomesTable
from rheostat.lab.tune import choose_policy
from rheostat.policies import Cascade, Policy, Use

HELD_OUT = 500  # rows a calibrator is fitted on
DRAWS = 10
RELATIVE = 0.98


def calibration_lines(name: str, raw: OutcomesTable) -> list[str]:
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


def transfer_line(name: str, table: OutcomesTable) -> list[str]:
    """Choose a threshold for 98 % of the large model's accuracy on a random half, apply it to the other; ten times."""
    both = table.subset(table.split != SPLITS.index("train"))
    cells = [name, f"{RELATIVE:.0%} of large"]
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
    return [f"| {' | '.join(cells)} |"]


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
