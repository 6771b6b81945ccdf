"""What does `retune` say when a real model changes? `python -m bench.retune`

Banking77, a cascade tuned for 20 % of large calls. Changes: none; a large model whose training stops at once (planted), and
the way back; a small model that is half as sure of itself; a small model that no longer knows ten of the labels.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bench.labelled import why_absent
from bench.pools import outcomes, train_pool
from rheostat.lab.goal import Goal
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.retune import Retuned, retune
from rheostat.lab.tune import tune

SET = "banking77"
GOAL = Goal(max_share=0.2)
EXPECTED = {
    "nothing": "keep",
    "large under-trained": "hold back",
    "large trained again": "keep or retune",
    "small half as sure": "retune",
    "small worse, as sure": "hold back or retune",
}


def main(arguments: Sequence[str]) -> int:
    """Run all changes; return the exit status."""
    if arguments:
        print("bench.retune takes no arguments")
        return 2
    absent = why_absent(SET)
    if absent is not None:
        print(absent)
        return 0
    good, bad = (outcomes(train_pool(SET, _tell, planted)) for planted in ("", "tolerance"))
    ways = {
        "nothing": (good, good),
        "large under-trained": (good, bad),
        "large trained again": (bad, good),
        "small half as sure": (good, _less_sure(good)),
        "small worse, as sure": (good, _without_ten_labels(good)),
    }
    print("| change | expected | said | quality | large calls | new setting on test, against the one in service |")
    print("|---|---|---|---|---|---|")
    for name, (before, after) in ways.items():
        policy = tune(before, GOAL, stages=("small", "large")).policy
        found = retune(policy, before, after, goal=GOAL)
        said = found.act if found.act in EXPECTED[name] else f"{found.act} (NOT AS EXPECTED)"
        print(f"| {name} | {EXPECTED[name]} | {said} | {_figures(found)} |")
    return 0


def _less_sure(table: OutcomesTable) -> OutcomesTable:
    small = table.columns["small"]
    return replace(table, columns={**table.columns, "small": replace(small, confidence=0.5 * small.confidence)})


def _without_ten_labels(table: OutcomesTable) -> OutcomesTable:
    """The small model gives its second choice wherever its first is among the ten labels that it no longer knows."""
    small = table.columns["small"]
    assert small.scores is not None
    scores = small.scores.astype(np.float64)
    scores[:, :10] = 0.0
    scores /= scores.sum(axis=1, keepdims=True)
    label = scores.argmax(axis=1).astype(np.int32)
    changed = replace(small, label=label, confidence=scores.max(axis=1), scores=scores.astype(np.float32))
    return replace(table, columns={**table.columns, "small": changed})


def _figures(found: Retuned) -> str:
    change, share = found.quality.change, found.share
    cells = [
        f"{found.quality.before.mean:.2%} -> {found.quality.after.mean:.2%}, {change.mean * 100:+.2f} "
        f"[{change.low * 100:+.2f}, {change.high * 100:+.2f}]",
        f"{share.before.mean:.1%} -> {share.after.mean:.1%}",
    ]
    if found.proposed is None or found.gain is None:
        return " | ".join([*cells, "none"])
    reported, gain = found.proposed.reported, found.gain
    told = f"{reported.quality.mean:.2%} at {reported.share.mean:.1%}, {gain.mean * 100:+.2f}"
    return " | ".join([*cells, f"{told} [{gain.low * 100:+.2f}, {gain.high * 100:+.2f}]"])


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
