"""Quality of every model from like rows: the nearest ones, or the cluster."""

from __future__ import annotations

import numpy as np

from rheostat.lab.many.data import ManyData
from rheostat.lab.routers.graph import Scaled
from rheostat.lab.routers.learner import Setting
from rheostat.lab.routers.neighbours import Near


def fit_near(data: ManyData, setting: Setting) -> Near:
    """Keep the rows; `count` neighbours, `text` the weight of plain numbers in the distance."""
    front = Scaled.fit(data.frame, setting["text"], setting.get("group", 0.5))
    return Near(front, front.apply(data.x).astype(np.float32), data.quality, min(setting["count"], len(data)))


def fit_clusters(data: ManyData, setting: Setting) -> Near:
    """Group the rows by k-means; a request gets its cluster's mean quality, as in UniRoute (arXiv 2502.08773)."""
    from sklearn.cluster import KMeans

    front = Scaled.fit(data.frame, setting["text"], setting.get("group", 0.5))
    z = front.apply(data.x)
    count = min(setting["count"], len(np.unique(z, axis=0)))
    found = KMeans(count, n_init=1, random_state=0).fit(z)
    rows = np.bincount(found.labels_, minlength=count)[:, None]
    sums = np.stack([np.bincount(found.labels_, column, count) for column in data.quality.T], axis=1)
    level, shrink = data.quality.mean(axis=0), setting.get("shrink", 5.0)
    quality = (sums + shrink * level) / (rows + shrink)
    return Near(front, found.cluster_centers_.astype(np.float32), quality, 1)
