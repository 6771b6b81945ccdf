"""How quickly the lab decides over recorded outcomes: replayed rows per second by policy, and a whole threshold curve.

    python -m bench.replay [--rows 1000000]

Rows are synthetic (two models, three labels, correlated correctness); only speed is measured here, and every curve is
checked against the replay of the policy itself at one threshold before its time counts. The yardstick of the run is
NumPy's own sort of one column of the same length.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rheostat.lab.curve import cascade_curve
from rheostat.lab.outcomes import ModelColumns, ModelInfo, OutcomesTable
from rheostat.lab.replay import replay
from rheostat.policies import parse_policy

LABELS = ("negative", "neutral", "positive")
THRESHOLD = 0.8
POLICIES: dict[str, Any] = {
    "one model": "fast",
    "cascade": {"cascade": {"stages": ["fast", "large"], "threshold": THRESHOLD}},
    "cascade + blend": {"cascade": {"stages": ["fast", "large"], "threshold": THRESHOLD, "blend": 0.4}},
    "delegate": {"delegate": {"weak": "fast", "strong": "large", "low": 0.2, "high": 0.8}},
    "blend": {"blend": {"weights": {"fast": 0.4, "large": 0.6}}},
}


def make_table(rows: int, seed: int = 7) -> OutcomesTable:
    """Return a table of `rows` rows in which the large model is right more often and the fast one knows when it is not."""
    chance = np.random.default_rng(seed)
    truth = chance.integers(0, len(LABELS), rows).astype(np.int32)

    def model(accuracy: float, latency: float, cost: float) -> ModelColumns:
        confidence = chance.beta(8 * accuracy, 8 * (1 - accuracy), rows).clip(0.34, 1.0)
        wrong = (truth + chance.integers(1, len(LABELS), rows)) % len(LABELS)
        label = np.where(chance.random(rows) < confidence, truth, wrong).astype(np.int32)
        scores = np.repeat(((1 - confidence) / 2)[:, None], len(LABELS), axis=1).astype(np.float32)
        scores[np.arange(rows), label] = confidence
        return ModelColumns(
            label,
            confidence.astype(np.float64),
            np.full(rows, latency),
            np.full(rows, cost),
            np.zeros(rows, np.int8),
            scores,
        )

    return OutcomesTable(
        np.array([str(row) for row in range(rows)], object),
        np.full(rows, 1, np.int8),
        truth,
        LABELS,
        {"fast": model(0.8, 0.0001, 1.0), "large": model(0.9, 0.004, 40.0)},
        {"fast": ModelInfo(cost=1.0), "large": ModelInfo(cost=40.0)},
    )


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds and the result of one run."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def main() -> None:
    """Print rows per second."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--rows", type=int, default=1_000_000)
    rows = arguments.parse_args().rows
    print(f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}\n")
    table = make_table(rows)
    column = table.columns["fast"].confidence
    yardstick, _ = timed(lambda: np.sort(column))
    seconds, curve = timed(lambda: cascade_curve(table, ("fast", "large")))
    few = table.subset(np.arange(min(rows, 20_000)))
    point = cascade_curve(few, ("fast", "large"))
    replayed = replay(parse_policy(POLICIES["cascade"]), few)
    at = point.index(THRESHOLD)
    apart = abs(point.quality[at] - replayed.correct.mean()) + abs(point.share[at] - replayed.share("large"))
    if apart > 1e-9:
        raise SystemExit("the curve and the replayed policy disagree; no figure is worth printing")
    print(f"threshold curve over {rows:,} rows, {len(curve):,} thresholds:")
    print(f"{seconds:.2f} s cpu, {rows / seconds:,.0f} rows/s, {seconds / yardstick:.0f} x one sort\n")
    print(f"{'replay of the policy itself':28} {'rows/s':>10}")
    for name, node in POLICIES.items():
        policy = parse_policy(node)
        spent, _ = timed(lambda policy=policy: replay(policy, few))  # type: ignore[misc]
        print(f"{name:28} {len(few) / spent:10,.0f}")


if __name__ == "__main__":
    main()
