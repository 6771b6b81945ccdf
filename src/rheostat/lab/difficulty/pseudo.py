"""Difficulty without any label: texts in clusters by their features, harder the longer, deeper and rarer their words are."""

from __future__ import annotations

from typing import Final

import numpy as np

from rheostat.lab.difficulty.examples import Examples
from rheostat.lab.metrics import Floats

_HARDER: Final = {
    "words": 1.0,
    "mean_sentence_length": 1.0,
    "clauses": 1.0,
    "rare_words": 1.0,
    "negations": 1.0,
    "syntax_depth": 1.0,
    "mean_frequency": -1.0,
}
_MOST: Final = 20_000  # rows that the clusters are made from


def pseudo_difficulty(rows: Examples, clusters: int = 8, seed: int = 0) -> Floats:
    """Return 1 for the texts of the harder half of the clusters, else 0, (n,): a stand-in for `error` to fit a net on.

    k-means on standardised logarithms of the features above; clusters are ordered by the mean of their signed centres. It is
    a guess about texts, not about any model: use outcomes as soon as there are some.

    Raises:
        ValueError: fewer distinct rows than clusters, or none of the features is there.
    """
    from sklearn.cluster import KMeans

    names = [name for name in _HARDER if name in rows.features]
    if not names:
        raise ValueError(f"pseudo-labels need at least one of the features {', '.join(_HARDER)}")
    logs = np.log1p(np.maximum(rows.only(names).x.astype(np.float64), 0.0))
    spread = logs.std(axis=0)
    z = (logs - logs.mean(axis=0)) / np.where(spread > 1e-9, spread, 1.0)
    rng = np.random.default_rng(seed)
    some = z if len(z) <= _MOST else z[rng.choice(len(z), _MOST, replace=False)]
    if len(np.unique(some, axis=0)) < clusters:
        raise ValueError(f"{clusters} clusters need as many different texts, there are {len(np.unique(some, axis=0))}")
    found = KMeans(clusters, n_init=4, random_state=seed).fit(some)
    hardness = found.cluster_centers_ @ np.array([_HARDER[name] for name in names])
    place = found.predict(z)
    order = np.argsort(hardness, kind="stable")
    size = np.bincount(place, minlength=clusters)[order]
    harder = np.cumsum(size) - size / 2 > size.sum() / 2
    told = np.zeros(clusters)
    told[order] = harder
    labels: Floats = told[place]
    return labels
