"""Is a policy better than the baseline? Read from joint draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.stats import norm

from rheostat.lab.bootstrap import Interval
from rheostat.lab.clustered import Sample
from rheostat.lab.experiment.figures import Comparison
from rheostat.lab.metrics import Floats

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
