"""Traffic that shifts: `python -m bench.stream [set ...]`

For every set: does a budget of large calls hold on a stream (a threshold chosen on dev against the spend controller), what
becomes of requests that are out of scope (a person's review, or a silent guess), how far confidence can be trusted before
and after calibration, and does a threshold chosen on some rows hold on others. Chosen on dev, reported on test.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from bench.cascade import BUDGET
from bench.labelled import SETS, TEXT_SETS, why_absent
from bench.pools import outcomes, train_pool
from bench.transfer import calibration_lines, transfer_line
from rheostat.lab.bootstrap import bootstrap
from rheostat.lab.goal import Goal
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.replay import ReplayResult, replay
from rheostat.lab.tune import choose_policy
from rheostat.policies import Cascade, Policy, Review
from rheostat.resilience.spend import Spend, SpendSettings

OUT_OF_SCOPE = "oos"
STEP = 0.1  # the product's default, not tuned here
SHUFFLES = 5
WINDOW = 1_000
MOST_ERROR = 0.03  # the error among answered requests that the floor of a review is chosen for, on dev
MOST_GUESSED = 0.10  # or for this share of dev's out-of-scope requests answered wrongly without a word
FLOORS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class Order(Struct, frozen=True):
    """One order in which the test rows arrive."""

    name: str
    rows: NDArray[np.int64]


def main(arguments: Sequence[str]) -> int:
    """Run the named sets, all of text by default; return the exit status."""
    unknown = [name for name in arguments if name not in SETS]
    if unknown:
        print(f"unknown set {unknown[0]!r}; known: {', '.join(SETS)}")
        return 2
    budgets = [
        f"A budget of {BUDGET:.0%} large calls on test traffic; step {STEP:g}, both begin at the threshold that dev gives\n",
        "| set | order | way | share of large calls | off by, points | worst 1,000 requests | accuracy |",
        "|---|---|---|---|---|---|---|",
    ]
    reviews: list[str] = []
    trusted = ["| set | model | ECE as given | ECE after | fitted on | method |", "|---|---|---|---|---|---|"]
    moved = [
        "| set | target | quality minus target, points: mean (worst) | large calls, expected - got | the same, sure |",
        "|---|---|---|---|---|",
    ]
    for name in arguments or TEXT_SETS:
        absent = why_absent(name)
        if absent:
            print(absent)
            continue
        pool = train_pool(name, _tell)
        table = outcomes(pool)
        budgets += _budget_lines(name, table)
        if OUT_OF_SCOPE in pool.labels:
            reviews += _review_lines(name, table)
        trusted += calibration_lines(name, outcomes(pool, raw=True))
        moved += transfer_line(name, table)
        _tell(f"{name} done")
    print("\n".join([*budgets, "", *reviews, "", *trusted, "", *moved]))
    return 0


def _chosen(table: OutcomesTable) -> tuple[Cascade, float]:
    """The cascade that dev gives for the budget, by the plain mean, and where the controller begins."""
    goal = Goal(max_share=BUDGET, sure=False)
    chosen = choose_policy(table.select(split="dev"), goal, table.models, "cascade+blend", "dev")
    if isinstance(chosen, Cascade) and isinstance(chosen.threshold, float):
        return chosen, min(0.999, max(0.001, chosen.threshold))
    return Cascade(stages=table.models, threshold=0.9), 0.9  # one model alone is best on dev: begin where the product does


def _spend(table: OutcomesTable, start: float) -> Spend:
    settings = SpendSettings(share=BUDGET, models=table.models[-1:], start=start, step=STEP)
    return Spend(name="large", settings=settings, unit=table.model_info[table.models[-1]].cost)


def _orders(table: OutcomesTable) -> Iterator[Order]:
    for seed in range(SHUFFLES):
        yield Order("shuffled", np.random.default_rng(seed).permutation(len(table)))
    if OUT_OF_SCOPE in table.labels:
        rows = np.random.default_rng(0).permutation(len(table))
        out = table.truth[rows] == table.labels.index(OUT_OF_SCOPE)
        inside = rows[~out]
        half = len(inside) // 2
        second = np.random.default_rng(1).permutation(np.concatenate([inside[half:], rows[out]]))
        yield Order("out of scope from the middle on", np.concatenate([inside[:half], second]))


def _budget_lines(name: str, table: OutcomesTable) -> list[str]:
    test = table.select(split="test")
    fixed, start = _chosen(table)
    moving = structs.replace(fixed, threshold="spend.large")
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for order in _orders(test):
        rows = test.subset(order.rows)
        for way, policy in ((f"threshold {start:.3f} from dev", fixed), ("spend controller", moving)):
            found.setdefault((order.name, way), []).append(_figures(replay(policy, rows, spends=(_spend(table, start),))))
    lines = []
    for (order_name, way), figures in found.items():
        shares, worst, right = np.array(figures).T
        gap = np.abs(shares - BUDGET).max() * 100
        cells = (name, order_name, way, f"{shares.mean():.1%}", f"{gap:.2f}", f"{worst.max():.1%}", f"{right.mean():.2%}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _figures(played: ReplayResult) -> tuple[float, float, float]:
    """The share of large calls, the share in the dearest window, and the accuracy."""
    called = played.called[:, -1].astype(np.float64)
    sums = np.convolve(called, np.ones(min(WINDOW, len(called))), "valid") / min(WINDOW, len(called))
    return float(called.mean()), float(sums.max()), float(played.correct.sum() / max(1, played.judged.sum()))


def _review_lines(name: str, table: OutcomesTable) -> list[str]:
    """Coverage against error at every floor, of requests in scope and out of it; two floors are chosen on dev."""
    fixed, start = _chosen(table)
    policy = structs.replace(fixed, threshold="spend.large")
    dev, test = (_played(policy, table.select(split=split), start) for split in ("dev", "test"))
    by_error = next((floor for floor in FLOORS if _errors(dev, floor)[1] <= MOST_ERROR), FLOORS[-1])
    by_guess = next((floor for floor in FLOORS if _ways(dev, floor)[-1] <= MOST_GUESSED), FLOORS[-1])
    lines = [
        f"{name}: answers under a floor go to a person (policy review around the cascade under the controller). Lowest "
        f"floor of the grid with at most {MOST_ERROR:.0%} error among answered on dev: {by_error:g}; with at most "
        f"{MOST_GUESSED:.0%} of dev's out-of-scope requests guessed silently: {by_guess:g}\n",
        "| floor | dev: answered, error | test: answered, error | in scope: review | out of scope: review | said "
        f"{OUT_OF_SCOPE} | silent guess |",
        "|---|---|---|---|---|---|---|",
    ]
    for floor in (0.0, *FLOORS):
        cells = [f"**{floor:g}**" if floor in (by_error, by_guess) else f"{floor:g}"]
        cells += ["{:.1%}, {:.1%}".format(*_errors(part, floor)) for part in (dev, test)]
        lines.append(f"| {' | '.join([*cells, *(f'{share:.1%}' for share in _ways(test, floor))])} |")
    for floor in sorted({by_error, by_guess}):
        played = _played(Review(policy=policy, below=floor), table.select(split="test"), start)
        right = bootstrap(played.correct[played.judged].astype(np.float64))
        lines += [
            "",
            f"Replayed with floor {floor:g}: {played.counts()}; large calls {played.share(table.models[-1]):.1%}; "
            f"error among answered {1 - right.mean:.1%} [{1 - right.high:.1%}, {1 - right.low:.1%}]",
        ]
    return lines


def _played(policy: Policy, rows: OutcomesTable, start: float) -> ReplayResult:
    """The policy under the controller, on rows in a random order."""
    mixed = rows.subset(np.random.default_rng(0).permutation(len(rows)))
    return replay(policy, mixed, spends=(_spend(rows, start),))


def _ways(played: ReplayResult, floor: float) -> tuple[float, float, float, float]:
    """Shares: of requests in scope that go to review; of those out of scope to review, answered as such, and guessed."""
    out = played.table.truth == played.table.labels.index(OUT_OF_SCOPE)
    review, right = ~(played.confidence >= floor), _right(played)
    said, guessed = (~review & right)[out], (~review & ~right)[out]
    return float(review[~out].mean()), float(review[out].mean()), float(said.mean()), float(guessed.mean())


def _right(played: ReplayResult) -> NDArray[np.bool_]:
    return np.asarray(played.label == played.table.truth)


def _errors(played: ReplayResult, floor: float) -> tuple[float, float]:
    """The share answered and the error among them."""
    kept = played.confidence >= floor
    return float(kept.mean()), float(1.0 - _right(played)[kept].mean()) if kept.any() else 0.0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
