"""Routing that looks at answers: the policy `cheapest` decides again after each, beside a cascade and routing once.

Confidences are calibrated, and settings chosen (`reveal`, `carry`, how many answers; the cascade's stages, among all
pairs and triples), on one half of the rows; the figures are those of the other half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from bench.routing_rows import Table
from rheostat.lab.bootstrap import Difference
from rheostat.lab.clustered import Sample, joint_draws
from rheostat.lab.metrics import Floats, aiq, oracle, zero_router_aiq
from rheostat.lab.metrics_many import best_single, mixed_cost_at_quality, mixed_quality_at_cost
from rheostat.policies import Policy, parse_policy
from rheostat.signals.calibrate import choose_calibrator
from rheostat.types import Answer, Call, Context, ModelView, Outcome, Prediction, Request

HEAD = ("policy", "AIQ", "above the best plain cascade [95 %]", "best quality", "cost to match the best single, %")
TRADES = np.concatenate([[0.0], np.geomspace(0.003, 3.0, 14)])
"""Quality that the cost of the dearest model has to bring."""
REVEALS, CARRIES = (0.3, 0.5, 0.7, 0.9), (0.0, 0.3, 0.6)


class Rows(NamedTuple):
    """What the models did: (n, models) each; prices by model."""

    models: tuple[str, ...]
    quality: Floats
    confidence: Floats
    predicted: Floats
    prices: Floats

    def take(self, rows: Any) -> Rows:
        return Rows(self.models, self.quality[rows], self.confidence[rows], self.predicted[rows], self.prices)


class Points(NamedTuple):
    """One policy over its settings: (points, n) cost and quality."""

    cost: Floats
    quality: Floats

    def aiq(self, rows: Rows) -> float:
        return aiq(self.cost.mean(axis=1), self.quality.mean(axis=1), _singles(rows))


def answers(title: str, rows: Rows) -> Table:
    """Return the table of one set."""
    half = np.random.default_rng(0).permutation(len(rows.quality)) % 2 == 0
    rows = rows._replace(confidence=_calibrated(rows, half))
    dev, test = rows.take(half), rows.take(~half)
    some = dev.take(slice(0, 800))
    ladder = [rows.models[at] for at in np.argsort(rows.prices, kind="stable")]
    stages = max(
        (one for size in (2, 3) for one in combinations(ladder, size)), key=lambda one: _cascade(some, dev, one).aiq(some)
    )
    options = [{"asks": asks, "reveal": reveal, "carry": carry} for asks, reveal, carry in product((2, 3), REVEALS, CARRIES)]
    chosen = max(options, key=lambda one: _routed(some, one).aiq(some))
    found = {
        f"best plain cascade {' > '.join(stages)}": _cascade(test, dev, stages),
        "routing once": _routed(test, {}),
        "**decides again** " + ", ".join(f"{key} {value:g}" for key, value in chosen.items()): _routed(test, chosen),
    }
    plain = next(iter(found.values()))
    lines, gap = _lines(test, found, plain)
    best = test.models[best_single(_singles(test))]
    shown = "shown to beat" if gap.better else "shown to be worse than" if gap.worse else "not shown to differ from"
    notes = (
        f"{len(test.quality)} rows to report on, {len(dev.quality)} to choose on. Cost is the sum over all models asked; "
        f"the best single model is {best}. The oracle knows who is right. Deciding again is {shown} the best plain cascade.",
    )
    return Table(title, HEAD, lines, notes)


def _calibrated(rows: Rows, fit: Any) -> Floats:
    """Confidences by each model's calibrator, chosen on the rows `fit`."""
    found = []
    for confidence, quality in zip(rows.confidence.T, rows.quality.T, strict=True):
        made = choose_calibrator(confidence[fit], quality[fit] > 0.5)
        found.append([made.value(float(value)) for value in confidence])
    return np.array(found).T


def _routed(rows: Rows, more: Mapping[str, Any]) -> Points:
    fixed = {"of": list(rows.models), "quality": "q", **more}
    scale = float(rows.prices.max())
    return _played(rows, [{"cheapest": {**fixed, "trade": float(trade) / scale}} for trade in TRADES])


