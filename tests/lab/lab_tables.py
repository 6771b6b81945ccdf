"""Small outcomes tables for the tests of this room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rheostat.lab.outcomes import SPLITS, ModelColumns, ModelInfo, OutcomesTable


def columns(
    label: Sequence[int],
    confidence: Sequence[float] | None = None,
    *,
    latency: float | Sequence[float] = 0.01,
    cost: float = 1.0,
    failure: Sequence[int] | None = None,
    scores: np.ndarray | None = None,
) -> ModelColumns:
    n = len(label)
    return ModelColumns(
        label=np.array(label, np.int32),
        confidence=np.full(n, np.nan) if confidence is None else np.array(confidence, float),
        latency_s=np.broadcast_to(np.array(latency, float), (n,)).copy(),
        cost=np.full(n, cost),
        failure=np.zeros(n, np.int8) if failure is None else np.array(failure, np.int8),
        scores=None if scores is None else scores.astype(np.float32),
    )


def table(
    truth: Sequence[int],
    models: Mapping[str, ModelColumns],
    *,
    split: str | Sequence[str] = "test",
    labels: tuple[str, ...] = ("no", "yes"),
    info: Mapping[str, ModelInfo] | None = None,
    inputs: Sequence[str] | None = None,
) -> OutcomesTable:
    n = len(truth)
    names = [split] * n if isinstance(split, str) else list(split)
    return OutcomesTable(
        ids=np.array([f"r{i}" for i in range(n)], dtype=object),
        split=np.array([SPLITS.index(name) for name in names], np.int8),
        truth=np.array(truth, np.int32),
        labels=labels,
        columns=models,
        model_info=info or {},
        inputs=None if inputs is None else np.array(inputs, dtype=object),
    )


def synthetic(n: int, *, seed: int = 0, small: float = 0.8, large: float = 0.9, labels: int = 3) -> OutcomesTable:
    """Two models over three splits; the small one's confidence is the chance that it is right."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, labels, n)

    def model(accuracy: float, cost: float, latency: float) -> ModelColumns:
        spread = min(1 - accuracy, accuracy - 1 / labels)
        confidence = rng.uniform(accuracy - spread, accuracy + spread, n)
        right = rng.random(n) < confidence
        label = np.where(right, truth, (truth + rng.integers(1, labels, n)) % labels).astype(np.int32)
        scores = np.repeat(((1 - confidence) / (labels - 1))[:, None], labels, axis=1)
        scores[np.arange(n), label] = confidence
        return ModelColumns(
            label, confidence, rng.gamma(4, latency / 4, n), np.full(n, cost), np.zeros(n, np.int8),
            scores.astype(np.float32),
        )  # fmt: skip

    return OutcomesTable(
        ids=np.array([f"r{i}" for i in range(n)], dtype=object),
        split=rng.choice(3, n, p=[0.5, 0.2, 0.3]).astype(np.int8),
        truth=truth.astype(np.int32),
        labels=tuple(f"l{i}" for i in range(labels)),
        columns={"small": model(small, 1.0, 0.002), "large": model(large, 20.0, 0.05)},
        model_info={"small": ModelInfo(cost=1.0), "large": ModelInfo(cost=20.0, tier=1, lighter="small")},
    )
