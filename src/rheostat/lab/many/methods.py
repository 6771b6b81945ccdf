"""The ways to predict each model's quality on a request: all models at once, so that they are comparable on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from rheostat.lab.many.data import ManyData
from rheostat.lab.many.forest import fit_forest
from rheostat.lab.many.linear import fit_kernel, fit_means, fit_ridge
from rheostat.lab.many.neighbours import fit_clusters, fit_near
from rheostat.lab.metrics import Floats
from rheostat.lab.routers.data import Columns, folds
from rheostat.lab.routers.learner import Setting
from rheostat.lab.routers.learners import Mean

_MOST: Final = 4_000  # rows that settings are chosen on: more would change the choice little
_INNER: Final = 3


class Predictor(Protocol):
    """A fitted predictor of quality."""

    def predict(self, x: Columns) -> Floats:
        """Return the expected quality, (n, models)."""

    def to_onnx(self) -> Any:
        """Return the same as an `onnx.ModelProto`: float32 `x` (n, width) to (n, models)."""


@dataclass(frozen=True)
class Method:
    """A way to make a predictor: `what` it is, how to `fit` it, and the settings that inner folds choose from."""

    name: str
    what: str
    fit: Callable[[ManyData, Setting], Predictor]
    grid: Sequence[Setting] = ({},)


def _mean(*names: str) -> Callable[[ManyData, Setting], Mean]:
    def fit(data: ManyData, _setting: Setting) -> Mean:
        return Mean(tuple(fitted(data, METHODS[name])[0] for name in names))

    return fit


METHODS: Final[Mapping[str, Method]] = {
    method.name: method
    for method in (
        Method("forest", "extremely randomised trees", fit_forest, ({"leaf": 5}, {"leaf": 10}, {"leaf": 25})),
        Method(
            "kernel", "kernel ridge over landmarks", fit_kernel,
            tuple({"text": 0.2, "width": w, "penalty": 3.0} for w in (0.5, 1.0, 2.0)),
        ),
        Method(
            "ridge", "ridge regression", fit_ridge,
            tuple({"text": t, "penalty": p} for t in (0.1, 0.2) for p in (3.0, 10.0, 30.0)),
        ),
        Method(
            "knn", "mean quality of the nearest rows", fit_near,
            tuple({"text": t, "count": c} for t in (0.0, 0.2) for c in (40, 100)),
        ),
        Method("ridge+knn", "mean of ridge and knn", _mean("ridge", "knn")),
        Method(
            "clusters", "mean quality of the k-means cluster", fit_clusters,
            tuple({"text": t, "count": 64} for t in (0.0, 0.2)),
        ),
        Method("means", "shrunk mean quality of a group", fit_means, ({"shrink": 5.0}, {"shrink": 20.0})),
    )
}  # fmt: skip
"""Every way, by name; the first is the one to start with."""


def fitted(data: ManyData, method: Method) -> tuple[Predictor, Setting]:
    """Choose the setting by inner folds on these rows only, fit with it on all of them, and return both.

    The setting whose held-out predictions go best with what tells the models apart wins: Pearson's correlation of
    quality less the row's mean over the models, predicted and true. The first wins a tie.
    """
    setting = _chosen(data, method) if len(method.grid) > 1 else method.grid[0]
    return method.fit(data, setting), setting


def _chosen(data: ManyData, method: Method) -> Setting:
    some = data
    if len(data) > _MOST:
        some = data.take(np.sort(np.random.default_rng(0).permutation(len(data))[:_MOST]))
    try:
        part = folds(some.same, _INNER, 0)
    except ValueError:
        return method.grid[0]
    truth = _apart(some.quality)
    scores = []
    for setting in method.grid:
        said = np.empty_like(some.quality)
        for fold in range(_INNER):
            said[part == fold] = method.fit(some.take(part != fold), setting).predict(some.x[part == fold])
        apart = _apart(said)
        level = apart.std() * truth.std()
        scores.append(float((apart * truth).mean() / level) if level > 1e-12 else 0.0)
    return method.grid[int(np.argmax(scores))]


def _apart(quality: Floats) -> Floats:
    found: Floats = quality - quality.mean(axis=1, keepdims=True)
    return found
