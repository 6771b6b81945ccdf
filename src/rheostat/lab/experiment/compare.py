"""Is a policy better than the baseline, and are groups treated alike? Both read from the same joint draws."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np
from scipy.stats import norm

from rheostat.lab.bootstrap import Z95, Interval
from rheostat.lab.clustered import Sample, joint_draws
from rheostat.lab.experiment.figures import Comparison, Fairness, Gap, GroupFigure
from rheostat.lab.experiment.metric import Metric
from rheostat.lab.experiment.served import Traffic
from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import Ints
from rheostat.lab.segments import FEWEST, Segments

LEVEL: Final = 0.05
POWER: Final = 0.80


def intervals(samples: Sequence[Sample], draws: Floats) -> list[Interval]:
    """Return each sample's mean with the 2.5 % and 97.5 % quantiles of its draws; `n` counts its units."""
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    edges = zip(samples, low.tolist(), high.tolist(), strict=True)
    return [Interval(float(one.values.mean()), under, over, len(one.values)) for one, under, over in edges]


def comparisons(means: Sequence[float], draws: Floats, baseline: int, lower_is_better: bool) -> list[Comparison | None]:
    """Compare every policy with the baseline (None for itself).

    p = 2 * min(share of draws at or below 0, share at or above 0), one draw added to each, so that it is never 0.
    Holm's step-down correction (1979): the i-th smallest of m p-values is multiplied by m - i + 1, never falling.

    Args:
        means: each policy's metric.
        draws: draws x policies.
    """
    others = [at for at in range(len(means)) if at != baseline]
    gaps = draws - draws[:, [baseline]]
    count = len(draws) + 1
    p = [min(1.0, 2 * min(int((gaps[:, at] <= 0).sum()) + 1, int((gaps[:, at] >= 0).sum()) + 1) / count) for at in others]
    corrected = holm(p)
    z = float(norm.isf(LEVEL / 2 / max(len(others), 1)) + norm.isf(1 - POWER))
    found: list[Comparison | None] = [None] * len(means)
    for at, raw, adjusted in zip(others, p, corrected, strict=True):
        mean = means[at] - means[baseline]
        low, high = np.quantile(gaps[:, at], [0.025, 0.975])
        said = "no difference shown"
        if adjusted < LEVEL and mean != 0.0:
            said = "better" if (mean > 0.0) != lower_is_better else "worse"
        found[at] = Comparison(
            mean=mean, low=float(low), high=float(high), p=raw, p_holm=adjusted, said=said,
            detectable=z * float(gaps[:, at].std()),
        )  # fmt: skip
    return found


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's step-down rule (1979)."""
    found = [0.0] * len(p)
    worst = 0.0
    for rank, at in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        worst = max(worst, min(1.0, p[at] * (len(p) - rank)))
        found[at] = worst
    return found


def fairness(
    metric: Metric, raw: Floats, traffic: Traffic, cluster: Ints, clusters: int, groups: Segments, draws: int, seed: int
) -> Fairness:
    """Return one policy's metric in every group, and the largest gap between two groups of at least 30 units.

    Groups that share clusters (a user's rows in several groups) are drawn together, so that the gap's interval is right.

    Args:
        raw: the metric's number per row.
        cluster: code of each row's independent unit, below `clusters`.
    """
    figures: list[GroupFigure] = []
    kept: list[tuple[int, Sample]] = []
    for at, label in enumerate(groups.labels):
        rows = groups.rows(at)
        if not len(rows):
            continue
        units, why = 0, ""
        try:
            found = metric.units(raw, rows, traffic)
        except ValueError as error:
            why = str(error)
        else:
            units = len(np.unique(cluster[found.rows]))
            if units < FEWEST:
                why = f"too small to say: {units} units, {FEWEST} are needed"
            else:
                kept.append((len(figures), Sample(found.values, cluster[found.rows])))
        figures.append(GroupFigure(group=label, units=units, value=None, why=why))
    if not kept:
        return Fairness(field=groups.name, groups=tuple(figures), gap=None)
    samples = [sample for _, sample in kept]
    drawn = joint_draws(samples, clusters, draws, seed)
    for (place, _), value in zip(kept, intervals(samples, drawn), strict=True):
        figures[place] = GroupFigure(group=figures[place].group, units=figures[place].units, value=value)
    return Fairness(
        field=groups.name,
        groups=tuple(figures),
        gap=_gap([figures[place].group for place, _ in kept], [float(s.values.mean()) for s in samples], drawn, metric),
    )


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