def _played(rows: Rows, nodes: Sequence[Any]) -> Points:
    each = [_play(rows, parse_policy(node)) for node in nodes]
    return Points(np.stack([cost for cost, _ in each]), np.stack([quality for _, quality in each]))


def _play(rows: Rows, policy: Policy) -> tuple[Floats, Floats]:
    pool = {name: ModelView(name, cost=float(cost)) for name, cost in zip(rows.models, rows.prices, strict=True)}
    place = {name: at for at, name in enumerate(rows.models)}
    request, n = Request(id="1", data="", text=""), len(rows.quality)
    cost, quality = np.zeros(n), np.zeros(n)
    said, sure = rows.predicted.tolist(), rows.confidence.tolist()
    for row in range(n):
        context = Context(request, {f"q.{name}": value for name, value in zip(rows.models, said[row], strict=True)}, pool)
        history: tuple[Outcome, ...] = ()
        while isinstance(decision := policy.decide(context, history), Call):
            (name,) = decision.models
            history += (Outcome(name, Prediction("", sure[row][place[name]])),)
            cost[row] += rows.prices[place[name]]
        if isinstance(decision, Answer):
            quality[row] = rows.quality[row, place[next(iter(decision.weights))]]
    return cost, quality


def _cascade(rows: Rows, dev: Rows, stages: tuple[str, ...]) -> Points:
    """The plain cascade at 13 thresholds, quantiles of the confidences of the other half."""
    found = dev.confidence[:, [dev.models.index(name) for name in stages[:-1]]]
    cuts = np.unique(np.quantile(found, np.linspace(0.0, 1.0, 13)))
    return _played(
        rows, [{"cascade": {"stages": list(stages), "threshold": float(cut), "max_escalations": 2}} for cut in cuts]
    )


def _lines(rows: Rows, found: Mapping[str, Points], plain: Points) -> tuple[tuple[tuple[str, ...], ...], Difference]:
    singles = _singles(rows)
    best, at = singles[best_single(singles)], np.arange(len(rows.quality))
    picks = oracle(list(rows.quality.T), [np.full(len(at), price) for price in rows.prices])
    top = float(rows.quality[at, picks].mean())
    lines = [("oracle (upper bound incl. chance)", "", "", f"{top:.4f}", ""),
             ("best single", "", "", f"{best[1]:.4f}", "100"),
             ("zero router (mixing models by chance)", f"{zero_router_aiq(singles):.4f}", "", "", "100")]  # fmt: skip
    gap = Difference(0.0, 0.0, 0.0, 1.0, 0)
    for name, one in found.items():
        shown = ""
        if one is not plain:
            gap = _gap(rows, one, plain)
            shown = f"{gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"
        cost, quality = one.cost.mean(axis=1), one.quality.mean(axis=1)
        match = mixed_cost_at_quality(cost, quality, best[1]) / best[0]
        peak = mixed_quality_at_cost(cost, quality, np.inf)
        lines.append(
            (name, f"{one.aiq(rows):.4f}", shown, f"{peak:.4f}", f"{100 * match:.1f}" if np.isfinite(match) else "never")
        )
    return tuple(lines), gap


def _gap(rows: Rows, ours: Points, theirs: Points, draws: int = 1000) -> Difference:
    """The paired difference in AIQ; the same rows are drawn for both and for the single models."""
    code, n = np.arange(len(rows.quality), dtype=np.int32), len(rows.quality)
    columns = [*ours.cost, *ours.quality, *theirs.cost, *theirs.quality, *rows.quality.T]
    drawn = joint_draws([Sample(column, code) for column in columns], n, draws, 0)
    a, b = len(ours.cost), len(theirs.cost)
    values = []
    for draw in drawn:
        singles = list(zip(rows.prices.tolist(), draw[2 * (a + b) :].tolist(), strict=True))
        left, right = draw[: 2 * a], draw[2 * a : 2 * (a + b)]
        values.append(aiq(left[:a], left[a:], singles) - aiq(right[:b], right[b:], singles))
    low, high = np.quantile(values, [0.025, 0.975])
    return Difference(ours.aiq(rows) - theirs.aiq(rows), float(low), float(high), float(np.mean(np.array(values) <= 0)), n)


def _singles(rows: Rows) -> list[tuple[float, float]]:
    return list(zip(rows.prices.tolist(), rows.quality.mean(axis=0).tolist(), strict=True))
