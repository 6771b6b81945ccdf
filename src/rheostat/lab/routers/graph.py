"""Small ONNX graphs, written node by node, and the numbers that go into them made comparable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rheostat.lab.metrics import Floats
from rheostat.lab.routers.data import Columns, RoutingData

_FAR = 4.0  # standardised numbers are cut here, so that a stray value cannot decide alone


class Graph:
    """Collects nodes and constants; `model` closes it."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._held: list[Any] = []

    def hold(self, value: Any, kind: Any = np.float32) -> str:
        """Add a constant and return its name."""
        from onnx import numpy_helper

        name = f"c{len(self._held)}"
        self._held.append(numpy_helper.from_array(np.asarray(value, dtype=kind), name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **settings: Any) -> str:
        """Add a node and return the name of its last output."""
        from onnx import helper

        names = [f"n{len(self._nodes)}_{place}" for place in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, **settings))
        return names[-1]

    def cut(self, value: str, start: int, end: int) -> str:
        """Return the columns start to end - 1."""
        return self.op("Slice", value, *(self.hold([edge], np.int64) for edge in (start, end, 1)))

    def filled(self, value: str, fill: Floats) -> str:
        """Return the columns with `fill` where they are NaN."""
        return self.op("Where", self.op("IsNaN", value), self.hold(fill[None, :]), value)

    def model(self, output: str, width: int, outputs: int = 1) -> Any:
        """Return the `onnx.ModelProto`: `x` (n, width) to (n, outputs)."""
        from onnx import TensorProto, helper

        graph = helper.make_graph(
            self._nodes, "router",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, width])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, [None, outputs])],
            self._held,
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@dataclass(frozen=True)
class Scaled:
    """Plain numbers: signed logarithm, standardised, times `text`; one-hot columns times `group`; the embedding as it is.

    What is missing counts as the mean.
    """

    plain: int
    width: int
    fill: Floats
    mean: Floats
    scale: Floats
    text: float
    rest: Floats

    @classmethod
    def fit(cls, data: RoutingData, text: float = 0.1, group: float = 0.5) -> Scaled:
        """Take mean and spread from the rows."""
        values = data.x[:, : data.plain].astype(np.float64)
        gone = ~np.isfinite(values)
        logs = np.where(gone, 0.0, _signed_log(np.where(gone, 0.0, values)))
        count = np.maximum((~gone).sum(axis=0), 1)
        mean = logs.sum(axis=0) / count
        spread = np.sqrt(np.where(gone, 0.0, (logs - mean) ** 2).sum(axis=0) / count)
        rest = np.concatenate([np.full(len(data.features) - data.plain, group), np.ones(data.embedding)])
        fill = np.sign(mean) * np.expm1(np.abs(mean))
        return cls(data.plain, data.x.shape[1], fill, mean, np.where(spread > 1e-9, spread, 1.0), text, rest)

    def apply(self, x: Columns) -> Floats:
        """Return (n, width) comparable numbers."""
        wide = np.asarray(x, dtype=np.float64)
        head = np.where(np.isfinite(wide[:, : self.plain]), wide[:, : self.plain], self.fill)
        z = np.clip((_signed_log(head) - self.mean) / self.scale, -_FAR, _FAR) * self.text
        found: Floats = np.concatenate([z, wide[:, self.plain :] * self.rest], axis=1)
        return found

    def write(self, graph: Graph) -> str:
        """Add the same to a graph; return the name of its output."""
        parts = []
        if self.plain:
            head = graph.filled(graph.cut("x", 0, self.plain), self.fill)
            logs = graph.op(
                "Mul", graph.op("Sign", head), graph.op("Log", graph.op("Add", graph.op("Abs", head), graph.hold(1)))
            )
            z = graph.op("Div", graph.op("Sub", logs, graph.hold(self.mean)), graph.hold(self.scale))
            z = graph.op("Clip", z, graph.hold(-_FAR), graph.hold(_FAR))
            parts.append(graph.op("Mul", z, graph.hold(self.text)))
        if self.plain < self.width:
            parts.append(graph.op("Mul", graph.cut("x", self.plain, self.width), graph.hold(self.rest)))
        return graph.op("Concat", *parts, axis=1)


@dataclass(frozen=True)
class Condensed:
    """What trees read: plain numbers, the one-hot columns as their shrunk mean gain, the embedding by its main axes.

    It is one affine map of x, fitted on the rows.
    """

    fill: Floats
    matrix: Columns

    @classmethod
    def fit(cls, data: RoutingData, axes: int = 48, shrink: float = 20.0) -> Condensed:
        """Choose axes by principal components and means from the rows."""
        parts = [np.eye(data.x.shape[1])[:, : data.plain]]
        effects = group_effects(data, shrink)
        if effects.any():
            parts.append(effects[:, None])
        if data.embedding:
            values = data.x[:, len(data.features) :].astype(np.float64)
            centred = values - values.mean(axis=0)
            _, vectors = np.linalg.eigh(centred.T @ centred)
            turned = np.zeros((data.x.shape[1], min(axes, data.embedding)))
            turned[len(data.features) :] = vectors[:, ::-1][:, : turned.shape[1]]
            parts.append(turned)
        plain = data.x[:, : data.plain].astype(np.float64)
        known = np.isfinite(plain).any(axis=0)
        fill = np.zeros(data.x.shape[1])
        fill[: data.plain][known] = np.nanmedian(plain[:, known], axis=0)
        return cls(fill, np.concatenate(parts, axis=1).astype(np.float32))

    def apply(self, x: Columns) -> Columns:
        """Return (n, condensed width), float32 as it is served."""
        wide = np.asarray(x, dtype=np.float32)
        found: Columns = np.where(np.isnan(wide), self.fill.astype(np.float32), wide) @ self.matrix
        return found

    def before(self, model: Any) -> Any:
        """Return the ONNX model that condenses x first and hands it to `model`."""
        from onnx import TensorProto, compose, helper

        graph = Graph()
        made = graph.op("MatMul", graph.filled("x", self.fill), graph.hold(self.matrix))
        front = graph.model(made, len(self.fill))
        front.graph.output[0].CopyFrom(helper.make_tensor_value_info(made, TensorProto.FLOAT, [None, self.matrix.shape[1]]))
        back = compose.add_prefix(model, "t_")
        del front.opset_import[:]
        front.opset_import.extend(back.opset_import)
        front.ir_version = back.ir_version
        return compose.merge_models(front, back, io_map=[(made, back.graph.input[0].name)])


def group_effects(data: RoutingData, shrink: float) -> Floats:
    """Return, per column of x, a one-hot column's mean gain less that of all, shrunk as by `shrink` rows more."""
    effects = np.zeros(data.x.shape[1])
    gain = data.gain - data.gain.mean()
    for place in range(data.plain, len(data.features)):
        here = data.x[:, place] > 0.5
        effects[place] = gain[here].sum() / (here.sum() + shrink)
    return effects


def _signed_log(values: Floats) -> Floats:
    found: Floats = np.sign(values) * np.log1p(np.abs(values))
    return found
