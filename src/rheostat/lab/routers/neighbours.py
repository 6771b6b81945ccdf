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
class Nearest:
    """Mean gain of the `count` nearest rows. It carries every row, so its file and its time grow with them."""

    front: Scaled
    rows: Columns
    gain: Floats
    count: int

    def predict(self, x: Columns) -> Floats:
        z, half = self.front.apply(x).astype(np.float32), 0.5 * (self.rows**2).sum(axis=1)
        found = np.empty(len(z))
        for start in range(0, len(z), 1024):  # 1,024 rows at a time, whatever n
            near = z[start : start + 1024] @ self.rows.T - half
            at = np.argpartition(-near, self.count - 1, axis=1)[:, : self.count]
            found[start : start + 1024] = self.gain[at].mean(axis=1)
        return found

    def to_onnx(self) -> Any:
        graph = Graph()
        near = graph.op("MatMul", self.front.write(graph), graph.hold(self.rows.T))
        near = graph.op("Sub", near, graph.hold(0.5 * (self.rows**2).sum(axis=1)[None, :]))
        at = graph.op("TopK", near, graph.hold([self.count], np.int64), outputs=2, axis=1)
        gains = graph.op("Gather", graph.hold(self.gain), at, axis=0)
        return graph.model(graph.op("ReduceMean", gains, axes=[1], keepdims=1), self.front.width)


def fit_nearest(data: RoutingData, setting: Setting) -> Nearest:
    """Keep the rows; `count` neighbours, `text` the weight of plain numbers in the distance."""
    front = Scaled.fit(data, setting["text"])
    rows = front.apply(data.x).astype(np.float32)
    return Nearest(front, rows, data.gain, min(setting["count"], len(data)))
