"""Traffic that is not what the data were: budgets that hold, and questions nobody should guess. `python -m bench.stream`

CLINC150 with its out-of-scope rows: 3 % of the rows a threshold is chosen on, 18 % of the test rows. A fixed threshold then
asks the large model too often; a budget (`spend.NAME`) moves the threshold. What even the large model is unsure of goes to a
person (`review`): the table says what that costs in coverage and what it saves in errors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import numpy as np

from bench.labelled import why_absent
from bench.pools import outcomes, train_pool
from rheostat.lab.bootstrap import bootstrap
from rheostat.lab.goal import Goal
from rheostat.lab.outcomes import Bools, OutcomesTable
from rheostat.lab.reliability import ece
from rheostat.lab.replay import replay
from rheostat.lab.tune import choose_policy
from rheostat.policies import Cascade, Review
from rheostat.resilience.spend import Spend, SpendSettings

SET, OUT_OF_SCOPE = "clinc150_oos", "oos"
BUDGET = 0.20
SEEDS = range(5)
FLOORS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def main() -> int:
    """Print the tables; return the exit status."""
    if absent := why_absent(SET):
        print(absent)
        return 0
    table = outcomes(train_pool(SET, lambda line: print(line, file=sys.stderr, flush=True)))
    dev, test = table.select(split="dev"), table.select(split="test")
    fixed = choose_policy(dev, Goal(max_share=BUDGET, sure=False), table.models, "cascade")
    assert isinstance(fixed, Cascade)
    assert isinstance(fixed.threshold, float)
    print(f"CLINC150 with out-of-scope rows, test n={len(test)}; threshold {fixed.threshold:.4f}, on dev {BUDGET:.0%}\n")
    _budgets(test, fixed)
    _review(dev, test, fixed)
    _calibration(test)
    return 0


def _budgets(test: OutcomesTable, fixed: Cascade) -> None:
    """The share of large calls under the shift: with the fixed threshold, and with one that a budget moves."""
    moving = Cascade(stages=fixed.stages, threshold="spend.large")
    print("traffic                           threshold   share of large calls (5 orders: mean, farthest)   accuracy")
    orders: Mapping[str, Callable[[int], OutcomesTable]] = {
        "test rows, shuffled": lambda seed: _shuffled(test, seed),
        "in scope first, then out of scope": lambda seed: _later(test, seed),
    }
    for name, order in orders.items():
        for title, policy, start in (("fixed", fixed, None), ("budget", moving, fixed.threshold)):
            shares, right = [], []
            for seed in SEEDS:
                played = replay(policy, order(seed), spends=() if start is None else (_spend(start),))
                shares.append(float(played.called[:, -1].mean()))
                right.append(float(played.correct.mean()))
            far = max(shares, key=lambda share: abs(share - BUDGET))
            print(f"{name:<33} {title:<11} {np.mean(shares):>8.2%} {far:>8.2%} {'':<32} {np.mean(right):>8.2%}")
    print()


def _spend(start: float | str | tuple[float, ...]) -> Spend:
    assert isinstance(start, float)
    return Spend(name="large", settings=SpendSettings(share=BUDGET, models=("large",), start=start, step=0.05))


def _shuffled(table: OutcomesTable, seed: int) -> OutcomesTable:
    return table.subset(np.random.default_rng(seed).permutation(len(table)))


def _later(table: OutcomesTable, seed: int) -> OutcomesTable:
    """Half of the stream has no question out of scope; then they all come, mixed with the rest."""
    rng = np.random.default_rng(seed)
    strange = _strange(table)
    inside = rng.permutation(np.flatnonzero(~strange))
    half = len(inside) // 2
    rest = rng.permutation(np.concatenate([inside[half:], np.flatnonzero(strange)]))
    return table.subset(np.concatenate([inside[:half], rest]))


def _strange(table: OutcomesTable) -> Bools:
    found: Bools = table.truth == table.labels.index(OUT_OF_SCOPE)
    return found


def _review(dev: OutcomesTable, test: OutcomesTable, fixed: Cascade) -> None:
    """What goes to a person, by how sure the final answer has to be; the floor is chosen on dev for 10 % of its rows."""
    chosen = max(floor for floor in np.linspace(0.05, 0.95, 91) if _share(dev, fixed, float(floor)) <= 0.10)
    strange = _strange(test)
    silent = replay(fixed, test)
    wrong = silent.label != test.truth
    print(
        f"without review {wrong.mean():.2%} of all answers are wrong; of the out-of-scope ones {wrong[strange].mean():.2%}"
    )
    print(f"{'':<7} {'to a person:':>16}  {'out of':<21} wrong among       out of scope: guessed")
    print(f"{'floor':<7} {'all':>16} {'in scope':>9} {'scope':>13} {'the rest [95 %]':>29} {'wrong, unmarked':>20}")
    for floor in sorted({*FLOORS, round(float(chosen), 2)}):
        played = replay(Review(policy=fixed, below=floor), test)
        marked = played.review
        told = played.label != test.truth
        rest = bootstrap(told[~marked].astype(np.float64))
        note = "  <- chosen on dev" if floor == round(float(chosen), 2) else ""
        print(
            f"{floor:<7.2f} {marked.mean():>16.1%} {marked[~strange].mean():>9.1%} {marked[strange].mean():>13.1%} "
            f"{rest.mean:>12.2%} [{rest.low:.2%}, {rest.high:.2%}] {(told & ~marked)[strange].mean():>20.1%}{note}"
        )
    print()


def _share(table: OutcomesTable, fixed: Cascade, floor: float) -> float:
    return float(replay(Review(policy=fixed, below=floor), table).review.mean())


def _calibration(test: OutcomesTable) -> None:
    """How far confidences can be believed, with and without the rows nothing was trained for."""
    inside = test.subset(np.flatnonzero(~_strange(test)))
    for name in test.models:
        everywhere, there = (ece(part.model(name).confidence, part.correct(name)) for part in (test, inside))
        print(f"ECE of {name}: {everywhere:.3f} on all test rows, {there:.3f} in scope")


if __name__ == "__main__":
    raise SystemExit(main())
