"""The model that all servers of `bench.batching` serve: a small net over a text's bytes, in NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LABELS = ("left", "right")
_LENGTH, _WIDTH = 64, 1024


class Net:
    """Two hidden layers of 1,024 with fixed random weights: a call costs about the same for one row as for a few."""

    labels = LABELS

    def __init__(self) -> None:
        chance = np.random.default_rng(7)
        shapes = ((_LENGTH, _WIDTH), (_WIDTH, _WIDTH), (_WIDTH, _WIDTH), (_WIDTH, len(LABELS)))
        self._layers = [(chance.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32) for shape in shapes]

    def __call__(self, texts: Sequence[str]) -> list[tuple[str, float]]:
        """Return a label and its probability for every text."""
        table = np.zeros((len(texts), _LENGTH), np.float32)
        for row, text in zip(table, texts, strict=True):
            read = np.frombuffer(text.encode()[:_LENGTH], np.uint8)
            row[: len(read)] = read
        values = table / 128.0 - 0.5
        for weights in self._layers[:-1]:
            values = np.maximum(values @ weights, 0.0)
        logits = values @ self._layers[-1]
        parts = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares = parts / parts.sum(axis=1, keepdims=True)
        return [(LABELS[at], float(share[at])) for at, share in zip(shares.argmax(axis=1).tolist(), shares, strict=True)]
