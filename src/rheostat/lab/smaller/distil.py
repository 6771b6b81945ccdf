"""A student that learned from a large model's answers: tf-idf and logistic regression, in one ONNX file."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from rheostat.errors import RheostatError
from rheostat.lab.outcomes import Floats, OutcomesTable
from rheostat.pool.onnx_session import open_session
from rheostat.types import text_of

GRID: Final = (1.0, 4.0, 16.0)
"""Inverse strengths of the ridge; the one that agrees best with the teacher on dev is kept."""
FEWEST: Final = 50
SAME: Final = 0.99
"""The share of dev rows on which the written file must say what the fitted student says."""
_SOFT: Final = 3  # so many of the teacher's labels a row are learned from, each with its probability as weight
_TIMED: Final = 300


class DistilError(RheostatError):
    """No student can be made from this; the message says why and what to do."""

    type = "distil_error"


@dataclass(frozen=True)
class Student:
    """A written student, with what its file says on every row of the table.

    Args:
        scores: rows x labels of the table.
        waits: seconds for single rows, one at a time on one thread.
        soft: whether it learned from the teacher's probabilities (True) or its labels.
        strength: the inverse strength of its ridge.
    """

    path: Path
    labels: tuple[str, ...]
    scores: Floats
    waits: Floats
    soft: bool
    strength: float

    @property
    def size(self) -> int:
        """Bytes of its file."""
        return self.path.stat().st_size


def distil(table: OutcomesTable, teacher: str, path: str | os.PathLike[str], *, words: int = 30_000) -> Student:
    """Fit a student on the teacher's answers to the train rows, choose it on dev by agreement, and write it.

    Right labels are never read: rows without any do as well. Source: Hinton, Vinyals and Dean (2015); here the student
    sees the teacher's probabilities as weights of up to three labels a row.

    Args:
        path: of the ONNX file; its labels go into `<path>.json`, as the `onnx` backend reads them.
        words: at most so many words and word pairs.

    Raises:
        DistilError: no inputs were kept, too few rows, one label only, or texts that the file cannot cut into words.
    """
    texts = _texts(table)
    answered = table.answered(teacher)
    fit, dev = (np.flatnonzero(answered & (table.split == code)) for code in (0, 1))
    if len(fit) < FEWEST or len(dev) < FEWEST:
        raise DistilError(
            f"{teacher} answered {len(fit)} train and {len(dev)} dev rows; at least {FEWEST} of each are needed. "
            "Evaluate it over unlabelled texts too, as the splits train and dev"
        )
    said = table.model(teacher).label
    if len(np.unique(said[fit])) < 2:
        raise DistilError(f"{teacher} gave one label only on train: there is nothing to learn")
    model, soft, strength = _fit(table, teacher, texts, fit, dev, words)
    target = Path(path)
    codes = model[-1].classes_
    labels = tuple(table.labels[code] for code in codes)
    _write(model, labels, target)
    session = open_session(target, 1, "path")
    scores = np.zeros((len(table), len(table.labels)))
    scores[:, codes] = _run(session, texts)
    same = float((scores[dev].argmax(axis=1) == model.predict([texts[row] for row in dev])).mean())
    if same < SAME:
        raise DistilError(
            f"the written file agrees with the student on {same:.1%} of dev only: its way of cutting words fits texts with "
            "spaces between ASCII words; these are others"
        )
    return Student(target, labels, scores, _timed(session, [texts[row] for row in dev[:_TIMED]]), soft, strength)


def _texts(table: OutcomesTable) -> list[str]:
    if table.inputs is None:
        raise DistilError("the table kept no inputs; evaluate again with inputs kept")
    found = [text_of(msgspec.json.decode(each)) if each is not None else "" for each in table.inputs]
    if not any(found):
        raise DistilError("no row has a text; a student learns from texts")
    return [str(text or "") for text in found]


def _fit(
    table: OutcomesTable, teacher: str, texts: Sequence[str], fit: Any, dev: Any, words: int
) -> tuple[Any, bool, float]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    columns = table.model(teacher)
    features = TfidfVectorizer(ngram_range=(1, 2), max_features=words, min_df=2, token_pattern="[a-zA-Z0-9_]+")
    x, fresh = features.fit_transform([texts[row] for row in fit]), features.transform([texts[row] for row in dev])
    best: tuple[float, Any, bool, float] | None = None
    ways = [False] if columns.scores is None or np.isnan(columns.scores[fit]).any() else [False, True]
    for soft in ways:
        rows, codes, weights = _targets(columns, fit, soft)
        for strength in GRID:
            model = LogisticRegression(C=strength, max_iter=300, tol=1e-3).fit(x[rows], codes, weights)
            agreed = float((model.predict(fresh) == columns.label[dev]).mean())
            if best is None or agreed > best[0]:
                best = (agreed, model, soft, strength)
    assert best is not None
    return make_pipeline(features, best[1]), best[2], best[3]


def _targets(columns: Any, fit: Any, soft: bool) -> tuple[Any, Any, Any]:
    """Rows of x, label codes and weights: the teacher's label, or its likeliest labels with their probabilities."""
    if not soft:
        return np.arange(len(fit)), columns.label[fit], None
    scores = columns.scores[fit].astype(np.float64)
    top = np.argsort(-scores, axis=1)[:, : min(_SOFT, scores.shape[1])]
    weights = np.take_along_axis(scores, top, axis=1)
    keep = weights > 0.01
    rows = np.broadcast_to(np.arange(len(fit))[:, None], top.shape)
    return rows[keep], top[keep], weights[keep]


def _write(model: Any, labels: tuple[str, ...], target: Path) -> None:
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    options: Any = {
        TfidfVectorizer: {"locale": "C.UTF-8", "tokenexp": "[a-zA-Z0-9_]+"},
        LogisticRegression: {"zipmap": False},
    }
    content = to_onnx(model, initial_types=[("text", StringTensorType([None, 1]))], options=options).SerializeToString()
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    draft.write_bytes(content)
    target.with_name(target.name + ".json").write_bytes(msgspec.json.encode({"labels": labels}))
    draft.replace(target)


def _run(session: Any, texts: Sequence[str], block: int = 512) -> Floats:
    """Probabilities, rows x the student's labels."""
    parts = [
        session.run(["probabilities"], {"text": np.array(texts[at : at + block], dtype=object).reshape(-1, 1)})[0]
        for at in range(0, len(texts), block)
    ]
    return np.concatenate(parts).astype(np.float64)


def _timed(session: Any, texts: Sequence[str]) -> Floats:
    waits = []
    for text in texts:
        began = time.perf_counter()
        _run(session, [text])
        waits.append(time.perf_counter() - began)
    return np.array(waits)
