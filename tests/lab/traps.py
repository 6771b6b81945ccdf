"""Outcomes tables with a trap in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import numpy as np
from lab_tables import synthetic

from rheostat.lab.outcomes import ModelColumns, OutcomesTable

WORDS = ("river", "stone", "cloud", "engine", "garden", "paper", "winter", "signal", "harbour", "copper")


def sound(rows: int = 900, seed: int = 0, **given: float) -> OutcomesTable:
    """Two models worth routing between, over texts that no other row has."""
    made = synthetic(rows, seed=seed, **given)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed + 1)
    texts = [f"{' '.join(rng.choice(WORDS, rng.integers(2, 9)))} {at}" for at in range(rows)]
    return replace(
        made,
        inputs=np.array([msgspec.json.encode(text).decode() for text in texts], dtype=object),
        meta=np.array(['{"user":' + str(at // 3) + "}" for at in range(rows)], dtype=object),
    )


def each_model(made: OutcomesTable, change: Callable[[ModelColumns], ModelColumns]) -> OutcomesTable:
    return replace(made, columns={name: change(columns) for name, columns in made.columns.items()})


def sure_of(columns: ModelColumns, confidence: np.ndarray) -> ModelColumns:
    """The same labels with other confidences, and score distributions that fit them."""
    labels = 3 if columns.scores is None else columns.scores.shape[1]
    scores = np.repeat(((1.0 - confidence) / (labels - 1))[:, None], labels, axis=1)
    scores[np.arange(len(confidence)), columns.label] = confidence
    return replace(columns, confidence=confidence, scores=scores.astype(np.float32))


def one_class() -> OutcomesTable:
    """Every right label is the same."""
    made = sound()
    return replace(made, truth=np.zeros(len(made), np.int32), data_hash="")


def constant() -> OutcomesTable:
    """Both models are always equally sure."""
    return each_model(sound(), lambda columns: sure_of(columns, np.full(len(columns.label), 0.9)))


def tied() -> OutcomesTable:
    """Two confidences only."""
    return each_model(sound(), lambda columns: sure_of(columns, np.where(columns.confidence > 0.8, 0.9, 0.6)))


def without_confidence() -> OutcomesTable:
    """No model says how sure it is."""
    return each_model(sound(), lambda columns: replace(columns, confidence=np.full(len(columns.label), np.nan), scores=None))


def some_without_confidence() -> OutcomesTable:
    """Every fifth row has no confidence and no scores."""

    def change(columns: ModelColumns) -> ModelColumns:
        fifth = np.arange(len(columns.label)) % 5 == 0
        scores = np.where(fifth[:, None], np.nan, columns.scores).astype(np.float32)
        return replace(columns, confidence=np.where(fifth, np.nan, columns.confidence), scores=scores)

    return each_model(sound(), change)


def without(*splits: int) -> OutcomesTable:
    """The rows of these splits stand in train instead (of train: in dev)."""
    made = sound()
    split = made.split.copy()
    for code in splits:
        split[split == code] = 1 if code == 0 else 0
    return replace(made, split=split, data_hash="")


def empty() -> OutcomesTable:
    """No row at all."""
    return sound().subset(np.zeros(0, int))


def strangers() -> OutcomesTable:
    """The models say l0, l1, l2 and the right labels are L0, L1, L2."""
    made = sound()
    labels = (*made.labels, *(label.upper() for label in made.labels))

    columns = {
        name: replace(one, scores=np.concatenate([one.scores, np.zeros_like(one.scores)], axis=1))
        for name, one in made.columns.items()
        if one.scores is not None
    }
    return replace(made, columns=columns, labels=labels, truth=(made.truth + 3).astype(np.int32), data_hash="")


def repeated() -> OutcomesTable:
    """Every text stands in two rows, most of them of different splits."""
    made = sound()
    assert made.inputs is not None
    return replace(made, inputs=made.inputs[np.arange(len(made)) // 2 * 2])


def no_better() -> OutcomesTable:
    """The dear model is no better than the cheap one, and wrong on the same rows."""
    made = sound()
    small, large = made.columns.values()
    same = replace(small, cost=large.cost, latency_s=large.latency_s)
    return replace(made, columns={"small": small, "large": same})


def worse() -> OutcomesTable:
    """The dear model is worse."""
    return sound(small=0.9, large=0.7)


TRAPS: Mapping[str, Callable[[], OutcomesTable]] = {
    "one class": one_class,
    "constant": constant,
    "tied": tied,
    "no confidence": without_confidence,
    "some confidence": some_without_confidence,
    "no train": lambda: without(0),
    "no dev": lambda: without(1),
    "no test": lambda: without(2),
    "train only": lambda: without(1, 2),
    "empty": empty,
    "strangers": strangers,
    "repeated": repeated,
    "no better": no_better,
    "worse": worse,
}
