"""Quality of every model from like rows: the nearest ones, or the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rheostat.lab.many.data import ManyData
from rheostat.lab.metrics import Floats
from rheostat.lab.routers.data import Columns
from rheostat.lab.routers.graph import Graph, Scaled
from rheostat.lab.routers.learner import Setting


@dataclass(frozen=True)
class Near:
    """Mean quality of the `count` nearest rows. It carries every row, so its file and its time grow with them."""

    front: Scaled
    rows: Columns
    quality: Floats
    count: int

    def predict(self, x: Columns) -> Floats:
        z, half = self.front.apply(x).astype(np.float32), 0.5 * (self.rows**2).sum(axis=1)
        found = np.empty((len(z), self.quality.shape[1]))
        for start in range(0, len(z), 1024):  # 1,024 rows at a time, whatever n
            near = z[start : start + 1024] @ self.rows.T - half
            at = np.argpartition(-near, self.count - 1, axis=1)[:, : self.count]
            found[start : start + 1024] = self.quality[at].mean(axis=1)
        return found

    def to_onnx(self) -> Any:
        graph = Graph()
        near = graph.op("MatMul", self.front.write(graph), graph.hold(self.rows.T))
        near = graph.op("Sub", near, graph.hold(0.5 * (self.rows**2).sum(axis=1)[None, :]))
        at = graph.op("TopK", near, graph.hold([self.count], np.int64), outputs=2, axis=1)
        found = graph.op("Gather", graph.hold(self.quality), at, axis=0)
        mean = graph.op("ReduceMean", found, axes=[1], keepdims=0)
        return graph.model(mean, self.front.width, self.quality.shape[1])


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
