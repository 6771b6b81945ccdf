"""Routers that weigh scaled numbers: ridge, logistic, kernel ridge, matrix factorisation, the mean of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rheostat.lab.metrics import Floats
from rheostat.lab.routers.data import Columns, RoutingData
from rheostat.lab.routers.graph import Graph, Scaled, group_effects
from rheostat.lab.routers.learner import Setting


@dataclass(frozen=True)
class Weighed:
    """scaled x times `slope` plus `shift`; with `squash` the logistic function of it."""

    front: Scaled
    slope: Floats
    shift: float
    squash: bool = False

    def predict(self, x: Columns) -> Floats:
        line: Floats = self.front.apply(x) @ self.slope + self.shift
        return 1.0 / (1.0 + np.exp(-line)) if self.squash else line

    def to_onnx(self) -> Any:
        graph = Graph()
        line = graph.op("Gemm", self.front.write(graph), graph.hold(self.slope[:, None]), graph.hold([self.shift]))
        return graph.model(graph.op("Sigmoid", line) if self.squash else line, self.front.width)


def fit_ridge(data: RoutingData, setting: Setting) -> Weighed:
    """Fit ridge regression of the gain: `penalty` on the squared slopes, `text` the weight of plain numbers."""
    front = Scaled.fit(data, setting["text"])
    slope, shift = _ridge(front.apply(data.x), data.gain, setting["penalty"])
    return Weighed(front, slope, shift)


def fit_logistic(data: RoutingData, setting: Setting) -> Weighed:
    """Fit the chance that the strong model is needed (better than the weak one), the usual learned router.

    Raises:
        ValueError: the strong model is better on every row or on none.
    """
    from sklearn.linear_model import LogisticRegression

    need = data.gain > 0
    if need.all() or not need.any():
        raise ValueError(
            f"{data.names[1]} is better on {'every' if need.any() else 'no'} row: there is nothing to tell apart"
        )
    front = Scaled.fit(data, setting["text"])
    model = LogisticRegression(C=setting["strength"], max_iter=500, tol=1e-3).fit(front.apply(data.x), need)
    return Weighed(front, model.coef_[0].astype(np.float64), float(model.intercept_[0]), squash=True)


@dataclass(frozen=True)
class Kernel:
    """Ridge over likeness to landmarks: exp(-width * squared distance), weighed. Source: Williams and Seeger (2001)."""

    front: Scaled
    landmarks: Floats
    slope: Floats
    shift: float
    width: float

    def predict(self, x: Columns) -> Floats:
        z = self.front.apply(x)
        found = np.empty(len(z))
        for start in range(0, len(z), 4096):  # likeness of 4,096 rows at a time, whatever n
            found[start : start + 4096] = _likeness(z[start : start + 4096], self.landmarks, self.width) @ self.slope
        return found + self.shift

    def to_onnx(self) -> Any:
        graph = Graph()
        z = self.front.write(graph)
        near = graph.op("MatMul", z, graph.hold(2.0 * self.width * self.landmarks.T))
        own = graph.op("ReduceSum", graph.op("Mul", z, z), graph.hold([1], np.int64), keepdims=1)
        away = graph.op(
            "Mul", graph.op("Add", own, graph.hold((self.landmarks**2).sum(axis=1)[None, :])), graph.hold(self.width)
        )
        like = graph.op("Exp", graph.op("Sub", near, away))
        return graph.model(
            graph.op("Gemm", like, graph.hold(self.slope[:, None]), graph.hold([self.shift])), self.front.width
        )


def fit_kernel(data: RoutingData, setting: Setting) -> Kernel:
    """Fit kernel ridge of the gain over at most `landmarks` rows taken by chance (the Nyström method)."""
    front = Scaled.fit(data, setting["text"])
    z = front.apply(data.x)
    width = setting["width"]
    chosen = z[np.random.default_rng(0).permutation(len(z))[: setting.get("landmarks", 600)]]
    values, vectors = np.linalg.eigh(_likeness(chosen, chosen, width))
    kept = values > 1e-6 * values[-1]
    whiten = vectors[:, kept] / np.sqrt(values[kept])
    slope, shift = _ridge(_likeness(z, chosen, width) @ whiten, data.gain, setting["penalty"])
    return Kernel(front, chosen, whiten @ slope, shift, width)


@dataclass(frozen=True)
class Factors:
    """Chance of being right, strong minus weak, each a product of factors of the request and of the model."""

    front: Scaled
    request: Floats
    models: Floats
    shift: Floats

    def predict(self, x: Columns) -> Floats:
        odds = (self.front.apply(x) @ self.request) @ self.models + self.shift
        right = 1.0 / (1.0 + np.exp(-odds))
        found: Floats = right[:, 1] - right[:, 0]
        return found

    def to_onnx(self) -> Any:
        graph = Graph()
        both = graph.op("MatMul", self.front.write(graph), graph.hold(self.request @ self.models))
        right = graph.op("Sigmoid", graph.op("Add", both, graph.hold(self.shift[None, :])))
        return graph.model(graph.op("Sub", graph.cut(right, 1, 2), graph.cut(right, 0, 1)), self.front.width)


def fit_factors(data: RoutingData, setting: Setting) -> Factors:
    """Fit a matrix factorisation: odds of a right answer = factors of the request times factors of the model.

    With two models it is little more than two logistic regressions that share their axes. It follows RouteLLM's router
    (arXiv 2406.18665, section 4.2), whose labels are preferences; here they are right or wrong.
    """
    rng = np.random.default_rng(0)
    front = Scaled.fit(data, setting["text"])
    z, truth = front.apply(data.x), np.stack([data.weak, data.strong], axis=1)
    size, penalty = setting.get("size", 8), setting["penalty"]
    base = np.clip(truth.mean(axis=0), 0.01, 0.99)
    parts = [rng.normal(0, 0.1, (z.shape[1], size)), rng.normal(0, 1, (size, 2)), np.log(base / (1 - base))]
    first, second = [np.zeros_like(each) for each in parts], [np.zeros_like(each) for each in parts]
    step = 0
    for _ in range(15):
        order = rng.permutation(len(z))
        for start in range(0, len(z), 256):
            rows, step = order[start : start + 256], step + 1
            inside = z[rows] @ parts[0]
            error = (1.0 / (1.0 + np.exp(-(inside @ parts[1] + parts[2]))) - truth[rows]) / len(rows)
            slopes = [
                z[rows].T @ (error @ parts[1].T) + penalty * parts[0], inside.T @ error + penalty * parts[1],
                error.sum(axis=0),
            ]  # fmt: skip
            for place, slope in enumerate(slopes):  # Adam (Kingma and Ba 2015)
                first[place] = 0.9 * first[place] + 0.1 * slope
                second[place] = 0.999 * second[place] + 0.001 * slope**2
                move = first[place] / (1 - 0.9**step) / (np.sqrt(second[place] / (1 - 0.999**step)) + 1e-8)
                parts[place] = parts[place] - 0.01 * move
    return Factors(front, parts[0], parts[1], parts[2])


def fit_group(data: RoutingData, setting: Setting) -> Weighed:
    """Fit the mean gain of every value of a field, drawn towards the mean of all as if by `shrink` rows more.

    Raises:
        ValueError: no feature has the form FIELD=VALUE.
    """
    if data.plain == len(data.features):
        raise ValueError("the group mean needs a group: features of the form FIELD=VALUE")
    front = Scaled.fit(data, 0.0, 1.0)
    return Weighed(front, group_effects(data, setting["shrink"]), float(data.gain.mean()))


def _ridge(z: Floats, gain: Floats, penalty: float) -> tuple[Floats, float]:
    middle, level = z.mean(axis=0), float(gain.mean())
    centred = z - middle
    slope = np.linalg.solve(centred.T @ centred + penalty * np.eye(z.shape[1]), centred.T @ (gain - level))
    return slope, float(level - middle @ slope)


def _likeness(left: Floats, right: Floats, width: float) -> Floats:
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2.0 * left @ right.T
    found: Floats = np.exp(-width * np.maximum(squares, 0.0))
    return found
