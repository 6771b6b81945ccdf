"""The router that asks like rows: the mean gain of the nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rheostat.lab.metrics import Floats
from rheostat.lab.routers.data import Columns, RoutingData
from rheostat.lab.routers.graph import Graph, Scaled
from rheostat.lab.routers.learner import Setting


@dataclass(frozen=True)
class Near:
    """Mean of `values` (rows x outputs) over the `count` nearest rows. It carries them all: file and time grow."""

    front: Scaled
    rows: Columns
    values: Floats
    count: int

    def predict(self, x: Columns) -> Floats:
        z, half = self.front.apply(x).astype(np.float32), 0.5 * (self.rows**2).sum(axis=1)
        found = np.empty((len(z), self.values.shape[1]))
        for start in range(0, len(z), 1024):  # 1,024 rows at a time, whatever n
            near = z[start : start + 1024] @ self.rows.T - half
            at = np.argpartition(-near, self.count - 1, axis=1)[:, : self.count]
            found[start : start + 1024] = self.values[at].mean(axis=1)
        return found

    def to_onnx(self) -> Any:
        graph = Graph()
        near = graph.op("MatMul", self.front.write(graph), graph.hold(self.rows.T))
        near = graph.op("Sub", near, graph.hold(0.5 * (self.rows**2).sum(axis=1)[None, :]))
        at = graph.op("TopK", near, graph.hold([self.count], np.int64), outputs=2, axis=1)
        found = graph.op("Gather", graph.hold(self.values), at, axis=0)
        mean = graph.op("ReduceMean", found, axes=[1], keepdims=0)
        return graph.model(mean, self.front.width, self.values.shape[1])


class Nearest(Near):
    """Mean gain of the nearest rows: one output, which it gives as one number a row."""

    def predict(self, x: Columns) -> Floats:
        found: Floats = super().predict(x)[:, 0]
        return found


def fit_nearest(data: RoutingData, setting: Setting) -> Nearest:
    """Keep the rows; `count` neighbours, `text` the weight of plain numbers in the distance."""
    front = Scaled.fit(data, setting["text"])
    rows = front.apply(data.x).astype(np.float32)
    return Nearest(front, rows, data.gain[:, None], min(setting["count"], len(data)))
