"""What learned weights have to beat: one model, a fixed blend, weights by margin, and a stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from rheostat.lab.bootstrap import Difference
from rheostat.lab.clustered import Sample, joint_draws
from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import Ints
from rheostat.lab.weights.fusion import FusionData, by_margin, fixed_blend, losses, mixed, stack

LEARNED = "learned weights"


class Figure(Struct, frozen=True, kw_only=True):
    """One way's log loss and accuracy on the rows of the report."""

    loss: float
    accuracy: float


class Rivals(Struct, frozen=True, kw_only=True):
    """Figures by way, the learned weights last. `gains` is how much lower their log loss is, with its paired interval.

    The best single model, the fixed blend and the stack are chosen on the rows that weights may be chosen on.
    """

    figures: Mapping[str, Figure]
    gains: Mapping[str, Difference]
    best: str
    blend: tuple[float, ...]


def rivals(
    data: Sequence[FusionData],
    plain: Sequence[Floats],
    weights: Floats,
    models: Sequence[str],
    cluster: Ints,
    draws: int = 2000,
    seed: int = 0,
) -> Rivals:
    """Judge the weights and the plain ways on the same rows.

    Args:
        data: of the rows that weights were fitted on, stopped on and are judged on.
        plain: the models' scores there before they were calibrated for the mix; a model alone is judged by these.
        weights: of the rows that are judged.
        cluster: of each of those rows; rows of one cluster are drawn together.
    """
    fit, stop, report = data
    seen = [float(losses(plain[1][:, at], stop.truth).mean()) for at in range(len(models))]
    best = int(np.argmin(seen))
    blend = fixed_blend(stop)
    said = {f"{models[best]} alone": plain[2][:, best]}
    said["fixed blend"] = mixed(report.scores, blend)
    said["weights by margin"] = mixed(report.scores, by_margin(report.scores))
    said["stack"] = stack(fit).mixed(report.scores)
    said[LEARNED] = mixed(report.scores, weights)
    lost = {name: losses(each, report.truth) for name, each in said.items()}
    samples = [Sample(each, cluster) for each in lost.values()]
    drawn = joint_draws(samples, int(cluster.max()) + 1, draws, seed)
    own = len(samples) - 1
    gains = {
        name: _gain(values - lost[LEARNED], drawn[:, at] - drawn[:, own])
        for at, (name, values) in enumerate(lost.items())
        if name != LEARNED
    }
    figures = {
        name: Figure(loss=float(lost[name].mean()), accuracy=float((each.argmax(axis=1) == report.truth).mean()))
        for name, each in said.items()
    }
    return Rivals(figures=figures, gains=gains, best=models[best], blend=tuple(blend.tolist()))


def _gain(values: Floats, drawn: Floats) -> Difference:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Difference(float(values.mean()), float(low), float(high), float((drawn <= 0.0).mean()), len(values))
