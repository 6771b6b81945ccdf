"""Cross-fitted reward models for the direct method and for DR."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rheostat.chance import chance
from rheostat.lab.metrics import Floats
from rheostat.lab.ope.log import Log
from rheostat.lab.outcomes import Bools, Ints

FOLDS: Final = 5
PENALTIES: Final = (1.0, 10.0, 100.0, 1000.0, 10_000.0)
_BLOCK: Final = 50_000  # rows whose predictions for every action are held at a time
_MANY: Final = 100_000  # rows from which boosting uses every core
_WIDEST: Final = 1_000  # coefficients of the regression with an own slope per action


class Predicted(NamedTuple):
    """`value`: the expected reward of the target's choices; `logged`: of the logged action; both a number per row."""

    value: Floats
    logged: Floats
    method: str


def cross_fitted(log: Log, method: str = "ridge", seed: int = 0) -> Predicted:
    """Predict each row's reward by a model fitted on the other folds; rows of one cluster are in one fold.

    `ridge` is a linear model with a level per action, and a slope per action where that stays below 1,000 coefficients; the
    penalty is the best of PENALTIES by out-of-fold error. It works from sums per fold, so rows add little to its memory.
    `boosted` is scikit-learn's HistGradientBoostingRegressor on features and action.

    Raises:
        ValueError: an unknown method, or fewer clusters than folds.
    """
    fold = folds(log.clusters, seed)
    if method == "ridge":
        return _ridge(log, fold)
    if method == "boosted":
        return _boosted(log, fold, seed)
    raise ValueError(f"`method` is ridge or boosted, got {method!r}")


def folds(cluster: Ints, seed: int) -> Ints:
    """Deal clusters out to FOLDS folds of about the same number of clusters.

    Raises:
        ValueError: there are fewer clusters than folds.
    """
    count = int(cluster.max()) + 1
    if count < FOLDS:
        raise ValueError(f"cross-fitting needs at least {FOLDS} independent rows or clusters, got {count}")
    order = np.random.default_rng(int(chance("ope folds", str(seed)) * 2**32)).permutation(count)
    dealt: Ints = (order % FOLDS).astype(np.int32)[cluster]
    return dealt


def _scale(log: Log) -> tuple[Floats, Floats]:
    """Mean and spread of the features over the whole log (they know no rewards); a constant one has spread 1."""
    if log.features is None:
        return np.zeros(0), np.ones(0)
    spread = log.features.std(axis=0, dtype=np.float64)
    return log.features.mean(axis=0, dtype=np.float64), np.where(spread > 1e-12, spread, 1.0)


def _design(log: Log, rows: slice, scale: tuple[Floats, Floats]) -> Floats:
    """The standardised features of some rows, behind a column of ones."""
    if log.features is None or not log.features.shape[1]:
        count = len(log.action[rows])
        return np.ones((count, 1))
    part = log.features[rows].astype(np.float64)
    return np.column_stack([np.ones(len(part)), (part - scale[0]) / scale[1]])


def _ridge(log: Log, fold: Ints) -> Predicted:
    k = len(log.actions)
    width = 1 if log.features is None else log.features.shape[1] + 1
    sloped = width * (k + 1) <= _WIDEST
    scale = _scale(log)
    gram, moment, square = _sums(log, fold, width, scale)
    shown: list[tuple[float, list[Floats]]] = []
    for penalty in PENALTIES:
        fitted = [_solve(gram.sum(axis=0) - gram[f], moment.sum(axis=0) - moment[f], penalty, sloped) for f in range(FOLDS)]
        error = sum(
            square[f]
            - 2.0 * float((coefficients.T * moment[f]).sum())
            + float(np.einsum("ak,kab,bk->", coefficients, gram[f], coefficients))
            for f, coefficients in enumerate(fitted)
        )
        shown.append((error, fitted))
    fitted = min(shown, key=lambda pair: pair[0])[1]
    value, logged = np.empty(len(log)), np.empty(len(log))
    for start in range(0, len(log), _BLOCK):
        rows = slice(start, start + _BLOCK)
        design = _design(log, rows, scale)
        for f, coefficients in enumerate(fitted):
            mine = fold[rows] == f
            predicted = design[mine] @ coefficients
            value[rows][mine] = (predicted * log.target[rows][mine]).sum(axis=1)
            logged[rows][mine] = predicted[np.arange(len(predicted)), log.action[rows][mine]]
    return Predicted(value, logged, "ridge")


