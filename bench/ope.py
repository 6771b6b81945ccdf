"""Off-policy estimates against the truth: on Open Bandit Data, and on synthetic logs of which the truth is known.

    python -m bench.ope [--repeats 200] [--rows 2000]

Open Bandit Data (ZOZO, CC BY 4.0) logged the same fashion shop under two policies at once: Thompson sampling and a uniform
draw. From the Thompson log the uniform policy's click rate is estimated; the truth is what the uniform draw really earned.
The way back cannot be taken: the chances of the Thompson policy are logged for its own choices only, and they moved.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from bench.labelled import SPLITS, data_folder
from rheostat.lab.bootstrap import bootstrap
from rheostat.lab.ope import ESTIMATORS, Log, OpeRefused, check_overlap, evaluate

ACTIONS = ("small", "medium", "large", "other")
SIZES = {"narrow": 0.4, "wide": 1.2}  # how far the logging policy is from uniform


def main(argv: Sequence[str] | None = None) -> None:
    """Print both tables as Markdown."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--repeats", type=int, default=200, help="synthetic logs per line")
    arguments.add_argument("--rows", type=int, default=2000, help="rows of a synthetic log")
    given = arguments.parse_args(argv)
    open_bandit()
    print()
    synthetic(given.repeats, given.rows)


def open_bandit() -> None:
    """The uniform policy's click rate from the Thompson log, campaign by campaign and position by position."""
    rows = read_open_bandit()
    if rows is None:
        return
    print("Open Bandit Data: clicks per 1,000 of the uniform policy, estimated from the log of Thompson sampling\n")
    print("| campaign, position | rows | ESS | truth | " + " | ".join(ESTIMATORS) + " | truth in DR's interval |")
    print("|" + "---|" * (len(ESTIMATORS) + 5))
    inside = asked = 0
    for campaign in ("men", "women"):
        for position in ("all", 1, 2, 3):
            part = [r for r in rows if r["campaign"] == campaign and position in ("all", r["pos"])]
            truth = bootstrap([float(r["label"]) for r in part if r["policy"] == "random"])
            log = uniform_from([r for r in part if r["policy"] == "bts"])
            name = f"| {campaign}, {position} | {len(log)} |"
            try:
                found = evaluate(log, least_ess=30.0)
            except OpeRefused as refused:
                print(f"{name} | {_per_mille(truth)} | refused: {str(refused).split(';')[0]} |")
                continue
            dr = found.values["dr"]
            asked += 1
            inside += dr.low <= truth.mean <= dr.high
            cells = " | ".join(_per_mille(found.values[one]) for one in ESTIMATORS)
            word = "yes" if dr.low <= truth.mean <= dr.high else "no"
            print(f"{name} {found.overlap.ess:.0f} | {_per_mille(truth)} | {cells} | {word} |")
    print(
        f"\nthe truth lies in DR's interval in {inside} of {asked} lines that could be answered (the truth is a sample too)"
    )


def read_open_bandit() -> list[dict[str, Any]] | None:
    """Return all rows, or None after saying where they should be."""
    folder = data_folder() / "datasets" / "obd_small"
    paths = [folder / f"{split}.jsonl.gz" for split in SPLITS]
    if not all(path.is_file() for path in paths):
        print(f"Open Bandit Data skipped: it is not shipped (st-tech/zr-obp, folder obd); rows as JSON lines go to {folder}")
        return None
    found: list[dict[str, Any]] = []
    for path in paths:
        with gzip.open(path, "rb") as file:
            found += map(msgspec.json.decode, file)
    return found


def uniform_from(rows: Sequence[dict[str, Any]]) -> Log:
    """Return the log whose target is uniform over the campaign's items; features: position, affinity, a group of users."""
    items = tuple(sorted({row["item"] for row in rows}))
    place = {item: code for code, item in enumerate(items)}
    users = [[sum(map(ord, row[key])) % 5 == code for code in range(5)] for row in rows for key in ("u0",)]
    plain = [[row["pos"] == 1, row["pos"] == 2, row["aff_sum"]] for row in rows]
    return Log(
        action=np.array([place[row["item"]] for row in rows], np.int32),
        reward=np.array([row["label"] for row in rows], float),
        propensity=np.array([row["ps"] for row in rows]),
        target=np.full((len(rows), len(items)), 1.0 / len(items)),
        actions=items,
        features=np.column_stack([np.array(plain, float), np.array(users, float)]),
    )


def synthetic(repeats: int, rows: int) -> None:
    """Coverage, bias and width of every estimator over repeated logs of known truth."""
    print(f"Synthetic: {repeats} logs of {rows:,} rows, four models; 95 % intervals, bias and rmse x 1,000\n")
    print("| log | regression | " + " | ".join(f"{one}: covers, bias, rmse" for one in ESTIMATORS) + " |")
    print("|" + "---|" * (len(ESTIMATORS) + 2))
    for name, size in SIZES.items():
        truth = drawn(1_000_000, 0, size)[1]
        for method in ("ridge", "nothing"):
            began = time.monotonic()
            print(f"{name}, {method} ...", file=sys.stderr, flush=True)
            cells = judged(repeats, rows, size, method, truth)
            print(f"| {name} | {method} | {cells} |")
            print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def judged(repeats: int, rows: int, size: float, method: str, truth: float) -> str:
    """Return one line's cells: share of intervals that hold the truth, bias, root mean squared error."""
    covered = dict.fromkeys(ESTIMATORS, 0)
    errors: dict[str, list[float]] = {one: [] for one in ESTIMATORS}
    answered = 0
    for repeat in range(repeats):
        log = drawn(rows, repeat + 1, size)[0]
        if method == "nothing":
            log = without_features(log)
        try:
            check_overlap(log)
        except OpeRefused:
            continue
        answered += 1
        found = evaluate(log, draws=500, seed=repeat)
        for one, interval in found.values.items():
            covered[one] += interval.low <= truth <= interval.high
            errors[one].append(interval.mean - truth)
    cells = []
    for one in ESTIMATORS:
        wrong = np.array(errors[one])
        cells.append(
            f"{covered[one] / answered:.0%}, {1000 * wrong.mean():+.1f}, {1000 * float(np.sqrt((wrong**2).mean())):.1f}"
        )
    return " | ".join(cells)


def without_features(log: Log) -> Log:
    """The same log without features, so that the regression knows the models' means only."""
    return Log(log.action, log.reward, log.propensity, log.target, log.actions)


def drawn(rows: int, seed: int, size: float) -> tuple[Log, float]:
    """Return a log of a softmax policy and the true value of the opposite one on these contexts.

    Success probabilities bend in the first feature, which a linear regression cannot follow.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    slope = np.random.default_rng(1).normal(size=(3, len(ACTIONS))) * 0.7
    mean = 1.0 / (1.0 + np.exp(-(x @ slope + 0.8 * np.sin(3.0 * x[:, :1]) * np.array([1.0, -1.0, 0.5, 0.0]))))
    logging, target = (np.exp(sign * size * x @ slope) for sign in (1.0, -0.5))
    logging /= logging.sum(axis=1, keepdims=True)
    target /= target.sum(axis=1, keepdims=True)
    action = (logging.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1).astype(np.int32)
    at = np.arange(rows)
    reward = (rng.random(rows) < mean[at, action]).astype(float)
    return Log(action, reward, logging[at, action], target, ACTIONS, x), float((mean * target).sum(axis=1).mean())


def _per_mille(found: Any) -> str:
    return f"{1000 * found.mean:.1f} [{1000 * found.low:.1f}, {1000 * found.high:.1f}]"


if __name__ == "__main__":
    main()
