"""The kinds of routers there are, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rheostat.lab.learned_file import mean_of
from rheostat.lab.metrics import Floats
from rheostat.lab.routers.data import Columns, RoutingData, folds
from rheostat.lab.routers.learner import Fitted, Learner, Setting
from rheostat.lab.routers.linear import fit_factors, fit_group, fit_kernel, fit_logistic, fit_ridge
from rheostat.lab.routers.neighbours import fit_nearest
from rheostat.lab.routers.trees import fit_boosted, fit_forest, fit_tree

_MOST: Final = 2_000  # rows that settings are chosen on: more would change the choice little
_INNER: Final = 3


@dataclass(frozen=True)
class Mean:
    """The mean of what several fitted routers say."""

    members: tuple[Fitted, ...]

    def predict(self, x: Columns) -> Floats:
        found: Floats = np.mean([member.predict(x) for member in self.members], axis=0)
        return found

    def to_onnx(self) -> Any:
        return mean_of([member.to_onnx() for member in self.members])


def _mean(*names: str) -> Any:
    def fit(data: RoutingData, _setting: Setting) -> Mean:
        return Mean(tuple(fitted(data, LEARNERS[name])[0] for name in names))

    return fit


LEARNERS: Final[Mapping[str, Learner]] = {
    learner.name: learner
    for learner in (
        Learner("mean", "mean of kernel and forest", _mean("kernel", "forest")),
        Learner(
            "forest", "extremely randomised trees on the gain", fit_forest, ({"leaf": 5}, {"leaf": 10}, {"leaf": 25}),
            quick={"trees": 40},
        ),
        Learner("boosted", "gradient-boosted trees on the gain", fit_boosted, tuple({"rounds": r} for r in (60, 120, 250))),
        Learner(
            "kernel", "kernel ridge on the gain", fit_kernel,
            tuple({"text": t, "width": w, "penalty": 3.0} for t, w in ((0.1, 0.5), (0.1, 1.0), (0.2, 0.5), (0.3, 1.0))),
            quick={"landmarks": 300},
        ),
        Learner(
            "ridge", "ridge regression on the gain", fit_ridge,
            tuple({"text": t, "penalty": p} for t in (0.1, 0.2) for p in (5.0, 20.0, 60.0)),
        ),
        Learner(
            "knn", "mean gain of the nearest rows", fit_nearest,
            tuple({"text": t, "count": c} for t in (0.0, 0.1) for c in (40, 100, 150)),
        ),
        Learner("ridge+knn", "mean of ridge and knn", _mean("ridge", "knn")),
        Learner(
            "logistic", "chance that the strong model is needed", fit_logistic,
            tuple({"text": 0.2, "strength": s} for s in (0.3, 1.0, 3.0)), "probability",
        ),
        Learner("tree", "one shallow tree, printed as rules", fit_tree, ({"depth": 2}, {"depth": 3})),
        Learner(
            "factors", "matrix factorisation", fit_factors, tuple({"text": 0.2, "penalty": p} for p in (1e-4, 1e-3)),
        ),
        Learner("group", "shrunk mean gain of a group", fit_group, ({"shrink": 5.0}, {"shrink": 20.0}, {"shrink": 80.0})),
    )
}  # fmt: skip
"""Every kind; the first is the one to start with."""


def fitted(data: RoutingData, learner: Learner) -> tuple[Fitted, Setting]:
    """Choose the setting by inner cross-validation on these rows only, fit with it on all of them, and return both.

    The setting whose held-out scores go best with the gain (Pearson's correlation) wins; the first wins a tie.
    """
    setting = _chosen(data, learner) if len(learner.grid) > 1 else learner.grid[0]
    return learner.fit(data, setting), setting


def _chosen(data: RoutingData, learner: Learner) -> Setting:
    some = data
    if len(data) > _MOST:
        some = data.take(np.sort(np.random.default_rng(0).permutation(len(data))[:_MOST]))
    try:
        part = folds(some.same, _INNER, 0)
    except ValueError:
        return learner.grid[0]
    scores: Sequence[float] = [_held_out(some, learner, setting, part) for setting in learner.grid]
    return learner.grid[int(np.argmax(scores))]


def _held_out(data: RoutingData, learner: Learner, setting: Setting, part: Any) -> float:
    said = np.empty(len(data))
    for fold in range(_INNER):
        try:
            model = learner.fit(data.take(part != fold), {**setting, **learner.quick})
        except ValueError:  # one class only in a fold
            return -1.0
        said[part == fold] = model.predict(data.x[part == fold])
    if said.std() < 1e-12 or data.gain.std() < 1e-12:
        return 0.0
    return float(np.corrcoef(said, data.gain)[0, 1])
