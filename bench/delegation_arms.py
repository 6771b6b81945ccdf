"""The ways to decide between two rankers that the study compares, each as what it would have served."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.delegation_table import columns_of
from rheostat.lab.clustered import Sample, joint_draws
from rheostat.lab.experiment import Auc, LogLoss, Metric, Served, TopK, Traffic
from rheostat.lab.goal import Goal
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.replay import replay
from rheostat.lab.weights.cuts import choose_cuts
from rheostat.lab.weights.fusion import FusionData, by_margin, fixed_blend, losses, mixed, stack
from rheostat.lab.weights.rows import distributions
from rheostat.policies import Blend
from rheostat.signals.answers import AnswersScorerSettings

if TYPE_CHECKING:
    from bench.fits import Floats
    from rheostat.lab.weights.learn import LearnedWeights

EARLY = "binary router before any answer"
BINARY, FIXED, MARGIN, STACK, LEARNED = "best binary router", "fixed blend", "weights by margin", "stack", "learned weights"
METRICS: tuple[Metric, ...] = (Auc("yes"), LogLoss(), TopK(3, "user", "yes"))


class Told(NamedTuple):
    """A way's metric, and how much the learned weights gain over it with a 95 % interval; None for themselves."""

    value: float
    gain: tuple[float, float, float] | None


def arms(found: LearnedWeights, folder: Path) -> tuple[dict[str, Served], str, float]:
    """Return what every way serves on the report's rows, how the best binary router decides, and how far served and
    offline weights are apart.

    A model alone, and a router between two, give the scores that the models gave; a mix those calibrated for it. The learned
    weights are written, opened by the scorer `answers`, and the policy `blend` is replayed with it.
    """
    fit, stop, report = found.data
    table = found.judged
    models = found.ask.models
    said = stack(fit).mixed(report.scores)[:, 1]
    cost = float(sum(table.model(name).cost.mean() for name in models))
    wide = OutcomesTable(
        ids=table.ids, split=table.split, truth=table.truth, labels=table.labels, meta=table.meta, inputs=table.inputs,
        columns={**table.columns, STACK: columns_of(said, cost, 0.0)}, model_info=table.model_info,
    )  # fmt: skip
    traffic = Traffic(wide)
    alone = {name: columns_of(found.plain[2][:, at, 1], 1.0, 0.0) for at, name in enumerate(models)}
    bare = Traffic(replace(wide, columns={**alone, STACK: wide.columns[STACK]}))
    none = np.zeros((len(wide), 1))

    def served(weights: Floats, by: Traffic = traffic) -> Served:
        return _served(by, np.concatenate([np.broadcast_to(weights, (len(wide), len(models))), none], axis=1))

    corners = np.eye(len(models))
    ways = {name: served(corners[at], bare) for at, name in enumerate(models)}
    early, _ = best_binary(found, before=True)
    ways[EARLY] = served(corners[early.astype(np.int64)], bare)
    chosen, how = best_binary(found)
    ways[BINARY] = served(corners[chosen.astype(np.int64)], bare)
    ways[FIXED] = served(fixed_blend(stop))
    ways[MARGIN] = served(by_margin(report.scores))
    ways[STACK] = _served(traffic, np.concatenate([np.zeros((len(wide), len(models))), none + 1.0], axis=1))
    found.write(folder / "weights.onnx")
    scorer = AnswersScorerSettings(path="weights.onnx", outputs=models).open("w", str(folder))
    policy = Blend(weights=dict.fromkeys(models, 1.0), signal="w", name="learned")
    played = replay(policy, wide, scorers=(scorer,))
    ways[LEARNED] = Served.of(played, traffic)
    return ways, how, float(np.abs(played.weights[:, : len(models)] - found.weights).max())


def _served(traffic: Traffic, weights: Floats) -> Served:
    """What a fixed choice of weights serves: labels and confidences are not needed by these metrics' probabilities."""
    n, table = len(weights), traffic.table
    mix = mixed(distributions(table, table.models), weights)
    return Served(
        traffic=traffic, label=mix.argmax(axis=1).astype(np.int32), confidence=mix.max(axis=1),
        weights=weights.astype(np.float32), called=weights > 0.0, cost=np.zeros(n), latency_s=np.zeros(n),
    )  # fmt: skip


