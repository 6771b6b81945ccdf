"""A pool in which every model knows one kind of request, so that fixed weights cannot be right for all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from rheostat.lab.outcomes import ModelColumns, ModelInfo, OutcomesTable

LABELS = ("a", "b", "c")
MODELS = ("one", "two", "three")


def specialists(n: int = 1500, *, labels: int = 3, models: int = 3, seed: int = 0, known: float = 0.9) -> OutcomesTable:
    """Model i is mostly right on requests of kind i, less elsewhere, and as sure on both; `meta.kind` tells the kind."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, labels, n)
    kind = rng.integers(0, models, n)
    columns = {}
    for at in range(models):
        mine = kind == at
        right = rng.random(n) < np.where(mine, known, 0.45)
        said = np.where(right, truth, (truth + rng.integers(1, labels, n)) % labels)
        top = 0.7 + rng.uniform(-0.1, 0.1, n)
        scores = np.repeat(((1.0 - top) / (labels - 1))[:, None], labels, axis=1)
        scores[np.arange(n), said] = top
        columns[MODELS[at]] = ModelColumns(
            label=said.astype(np.int32),
            confidence=scores.astype(np.float32).max(axis=1).astype(np.float64),
            latency_s=np.full(n, 0.01 * (at + 1)),
            cost=np.full(n, float(4**at)),
            failure=np.zeros(n, np.int8),
            scores=scores.astype(np.float32),
        )
    meta = [
        json.dumps({"kind": f"k{each}", "n": int(each), "user": f"u{row % 60}"}) for row, each in enumerate(kind.tolist())
    ]
    return OutcomesTable(
        ids=np.array([f"r{row}" for row in range(n)], dtype=object),
        split=np.repeat([0, 1, 2], [n // 2, n // 4, n - n // 2 - n // 4]).astype(np.int8),
        truth=truth.astype(np.int32),
        labels=LABELS[:labels],
        columns=columns,
        model_info={name: ModelInfo(cost=4.0**at) for at, name in enumerate(columns)},
        inputs=np.array([json.dumps(f"row {row}") for row in range(n)], dtype=object),
        meta=np.array(meta, dtype=object),
    )


def live_config(folder: Path, table: OutcomesTable, policy: str, signals: str) -> str:
    """Write a config whose models say what the table holds, by the number in the text; return its path."""
    said = {name: scores.tolist() for name in table.models if (scores := table.model(name).scores) is not None}
    (folder / "told.json").write_text(json.dumps({"labels": table.labels, "said": said}))
    lines = ["import json, pathlib", "told = json.loads((pathlib.Path(__file__).parent / 'told.json').read_text())"]
    for name in table.models:
        lines += [
            f"def {name}(rows):",
            f"    found = [told['said'][{name!r}][int(row.split()[-1])] for row in rows]",
            "    return [dict(zip(told['labels'], [v / sum(each) for v in each])) for each in found]",
        ]
    (folder / "weights_told_models.py").write_text("\n".join(lines) + "\n")
    models = "".join(
        f"  {name}: {{backend: python, callable: 'weights_told_models:{name}', labels: [{', '.join(table.labels)}],"
        " probe: ['row 0']}\n"
        for name in table.models
    )
    path = folder / "rheostat.yaml"
    path.write_text(f"models:\n{models}signals:\n  {signals}\nroutes:\n  default: {{policy: {policy}}}\n")
    return str(path)
