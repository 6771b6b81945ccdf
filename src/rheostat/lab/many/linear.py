"""Quality of every model from scaled numbers: ridge, kernel ridge, the mean of a group."""

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
class Linear:
    """scaled x times `slope` (width, models) plus `level` (models,)."""

    front: Scaled
    slope: Floats
    level: Floats

    def predict(self, x: Columns) -> Floats:
        found: Floats = self.front.apply(x) @ self.slope + self.level
        return found

    def to_onnx(self) -> Any:
        graph = Graph()
        out = graph.op("Gemm", self.front.write(graph), graph.hold(self.slope), graph.hold(self.level))
        return graph.model(out, self.front.width, len(self.level))


def fit_ridge(data: ManyData, setting: Setting) -> Linear:
    """Fit ridge regression of every model's quality, with one penalty for all of them."""
    front = Scaled.fit(data.frame, setting["text"], setting.get("group", 0.5))
    return Linear(front, *_ridge(front.apply(data.x), data.quality, setting["penalty"]))


def fit_means(data: ManyData, setting: Setting) -> Linear:
    """Fit each model's mean quality by group (task), drawn towards its mean over all as if by `shrink` rows more.

    Without a group it is each model's mean quality.
    """
    front = Scaled.fit(data.frame, 0.0, 1.0)
    level = data.quality.mean(axis=0)
    slope = np.zeros((data.x.shape[1], len(data.models)))
    for place in range(data.frame.plain, len(data.features)):
        here = data.x[:, place] > 0.5
        slope[place] = (data.quality[here] - level).sum(axis=0) / (here.sum() + setting["shrink"])
    if data.embedding:
        front = Scaled(
            front.plain, front.width, front.fill, front.mean, front.scale, 0.0,
            np.concatenate([np.ones(len(data.features) - data.frame.plain), np.zeros(data.embedding)]),
        )  # fmt: skip
    return Linear(front, slope, level)


@dataclass(frozen=True)
class Kernel:
    """Ridge over likeness to landmarks: exp(-width * squared distance), weighed. Source: Williams and Seeger (2001)."""

    front: Scaled
    landmarks: Floats
    slope: Floats
    level: Floats
    width: float

    def predict(self, x: Columns) -> Floats:
        z = self.front.apply(x)
        parts = [_likeness(z[at : at + 4096], self.landmarks, self.width) @ self.slope for at in range(0, len(z), 4096)]
        found: Floats = np.concatenate(parts) + self.level
        return found

    def to_onnx(self) -> Any:
        graph = Graph()
        z = self.front.write(graph)
        near = graph.op("MatMul", z, graph.hold(2.0 * self.width * self.landmarks.T))
        own = graph.op("ReduceSum", graph.op("Mul", z, z), graph.hold([1], np.int64), keepdims=1)
        size = graph.hold((self.landmarks**2).sum(axis=1)[None, :])
        away = graph.op("Mul", graph.op("Add", own, size), graph.hold(self.width))
        like = graph.op("Exp", graph.op("Sub", near, away))
        out = graph.op("Gemm", like, graph.hold(self.slope), graph.hold(self.level))
        return graph.model(out, self.front.width, len(self.level))


def fit_kernel(data: ManyData, setting: Setting) -> Kernel:
    """Fit kernel ridge of every model's quality over at most `landmarks` rows taken by chance (the Nyström method)."""
    front = Scaled.fit(data.frame, setting["text"], setting.get("group", 0.5))
    z, width = front.apply(data.x), setting["width"]
    chosen = z[np.random.default_rng(0).permutation(len(z))[: setting.get("landmarks", 600)]]
    values, vectors = np.linalg.eigh(_likeness(chosen, chosen, width))
    kept = values > 1e-6 * values[-1]
    whiten = vectors[:, kept] / np.sqrt(values[kept])
    slope, level = _ridge(_likeness(z, chosen, width) @ whiten, data.quality, setting["penalty"])
    return Kernel(front, chosen, whiten @ slope, level, width)


def _ridge(z: Floats, quality: Floats, penalty: float) -> tuple[Floats, Floats]:
    middle, level = z.mean(axis=0), quality.mean(axis=0)
    centred = z - middle
    slope = np.linalg.solve(centred.T @ centred + penalty * np.eye(z.shape[1]), centred.T @ (quality - level))
    return slope, level - middle @ slope


def _likeness(left: Floats, right: Floats, width: float) -> Floats:
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2.0 * left @ right.T
    found: Floats = np.exp(-width * np.maximum(squares, 0.0))
    return found
