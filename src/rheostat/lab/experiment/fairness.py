"""Are groups served alike, and does a policy make their differences larger?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from scipy.stats import norm

from rheostat.lab.bootstrap import Z95, Interval
from rheostat.lab.clustered import Sample, joint_draws
from rheostat.lab.experiment.compare import LEVEL, intervals
from rheostat.lab.experiment.figures import Fairness, Gap, GroupFigure
from rheostat.lab.experiment.metric import Metric
from rheostat.lab.experiment.served import Traffic
from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import Ints
from rheostat.lab.segments import FEWEST, Segments


class Ground(NamedTuple):
    """The rows, the code of each row's independent unit (below `clusters`), and how often and from where to draw."""

    traffic: Traffic
    cluster: Ints
    clusters: int
    draws: int
    seed: int


def fairness_of_all(
    metric: Metric, raw: Mapping[str, Floats], baseline: str, parts: Sequence[Segments], ground: Ground
) -> Mapping[str, tuple[Fairness, ...]]:
    """Return every policy's fairness by field, the others' beside the baseline's.

    Args:
        raw: per policy, the metric's number per row.
    """
    found: dict[str, list[Fairness]] = {name: [] for name in raw}
    for groups in parts:
        base = fairness(metric, raw[baseline], groups, ground)
        for name, values in raw.items():
            one = base if name == baseline else fairness(metric, values, groups, ground)
            if name != baseline and base.gap is not None:
                one = replace(one, wider=_wider(metric, (values, raw[baseline]), groups, base.gap, ground))
            found[name].append(one)
    return {name: tuple(each) for name, each in found.items()}


def fairness(metric: Metric, raw: Floats, groups: Segments, ground: Ground) -> Fairness:
    """Return one policy's metric in every group, and the largest gap between two groups of at least 30 units.

    Groups that share clusters (a user's rows in several groups) are drawn together, so that the gap's interval is right.
    """
    figures: list[GroupFigure] = []
    kept: list[tuple[int, Sample]] = []
    for at, label in enumerate(groups.labels):
        rows = groups.rows(at)
        if not len(rows):
            continue
        units, why = 0, ""
        try:
            found = metric.units(raw, rows, ground.traffic)
        except ValueError as error:
            why = str(error)
        else:
            units = len(np.unique(ground.cluster[found.rows]))
            if units < FEWEST:
                why = f"too small to say: {units} units, {FEWEST} are needed"
            else:
                kept.append((len(figures), Sample(found.values, ground.cluster[found.rows])))
        figures.append(GroupFigure(group=label, units=units, value=None, why=why))
    if not kept:
        return Fairness(field=groups.name, groups=tuple(figures), gap=None)
    samples = [sample for _, sample in kept]
    drawn = joint_draws(samples, ground.clusters, ground.draws, ground.seed)
    for (place, _), value in zip(kept, intervals(samples, drawn), strict=True):
        figures[place] = GroupFigure(group=figures[place].group, units=figures[place].units, value=value)
    return Fairness(
        field=groups.name,
        groups=tuple(figures),
        gap=_gap([figures[place].group for place, _ in kept], [float(s.values.mean()) for s in samples], drawn, metric),
    )


def _wider(metric: Metric, raw: tuple[Floats, Floats], groups: Segments, gap: Gap, ground: Ground) -> Interval:
    """By how much the baseline's largest gap is larger under a policy: both policies and both groups drawn together."""
    rows = [groups.rows(groups.labels.index(name)) for name in (gap.best, gap.worst)]
    found = [metric.units(values, each, ground.traffic) for values in raw for each in rows]
    samples = [Sample(one.values, ground.cluster[one.rows]) for one in found]
    drawn = joint_draws(samples, ground.clusters, ground.draws, ground.seed)
    signs = np.array([1.0, -1.0, -1.0, 1.0]) * (-1.0 if metric.lower_is_better else 1.0)
    low, high = np.quantile(drawn @ signs, [0.025, 0.975]).tolist()
    mean = float(np.array([one.values.mean() for one in found]) @ signs)
    return Interval(mean, low, high, len(found[0].values) + len(found[1].values))


def _gap(names: Sequence[str], means: Sequence[float], draws: Floats, metric: Metric) -> Gap | None:
    if len(names) < 2:
        return None
    high, low = int(np.argmax(means)), int(np.argmin(means))
    pairs = len(list(combinations(names, 2)))
    spread = float((draws[:, high] - draws[:, low]).std())
    width = (float(norm.isf(LEVEL / 2 / pairs)) if pairs > 1 else Z95) * spread
    mean = means[high] - means[low]
    best, worst = (low, high) if metric.lower_is_better else (high, low)
    return Gap(best=names[best], worst=names[worst], mean=mean, low=mean - width, high=mean + width)
