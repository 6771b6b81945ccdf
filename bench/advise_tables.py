"""Tables of the routing sets as outcomes tables: what models answered, as the sources recorded it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from bench.labelled import data_folder
from rheostat.chance import chance
from rheostat.lab.outcomes import ModelColumns, ModelInfo, OutcomesTable

ROUTING = {
    "routerarena-sub10": "routerarena-sub10/outcomes.csv",
    "headlines": "measured-cascades/headlines.csv",
    "digits": "measured-cascades/digits.csv",
}
_PAIRS = {"headlines": ("nb_hash256", "hybrid"), "digits": ("logreg_4x4", "svm_rbf_8x8")}
_RIGHT = 0.5
_LABELS = 50


def routing_table(name: str) -> OutcomesTable | None:
    """Return the table, None when its file is not there; half of the rows, by a hash of their ids, are dev."""
    path = data_folder() / "routing" / ROUTING[name]
    if not path.is_file():
        return None
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return _scored(rows) if name == "routerarena-sub10" else _measured(name, rows, path)


def _splits(ids: list[str]) -> np.ndarray:
    return np.array([1 if chance("advise", each) < 0.5 else 2 for each in ids], dtype=np.int8)


def _scored(rows: list[dict[str, str]]) -> OutcomesTable:
    """Scores in [0, 1] from one half on count as right; there are no confidences."""
    names = [key.removeprefix("score__") for key in rows[0] if key.startswith("score__")]
    ids = [row["id"] for row in rows]
    columns = {}
    for name in names:
        right = np.array([float(row[f"score__{name}"]) >= _RIGHT for row in rows])
        cost = np.array([float(row[f"cost__{name}"]) for row in rows])
        columns[name] = _columns(np.where(right, 0, 1), np.full(len(rows), np.nan), cost)
    # Right labels in turn, so that no constant answer is ever good; a wrong answer is the next label.
    truth = np.arange(len(rows)) % _LABELS
    columns = {
        name: _columns(np.where(part.label == 0, truth, (truth + 1) % _LABELS), part.confidence, part.cost)
        for name, part in columns.items()
    }
    return OutcomesTable(
        ids=np.array(ids, dtype=object), split=_splits(ids), truth=truth.astype(np.int32),
        labels=tuple(f"answer {code:02}" for code in range(_LABELS)),
        columns=columns, inputs=np.array([json.dumps(row["query"]) for row in rows], dtype=object),
    )  # fmt: skip


def _measured(name: str, rows: list[dict[str, str]], path: Path) -> OutcomesTable:
    """Labels and confidences of a small and a large classifier; costs are their measured latencies."""
    known = json.loads(path.with_name(f"{path.stem}_models.json").read_text(encoding="utf-8"))
    models = known.get("models", known)
    wanted = [next(each for each in models if each.startswith(start)) for start in _PAIRS[name]]
    labels = tuple(sorted({row[key] for row in rows for key in ("label", *(f"pred__{each}" for each in wanted))}))
    place = {label: code for code, label in enumerate(labels)}
    ids = [row["id"] for row in rows]
    columns = {}
    for each in wanted:
        seconds = float(models[each]["median_latency_s"])
        columns[each] = _columns(
            np.array([place[row[f"pred__{each}"]] for row in rows]),
            np.array([float(row[f"conf__{each}"]) for row in rows]),
            np.full(len(rows), seconds * 1e3),
            seconds,
        )
    texts = [json.dumps(row["headline"]) for row in rows] if "headline" in rows[0] else None
    return OutcomesTable(
        ids=np.array(ids, dtype=object), split=_splits(ids), labels=labels, columns=columns,
        truth=np.array([place[row["label"]] for row in rows], dtype=np.int32),
        model_info={each: ModelInfo(cost=float(columns[each].cost[0]), tier=at) for at, each in enumerate(wanted)},
        inputs=None if texts is None else np.array(texts, dtype=object),
    )  # fmt: skip


def _columns(label: np.ndarray, confidence: np.ndarray, cost: np.ndarray, seconds: float = 0.0) -> ModelColumns:
    count = len(label)
    return ModelColumns(
        label=label.astype(np.int32), confidence=confidence, latency_s=np.full(count, seconds), cost=cost,
        failure=np.zeros(count, dtype=np.int8),
    )  # fmt: skip
