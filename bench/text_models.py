"""The two models for text."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from bench.embeddings import compute, embed
from bench.fits import MOST_STEPS, Member, fit_logistic
from bench.labelled import SPLITS, Rows

PLANTS: Final[Mapping[str, tuple[float, int]]] = {"tolerance": (3e-3, MOST_STEPS), "steps": (1e-5, 5)}
"""Ways to leave the large model under-trained: the solver's tolerance and steps, on vectors of length 1.

With the tolerance its gradients are small enough at the very start, so the solver reports success.
"""
_SMALL_GRID = (2.0, 8.0)
_LARGE_GRID = (0.003, 0.01, 0.03)
_TIMED = 64
_SMALL_COST, _LARGE_COST = 1.0, 100.0  # about the ratio of their CPU time a text


def tfidf(rows: Mapping[str, Rows], truth: Mapping[str, Any]) -> Member:
    """Fit logistic regression on tf-idf of words, word pairs and characters."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32)
    characters = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(2, 4), min_df=3, max_features=20_000, sublinear_tf=True, dtype=np.float32
    )
    features = make_union(words, characters).fit(rows["train"].inputs)
    x = {split: features.transform(rows[split].inputs) for split in SPLITS}
    model, card = fit_logistic(x, truth, _SMALL_GRID, tolerance=1e-4)
    some = rows["dev"].inputs[:_TIMED]
    began = time.perf_counter()
    model.predict_proba(features.transform(some))
    seconds = (time.perf_counter() - began) / len(some)
    scores = {split: np.asarray(model.predict_proba(x[split]), dtype=np.float64) for split in SPLITS}
    return Member("small", _SMALL_COST, seconds, scores, card)


def frozen(rows: Mapping[str, Rows], truth: Mapping[str, Any], tell: Callable[[str], None], planted: str = "") -> Member:
    """Fit a logistic head on the embeddings of a frozen encoder, which are scaled first unless a fault is planted."""
    x: dict[str, Any] = {split: embed(rows[split].inputs, tell).astype(np.float64) for split in SPLITS}
    if planted:
        tolerance, steps = PLANTS[planted]
        model, card = fit_logistic(x, truth, (10.0,), tolerance, steps)
    else:
        mean, spread = x["train"].mean(axis=0), x["train"].std(axis=0)
        x = {split: (x[split] - mean) / spread for split in SPLITS}
        model, card = fit_logistic(x, truth, _LARGE_GRID)
    some = rows["dev"].inputs[:_TIMED]
    began = time.perf_counter()
    model.predict_proba(compute(some, tell))
    seconds = (time.perf_counter() - began) / len(some)
    return Member("large", _LARGE_COST, seconds, {split: model.predict_proba(x[split]) for split in SPLITS}, card)
