"""The study's rankings as outcomes tables, so that the product's own lab and policies work on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from bench.delegation_data import Rankings
from bench.labelled import SPLITS
from rheostat.lab.outcomes import ModelColumns, ModelInfo, OutcomesTable

if TYPE_CHECKING:
    from bench.fits import Floats

DROPPED = ("user_loss", "user_gap", "item_loss", "item_gap")
"""Past performance is remembered by the lab itself (`past`), so these are not given to it."""
LATENCY_S = (0.001, 0.004)


def outcomes_of(found: Rankings) -> OutcomesTable:
    """Return the rankings as an outcomes table; what is known of a request stands in its meta."""
    parts, inputs = [], []
    for split in SPLITS:
        kept = [at for at, name in enumerate(found.feature_names) if name not in DROPPED]
        names = [found.feature_names[at] for at in kept]
        rows = zip(found.users[split].tolist(), found.features[split][:, kept].tolist(), strict=True)
        parts += [{"user": str(user), **dict(zip(names, values, strict=True))} for user, values in rows]
        inputs += [f'{{"row": "{split}-{at}"}}' for at in range(len(found.truth[split]))]
    scores = np.concatenate([found.scores[split] for split in SPLITS])
    truth = np.concatenate([found.truth[split] for split in SPLITS]).astype(np.int32)
    meta = np.array([msgspec.json.encode(each).decode() for each in parts], dtype=object)
    return OutcomesTable(
        ids=np.array([f"{split}-{at}" for split in SPLITS for at in range(len(found.truth[split]))], dtype=object),
        split=np.repeat(np.arange(3), [len(found.truth[split]) for split in SPLITS]).astype(np.int8),
        truth=truth,
        labels=("no", "yes"),
        columns={name: columns_of(scores[:, at], found.cost[at], LATENCY_S[at]) for at, name in enumerate(found.models)},
        model_info={name: ModelInfo(cost=cost) for name, cost in zip(found.models, found.cost, strict=True)},
        inputs=np.array(inputs, dtype=object),
        meta=meta,
    )


def columns_of(chance: Floats, cost: float, latency_s: float) -> ModelColumns:
    """Return a model's columns from its chances of `yes`."""
    n = len(chance)
    scores = np.stack([1.0 - chance, chance], axis=1)
    return ModelColumns(
        label=scores.argmax(axis=1).astype(np.int32),
        confidence=scores.max(axis=1),
        latency_s=np.full(n, latency_s),
        cost=np.full(n, cost),
        failure=np.zeros(n, np.int8),
        scores=scores.astype(np.float32),
    )


def request_features(found: Rankings) -> tuple[str, ...]:
    """Return the names of what weights may read of a request."""
    return tuple(f"meta.{name}" for name in found.feature_names if name not in DROPPED)
