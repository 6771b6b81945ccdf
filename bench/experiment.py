"""Policies on the same real traffic, compared by the product's own experiment. `python -m bench.experiment [set ...]`

Binary against continuous delegation between a small and a large model: models fitted on train, every policy chosen on dev,
all of them replayed over the same test rows. Reports go to bench-out/experiment-SET.html.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from bench.labelled import NAMES, TEXT_SETS, why_absent
from bench.pools import outcomes, train_pool
from rheostat.demo.data import normalised
from rheostat.lab.contribution import Contribution, contribution
from rheostat.lab.experiment import Accuracy, Auc, Contender, Experiment, LogLoss, Metric, experiment
from rheostat.lab.experiment.page import write_experiment
from rheostat.lab.experiment.words import amount, gap_words
from rheostat.lab.goal import Goal
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.segments import by_confidence, by_meta
from rheostat.lab.tune import choose_policy
from rheostat.policies import Use, models_of

OUT = Path("bench-out")
SETS = ("goemotions_polarity", "sst2")
FREE = Goal(sure=False, max_share=1.0)
BUDGET = Goal(max_share=0.20)
_HEADS = ("set", "policy", "accuracy", "against the best model alone", "verdict", "log loss", "cost", "calls of large")


def main(arguments: Sequence[str]) -> int:
    """Run the named sets, two by default; return the exit status."""
    if unknown := [name for name in arguments if name not in TEXT_SETS]:
        print(f"unknown set {unknown[0]!r}; known: {', '.join(TEXT_SETS)}")
        return 2
    OUT.mkdir(exist_ok=True)
    rows: list[tuple[str, ...]] = []
    told: list[str] = []
    for name in arguments or SETS:
        if absent := why_absent(name):
            print(absent)
            continue
        _run(name, rows, told)
    if rows:
        print(f"\n{platform.machine()}, Python {platform.python_version()}, 2 cores; paired bootstrap, 95 %, in points\n")
        print(_line(_HEADS), _line(["---"] * len(_HEADS)), *map(_line, rows), sep="\n")
        print("", *told, sep="\n")
    return 0


def _run(name: str, rows: list[tuple[str, ...]], told: list[str]) -> None:
    began = time.perf_counter()
    table = with_facts(outcomes(train_pool(name, _tell)))
    small, large = table.models
    dev, test = table.select(split="dev"), table.select(split="test")
    best = max(table.models, key=lambda model: float(dev.correct(model)[dev.complete(table.models)].mean()))
    policies = contenders(dev, small, large)
    metrics: tuple[Metric, ...] = (Accuracy(), LogLoss(), *((Auc(table.labels[1]),) if len(table.labels) == 2 else ()))
    found = experiment(
        test, policies, baseline=best, metrics=metrics, cluster="question", groups=("length",), split="test", progress=_tell
    )
    path = OUT / f"experiment-{name}.html"
    write_experiment(found, path, title=NAMES[name], brought=_brought(test, policies, small),
                     command=f"python -m bench.experiment {name}")  # fmt: skip
    rows += [_row(name, found, arm.name, large) for arm in found.arms]
    told += [f"{name}: {found.headline}", *(f"  - {line}" for line in (*found.reasons, *found.caution)), f"  report: {path}"]
    _tell(f"{name} done in {time.perf_counter() - began:.0f} s")


def with_facts(table: OutcomesTable) -> OutcomesTable:
    """Add to every row how long its text is (thirds of dev) and which question it is, so that repeats are drawn together."""
    assert table.inputs is not None
    texts = [str(msgspec.json.decode(text)) for text in table.inputs]
    words = ("short", "middle", "long")
    letters = np.array([len(text) for text in texts])
    place = np.searchsorted(np.quantile(letters[table.split == 1], [1 / 3, 2 / 3]), letters, side="right")
    facts = [{"length": words[at], "question": normalised(text)} for at, text in zip(place, texts, strict=True)]
    return replace(table, meta=np.array([msgspec.json.encode(fact).decode() for fact in facts], dtype=object))


def contenders(dev: OutcomesTable, small: str, large: str) -> Mapping[str, Contender]:
    """Each model alone, and what is best on dev: two binary policies and three continuous ones."""
    stages = (small, large)
    kinds = {"cascade": FREE, "blend": FREE, "cascade+blend": FREE, "delegate": FREE}
    found = {small: Contender(Use(small)), large: Contender(Use(large))}
    found |= {kind: Contender(choose_policy(dev, goal, stages, kind, "dev")) for kind, goal in kinds.items()}
    found["cascade, 20 % large"] = Contender(choose_policy(dev, BUDGET, stages, "cascade", "dev"))
    found["cascade+blend, 20 % large"] = Contender(choose_policy(dev, BUDGET, stages, "cascade+blend", "dev"))
    return found


def _brought(test: OutcomesTable, policies: Mapping[str, Contender], small: str) -> list[Contribution]:
    segments = [by_meta(test, "length"), by_confidence(test, small)]
    several = [(name, one) for name, one in policies.items() if len(models_of(one.policy)) > 1]
    return [contribution(name, one.policy, test, segments=segments) for name, one in several]


def _row(name: str, found: Experiment, policy: str, large: str) -> tuple[str, ...]:
    arm = found.arm(policy)
    said = arm.versus.said if arm.versus is not None else ""
    loss = amount(found, arm.metrics["log loss"].mean, "log loss")
    share = f"{arm.calls.get(large, 0.0):.1%}"
    return (name, policy, amount(found, arm.metric.mean), gap_words(found, arm), said, loss, f"{arm.cost.mean:.3g}", share)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
