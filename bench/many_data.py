"""Routing sets with more than one pair of models: nine language models, RouterArena's public split, measured classifiers."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bench.embeddings import embed
from bench.routing_data import folder, read, text_features
from rheostat.lab.many import ManyData
from rheostat.lab.metrics import Floats
from rheostat.lab.routers import TEXT, same_prompts

Tell = Callable[[str], None]
NEEDED = ("llmrouter-9models/train.csv", "routerarena-sub10/outcomes.csv", "measured-cascades/headlines.csv")
OUTPUT_TOKENS = 200
"""Assumed for every answer of the nine models: the source counts no tokens. A prompt is taken to have length / 4."""

csv.field_size_limit(10_000_000)


def nine(tell: Tell) -> tuple[ManyData, list[str]]:
    """Nine language models on 14 tasks, and each row's task; of the 119 queries that occur twice, the first row is kept."""
    rows = [*read("llmrouter-9models/train.csv"), *read("llmrouter-9models/test.csv")]
    listed = read("llmrouter-9models/models.csv")
    quality = _numbers(rows, [f"score__{one['model']}" for one in listed])
    tokens = np.array([len(row["query"]) / 4.0 for row in rows])
    prices = [(float(one["input_price_per_mtok"]), float(one["output_price_per_mtok"])) for one in listed]
    cost = np.stack([(tokens * asked + OUTPUT_TOKENS * said) / 1e6 for asked, said in prices], axis=1)
    data = _many("llmrouter-9models", [one["model"] for one in listed], [r["query"] for r in rows], quality, cost, tell)
    first = np.sort(np.unique(data.same, return_index=True)[1])
    return data.take(first), [rows[at]["task"] for at in first.tolist()]


def arena(tell: Tell) -> ManyData:
    """RouterArena's public split: two models, of which the dear one is the worse one."""
    rows = read("routerarena-sub10/outcomes.csv")
    models = [key.removeprefix("score__") for key in rows[0] if key.startswith("score__")]
    quality, cost = (_numbers(rows, [f"{what}__{model}" for model in models]) for what in ("score", "cost"))
    return _many("routerarena-sub10", models, [row["query"] for row in rows], quality, cost, tell)


def headlines(tell: Tell) -> tuple[ManyData, Floats]:
    """Six classifiers of headlines, cost in ms, and each one's confidence (n, models)."""
    rows = read("measured-cascades/headlines.csv")
    known = json.loads((folder() / "measured-cascades/headlines_models.json").read_text("utf-8"))["models"]
    quality, confidence = (_numbers(rows, [f"{what}__{model}" for model in known]) for what in ("correct", "conf"))
    cost = np.tile([1000.0 * one["median_latency_s"] for one in known.values()], (len(rows), 1))
    return _many("headlines", list(known), [row["headline"] for row in rows], quality, cost, tell), confidence


def digits() -> tuple[tuple[str, ...], Floats, Floats, Floats]:
    """Four classifiers of digits: names, quality and confidence (n, models), prices in ms."""
    rows = read("measured-cascades/digits.csv")
    known = json.loads((folder() / "measured-cascades/digits_models.json").read_text("utf-8"))
    quality, confidence = (_numbers(rows, [f"{what}__{model}" for model in known]) for what in ("correct", "conf"))
    return tuple(known), quality, confidence, np.array([1000.0 * one["median_latency_s"] for one in known.values()])


def with_task(data: ManyData, tasks: Sequence[str]) -> ManyData:
    """Return the rows with one-hot columns for their task."""
    values, at = sorted(set(tasks)), len(data.features)
    onehot = (np.array(tasks)[:, None] == np.array(values)[None, :]).astype(np.float32)
    x = np.concatenate([data.x[:, :at], onehot, data.x[:, at:]], axis=1)
    return replace(data, features=(*data.features, *(f"meta.task={value}" for value in values)), x=x)


def _numbers(rows: Sequence[dict[str, str]], columns: Sequence[str]) -> Floats:
    return np.array([[float(row[column]) for column in columns] for row in rows])


def _many(name: str, models: Sequence[str], texts: list[str], quality: Floats, cost: Floats, tell: Tell) -> ManyData:
    vectors = embed(texts, tell)
    x = np.concatenate([text_features(texts), vectors], axis=1).astype(np.float32)
    return ManyData(tuple(models), TEXT, x, quality, cost, same_prompts(texts), vectors.shape[1], data_hash=name)
