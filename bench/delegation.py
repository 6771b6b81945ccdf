"""Binary delegation against continuous weights, on real feedback. `python -m bench.delegation [set ...]`

MovieLens: two rankers that know different things (crosses with a user's taste; factors) decide what a user likes, three
seeds, answers out of fold on train. Online Shoppers: the large model knows all that the small one knows, where blending
must not be sold as a gain. Weights are fitted on train, everything is chosen on dev, figures are of test.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from bench.delegation_arms import FIXED, LEARNED, METRICS, STACK, arms, by_group, compared, with_cuts
from bench.delegation_data import MOVIELENS, SHOPPERS, Rankings, rankers, shoppers, why_no_rankings
from bench.delegation_table import outcomes_of, request_features
from rheostat.errors import MissingExtra
from rheostat.lab.weights.fusion import losses, mixed
from rheostat.lab.weights.learn import Ask, LearnedWeights, learn_weights
from rheostat.lab.weights.predictor import Recipe, extremes, train_weights

if TYPE_CHECKING:
    from rheostat.lab.experiment.served import Served

STRESS = Recipe(rate=3e-2, decay=0.0, epochs=60, patience=0)
"""A recipe that invites collapse: fast, long, without early stopping; the protections alone differ."""


def main(arguments: Sequence[str]) -> int:
    """Run the named studies, both by default; return the exit status."""
    known = {MOVIELENS: _movielens, SHOPPERS: _shoppers}
    if unknown := [name for name in arguments if name not in known]:
        print(f"unknown set {unknown[0]!r}; known: {', '.join(known)}")
        return 2
    for name in arguments or known:
        absent = why_no_rankings(name)
        if absent:
            print(absent)
            continue
        try:
            known[name]()
        except MissingExtra as missing:
            print(f"{name} skipped: {missing}")
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _learned(found: Rankings, past: tuple[str, ...], cluster: str, answers: str = "all") -> LearnedWeights:
    ask = Ask(models=found.models, features=request_features(found), past=past, cluster=cluster, answers=answers)
    return learn_weights(outcomes_of(found), ask, lambda line: _tell(f"{found.name}, seed {found.seed}: {line}"))


def _movielens() -> None:
    seeds = rankers(_tell)
    runs: list[dict[str, Served]] = []
    learned: list[LearnedWeights] = []
    hows, apart = [], 0.0
    for one in seeds:
        found = _learned(one, ("user",), "user")
        with tempfile.TemporaryDirectory() as folder:
            ways, how, far = arms(found, Path(folder))
        runs.append(ways)
        learned.append(found)
        hows.append(how)
        apart = max(apart, far)
    users = len(np.unique(seeds[0].users["test"]))
    print(f"\n## MovieLens: {len(seeds[0].truth['test']):,} test ratings of {users} users, mean of {len(seeds)} seeds\n")
    _table(runs, "user")
    print(f"\nbest binary router, chosen on dev: {'; '.join(hows)}")
    print(f"served (file, scorer `answers`, policy `blend`, replay) against offline weights: at most {apart:.1e} apart")
    _weights(learned, seeds)
    _collapse(learned[0])
    _cuts(_learned(seeds[0], ("user",), "user", "first"))


def _table(runs: Sequence[dict[str, Served]], cluster: str) -> None:
    """Print every way's metrics; in brackets the learned weights' gain over it with its 95 % interval."""
    metrics = METRICS if cluster else METRICS[:2]
    told = {metric.name: compared(runs, cluster, metric) for metric in metrics}
    print("| way | " + " | ".join(f"{name} | learned weights gain [95 %]" for name in told) + " |")
    print("|---" * (1 + 2 * len(told)) + "|")
    for way in runs[0]:
        cells = [way]
        for found in told.values():
            gain = found[way].gain
            cells += [f"{found[way].value:.4f}", "" if gain is None else f"{gain[0]:+.4f} [{gain[1]:+.4f}, {gain[2]:+.4f}]"]
        print(f"| {' | '.join(cells)} |")
    if cluster:
        top = told[METRICS[2].name]
        own = top[LEARNED].value
        others = ", ".join(f"{own / each.value - 1.0:+.2%} over {way}" for way, each in top.items() if way != LEARNED)
        print(f"\nlike-rate of the top 3, relative: {others}")


def _weights(learned: Sequence[LearnedWeights], seeds: Sequence[Rankings]) -> None:
    first = learned[0]
    top, alone = np.mean([extremes(one.weights) for one in learned], axis=0).tolist()
    ends = np.quantile(first.weights[:, -1], [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]).round(3).tolist()
    print(f"\nlargest weight {top:.3f} on average, 0.98 or more on {alone:.2%} of the rows (mean of seeds)")
    print(f"weight of the large model, seed 0, quantiles 1, 5, 25, 50, 75, 95, 99 %: {ends}")
    print("\n| ratings of the user in train | rows | mean weight of the large model | 5 % | 95 % |\n|---|---|---|---|---|")
    seen = np.expm1(seeds[0].features["test"][:, seeds[0].feature_names.index("user_seen")])
    for words, rows, mean, low, high in by_group(first, seen.round(), (30, 100, 300)):
        print(f"| {words} | {rows:,} | {mean:.3f} | {low:.3f} | {high:.3f} |")


def _collapse(found: LearnedWeights) -> None:
    """Train with and without the protections under a recipe that invites collapse."""
    fit, stop, report = found.data
    print("\n| protections | largest weight | rows with 0.98 or more | log loss |\n|---|---|---|---|")
    for words, spread, curriculum in (("none", 0.0, 0), ("curriculum", 0.0, 5), ("spread", 0.02, 0), ("both", 0.02, 5)):
        recipe = replace(STRESS, spread=spread, curriculum=curriculum)
        net = train_weights(fit, stop, found.net.features, found.ask.models, recipe)
        weights = net.weights(report.x)
        top, alone = extremes(weights)
        loss = float(losses(mixed(report.scores, weights), report.truth).mean())
        print(f"| {words} | {top:.3f} | {alone:.1%} | {loss:.4f} |", flush=True)


def _cuts(found: LearnedWeights) -> None:
    """Slide cost against quality with two cuts on weights that read the small model's answer alone."""
    print("\nWeights from the small answer alone, two cuts chosen on dev by a budget of large calls (accuracy decides):\n")
    print("| budget | cuts | large calls | cost | AUC | log loss |\n|---|---|---|---|---|---|")
    budgets = (0.1, 0.25, 0.5, 0.75, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        for budget, line in zip(budgets, with_cuts(found, budgets, Path(folder)), strict=True):
            words, share, cost, auc, loss = line
            print(f"| {budget:.0%} | {words} | {share:.1%} | {cost:.2f} | {auc:.4f} | {loss:.4f} |")


def _shoppers() -> None:
    found = _learned(shoppers(_tell), (), "")
    with tempfile.TemporaryDirectory() as folder:
        ways, how, _ = arms(found, Path(folder))
    print(
        f"\n## Online Shoppers: {len(found.weights):,} test sessions; the large model knows all that the small one knows\n"
    )
    _table([ways], "")
    print(f"\nbest binary router, chosen on dev: {how}")
    gains = {way: found.report.gains[way] for way in (f"{found.report.best} alone", FIXED, STACK)}
    short = [way for way, gain in gains.items() if not gain.better]
    if short:
        print(f"verdict: blending does not pay here; the learned weights are not clearly better than {', '.join(short)}")
    else:
        print("verdict: blending pays here")
    for note in found.notes:
        print(f"note: {note}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