def _sums(log: Log, fold: Ints, width: int, scale: tuple[Floats, Floats]) -> tuple[Floats, Floats, Floats]:
    """Sums per fold and action: design times design, design times reward; and per fold the squared rewards."""
    k = len(log.actions)
    gram, moment = np.zeros((FOLDS, k, width, width)), np.zeros((FOLDS, k, width))
    square = np.bincount(fold, log.reward**2, FOLDS).astype(np.float64)
    for start in range(0, len(log), _BLOCK):
        rows = slice(start, start + _BLOCK)
        design = _design(log, rows, scale)
        cell = fold[rows] * k + log.action[rows]
        order = np.argsort(cell, kind="stable")
        cells, begins = np.unique(cell[order], return_index=True)
        for code, part in zip(cells, np.split(order, begins[1:]), strict=True):
            mine = design[part]
            gram[code // k, code % k] += mine.T @ mine
            moment[code // k, code % k] += mine.T @ log.reward[rows][part]
    return gram, moment, square


def _solve(gram: Floats, moment: Floats, penalty: float, sloped: bool) -> Floats:
    """Coefficients, design x actions: one shared vector plus what is an action's own, both shrunk (the shared level not)."""
    k, width = moment.shape
    own = width if sloped else 1
    size = width + k * own
    matrix, right = np.zeros((size, size)), np.zeros(size)
    matrix[:width, :width] = gram.sum(axis=0)
    right[:width] = moment.sum(axis=0)
    for a in range(k):
        at = slice(width + a * own, width + (a + 1) * own)
        matrix[at, at] = gram[a][:own, :own]
        matrix[:width, at] = gram[a][:, :own]
        matrix[at, :width] = gram[a][:own, :]
        right[at] = moment[a][:own]
    shrink = np.full(size, penalty)
    shrink[0] = 1e-9
    solved = np.linalg.solve(matrix + np.diag(shrink), right)
    coefficients = np.repeat(solved[:width, None], k, axis=1)
    coefficients[:own] += solved[width:].reshape(k, own).T
    return coefficients


def _boosted(log: Log, fold: Ints, seed: int) -> Predicted:
    import sklearn.ensemble  # noqa: F401  (first, so that its thread pool is among those that are limited)
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    value, logged = np.zeros(len(log)), np.empty(len(log))
    with threadpool_limits(1 if len(log) < _MANY else None):  # few rows: threads only wait for one another
        for f in range(FOLDS):
            _boost_fold(log, fold != f, np.flatnonzero(fold == f), seed, Predicted(value, logged, "boosted"))
    return Predicted(value, logged, "boosted")


def _boost_fold(log: Log, rest: Bools, mine: NDArray[np.int64], seed: int, into: Predicted) -> None:
    """Fit on the rows of `rest` and write predictions for the rows `mine`."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    plain = np.zeros((len(log), 0)) if log.features is None else log.features
    model = HistGradientBoostingRegressor(
        max_iter=100,
        max_leaf_nodes=15,
        min_samples_leaf=50,
        categorical_features=[plain.shape[1]] if len(log.actions) <= 255 else None,
        random_state=seed,
    )
    model.fit(np.column_stack([plain[rest], log.action[rest]]), log.reward[rest])
    for start in range(0, len(mine), _BLOCK):
        part = mine[start : start + _BLOCK]
        for a in range(len(log.actions)):
            predicted = model.predict(np.column_stack([plain[part], np.full(len(part), a)]))
            into.value[part] += predicted * log.target[part, a]
            here = log.action[part] == a
            into.logged[part[here]] = predicted[here]