def best_binary(found: LearnedWeights, before: bool = False) -> tuple[Any, str]:
    """Return, per row of the report, whether the best binary router takes the second model, and what it decides by.

    Four ways to score "the second model is better here", each with its threshold, chosen by log loss on the rows that
    anything may be chosen on: the confidence of the first model, logistic regression and boosted trees on the gain from
    the very numbers the weights read, and the learned weight itself. With `before` it sees what is known before any model
    has answered: the two learners on the request's own numbers and the models' past.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fit, stop, report = found.data

    def gain(at: int, part: FusionData) -> Floats:
        return losses(found.plain[at][:, 0], part.truth) - losses(found.plain[at][:, 1], part.truth)

    told = [at for at, name in enumerate(found.net.features) if not before or name.startswith(("meta.", "past("))]
    whole = [np.where(np.isnan(part.x), 0.0, part.x)[:, told] for part in (fit, stop, report)]
    gained = gain(0, fit)
    logistic = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500))
    logistic.fit(whole[0], gained > 0.0, logisticregression__sample_weight=np.abs(gained))
    trees = HistGradientBoostingRegressor(max_iter=100, learning_rate=0.05, max_leaf_nodes=15, random_state=0)
    trees.fit(whole[0], gained)
    scores: dict[str, Callable[[int, FusionData], Floats]] = {
        "the first model's confidence": lambda at, _: -found.plain[at][:, 0].max(axis=1),
        "logistic regression on the gain": lambda at, _: logistic.predict_proba(whole[at])[:, 1],
        "boosted trees on the gain": lambda at, _: trees.predict(whole[at]),
        "the learned weight": lambda _, part: found.net.weights(part.x)[:, 1],
    }
    if before:
        scores = {name: score for name, score in scores.items() if name.endswith("the gain")}
    best: tuple[float, Any, str] | None = None
    saved = gain(1, stop)
    for name, score in scores.items():
        seen = score(1, stop)
        order = np.argsort(-seen, kind="stable")
        won = np.concatenate([[0.0], np.cumsum(saved[order])])
        top = int(won.argmax())
        edge = np.inf if top == 0 else seen[order[top - 1]]
        if best is None or won[top] > best[0]:
            best = (float(won[top]), score(2, report) >= edge, name)
    assert best is not None
    return best[1], best[2]


def compared(runs: Sequence[Mapping[str, Served]], cluster: str, metric: Metric, draws: int = 2000) -> dict[str, Told]:
    """Return every way's metric and the learned weights' gain over it, averaged over the runs (seeds) before drawing.

    The same clusters (users) are drawn for all ways. Gains are above 0 where the learned weights are better.
    """
    names = list(runs[0])
    traffic = runs[0][LEARNED].traffic
    codes = traffic.codes(cluster) if cluster else np.arange(len(traffic.table), dtype=np.int32)
    samples = []
    for name in names:
        units = [metric.units(metric.raw(run[name]), np.arange(len(codes)), run[name].traffic) for run in runs]
        samples.append(Sample(np.mean([one.values for one in units], axis=0), codes[units[0].rows]))
    drawn = joint_draws(samples, int(codes.max()) + 1, draws, 0)
    own, sign = names.index(LEARNED), -1.0 if metric.lower_is_better else 1.0
    means = [float(sample.values.mean()) for sample in samples]
    told = {}
    for at, name in enumerate(names):
        gaps = sign * (drawn[:, own] - drawn[:, at])
        low, high = np.quantile(gaps, [0.025, 0.975]).tolist()
        told[name] = Told(means[at], None if at == own else (sign * (means[own] - means[at]), low, high))
    return told


def by_group(found: LearnedWeights, group: Floats, edges: Sequence[float]) -> list[tuple[str, int, float, float, float]]:
    """Return, for every group of rows: its words, rows, mean weight of the last model, its 5 % and 95 % quantiles."""
    weight = found.weights[:, -1]
    cuts = [0.0, *edges, np.inf]
    lines = []
    for low, high in pairwise(cuts):
        rows = (group >= low) & (group < high)
        if rows.any():
            words = f"{low:g} or more" if high == np.inf else f"{low:g} to {high - 1:g}"
            ends = np.quantile(weight[rows], [0.05, 0.95]).tolist()
            lines.append((words, int(rows.sum()), float(weight[rows].mean()), *ends))
    return lines


def with_cuts(found: LearnedWeights, shares: Sequence[float], folder: Path) -> list[tuple[str, float, float, float, float]]:
    """Return, per budget of calls of the second model, the cuts chosen on dev and what they do on test.

    Policy in words, realised share of calls, cost a request, AUC, log loss; the weights must read the first answer alone.
    """
    weak, strong = found.ask.models
    weight = found.net.weights(found.data[1].x)[:, 1]
    found.write(folder / "weights.onnx")
    scorer = AnswersScorerSettings(path="weights.onnx", outputs=found.ask.models).open("w", str(folder))
    traffic = Traffic(found.judged)
    lines = []
    for share in shares:
        goal = Goal(max_share=share, sure=False)
        policy = choose_cuts(found.stopped, weak, strong, weight, f"w.{strong}", goal)
        played = replay(policy, found.judged, scorers=(scorer,))
        served = Served.of(played, traffic)
        rows = np.arange(len(found.judged))
        auc, loss = (metric.units(metric.raw(served), rows, traffic).values.mean() for metric in METRICS[:2])
        words = f"{policy.low:.3f}, {policy.high:.3f}"
        lines.append((words, played.share(strong), float(played.cost.mean()), float(auc), float(loss)))
    return lines
