"""The two models for tables of named features."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.fits import Member, fit_logistic
from bench.labelled import SPLITS, Rows
from rheostat.lab.outcomes import TrainingCard

if TYPE_CHECKING:
    from bench.fits import Floats

_GRID = (0.01, 0.1, 1.0)
_TREES = 2_000
_PATIENCE = 50


def logistic(rows: Mapping[str, Rows], truth: Mapping[str, Any]) -> Member:
    """Fit logistic regression on named features: numbers scaled, words as one column each."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers, words = _kinds(rows["train"])
    tables = {split: _table(rows[split], [*numbers, *words]) for split in SPLITS}
    wide = ColumnTransformer(
        [
            ("numbers", StandardScaler(), list(range(len(numbers)))),
            ("words", OneHotEncoder(handle_unknown="ignore"), list(range(len(numbers), len(numbers) + len(words)))),
        ]
    ).fit(tables["train"])
    x = {split: wide.transform(tables[split]) for split in SPLITS}
    model, card = fit_logistic(x, truth, _GRID)
    scores, seconds = _timed(model.predict_proba, x)
    return Member("small", 1.0, seconds, scores, card)


def boosted(rows: Mapping[str, Rows], truth: Mapping[str, Any]) -> Member:
    """Fit gradient-boosted trees, as many as dev asks for.

    They cost what logistic regression costs: both take microseconds a row, less than deciding between them does.
    """
    import lightgbm

    numbers, words = _kinds(rows["train"])
    known = {word: {value: code for code, value in enumerate(_values(rows["train"], word))} for word in words}
    x = {
        split: np.array(
            [
                [*(float(row[name]) for name in numbers), *(known[word].get(str(row[word]), -1) for word in words)]
                for row in rows[split].inputs
            ]
        )
        for split in SPLITS
    }
    places = list(range(len(numbers), len(numbers) + len(words)))
    data = {
        split: lightgbm.Dataset(x[split], truth[split], categorical_feature=places, free_raw_data=False)
        for split in ("train", "dev")
    }
    trees = lightgbm.train(
        {
            "objective": "binary", "learning_rate": 0.03, "num_leaves": 15, "min_child_samples": 40, "subsample": 0.8,
            "subsample_freq": 1, "colsample_bytree": 0.8, "seed": 0, "num_threads": 1, "verbosity": -1,
        },
        data["train"],
        num_boost_round=_TREES,
        valid_sets=[data["dev"]],
        callbacks=[lightgbm.early_stopping(_PATIENCE, verbose=False)],
    )  # fmt: skip
    scores, seconds = _timed(lambda rows: np.stack([1.0 - (chance := trees.predict(rows)), chance], axis=1), x)
    card = TrainingCard(
        train_accuracy=_accuracy(scores["train"], truth["train"]),
        dev_accuracy=_accuracy(scores["dev"], truth["dev"]),
        converged=trees.best_iteration < _TREES,
        iterations=trees.best_iteration,
        max_iterations=_TREES,
    )
    return Member("large", 1.0, seconds, scores, card)


def _accuracy(scores: Floats, truth: Any) -> float:
    return float((scores.argmax(axis=1) == truth).mean())


def _timed(ask: Callable[[Any], Floats], x: Mapping[str, Any]) -> tuple[dict[str, Floats], float]:
    began = time.perf_counter()
    scores = {split: np.asarray(ask(x[split]), dtype=np.float64) for split in SPLITS}
    return scores, (time.perf_counter() - began) / sum(map(len, scores.values()))


def _kinds(rows: Rows) -> tuple[list[str], list[str]]:
    first = rows.inputs[0]
    numbers = [name for name, value in first.items() if isinstance(value, int | float)]
    return numbers, [name for name in first if name not in numbers]


def _values(rows: Rows, name: str) -> list[str]:
    return sorted({str(row[name]) for row in rows.inputs})


def _table(rows: Rows, names: Sequence[str]) -> Any:
    return np.array([[row[name] for name in names] for row in rows.inputs], dtype=object)
