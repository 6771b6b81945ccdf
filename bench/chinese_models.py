"""The two models for Chinese text, which is not segmented: both read characters.

The large one is no transformer. A 4-bit multilingual e5 reaches no more than the small one on cold_zh_offensive and takes
20 to 30 ms a text; naive-Bayes weighted n-grams (Wang and Manning, "Baselines and Bigrams", ACL 2012) of up to five
characters are the stronger model that a CPU trains in a minute.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.fits import Member, fit_logistic
from bench.labelled import SPLITS, Rows

_SMALL_GRID = (1.0, 4.0)
_LARGE_GRID = (0.03, 0.1, 0.3)
_TIMED = 64
_SMALL_COST, _LARGE_COST = 1.0, 4.0  # about the ratio of their CPU time a text
_SMALL_FEATURES = 5_000


def characters(rows: Mapping[str, Rows], truth: Mapping[str, Any]) -> Member:
    """Fit logistic regression on tf-idf of the 5,000 most frequent characters and pairs of them."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    features = TfidfVectorizer(
        analyzer="char", ngram_range=(1, 2), max_features=_SMALL_FEATURES, sublinear_tf=True, dtype=np.float32
    ).fit(rows["train"].inputs)
    x = {split: features.transform(rows[split].inputs) for split in SPLITS}
    model, card = fit_logistic(x, truth, _SMALL_GRID, tolerance=1e-4)
    seconds = _timed(rows, lambda some: model.predict_proba(features.transform(some)))
    return Member("small", _SMALL_COST, seconds, {split: _double(model.predict_proba(x[split])) for split in SPLITS}, card)


def bayes_weighted(rows: Mapping[str, Rows], truth: Mapping[str, Any]) -> Member:
    """Fit logistic regression on which runs of 1 to 5 characters occur, each weighted by the log ratio of its share in
    the two classes."""
    from scipy import sparse
    from sklearn.feature_extraction.text import CountVectorizer

    features = CountVectorizer(analyzer="char", ngram_range=(1, 5), min_df=3, binary=True, dtype=np.float32)
    counts = {"train": features.fit_transform(rows["train"].inputs)}
    counts |= {split: features.transform(rows[split].inputs) for split in SPLITS if split != "train"}
    second = np.asarray(truth["train"]) == 1
    shares = [1.0 + np.asarray(counts["train"][mask].sum(axis=0), dtype=np.float64).ravel() for mask in (second, ~second)]
    ratio = sparse.diags(np.log(shares[0] / shares[0].sum()) - np.log(shares[1] / shares[1].sum()))
    x = {split: counts[split] @ ratio for split in SPLITS}
    model, card = fit_logistic(x, truth, _LARGE_GRID, tolerance=1e-3)
    seconds = _timed(rows, lambda some: model.predict_proba(features.transform(some) @ ratio))
    return Member("large", _LARGE_COST, seconds, {split: _double(model.predict_proba(x[split])) for split in SPLITS}, card)


def _timed(rows: Mapping[str, Rows], predict: Any) -> float:
    some = rows["dev"].inputs[:_TIMED]
    began = time.perf_counter()
    predict(some)
    return (time.perf_counter() - began) / len(some)


def _double(chances: Any) -> Any:
    return np.asarray(chances, dtype=np.float64)
