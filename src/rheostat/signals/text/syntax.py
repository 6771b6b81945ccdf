"""How deeply English sentences are nested, without a parser.

A linear student of a dependency parser: `python -m bench.syntax` fits it on sentences of three public sets, holds it against
the parser on two others (correlation .75 and .72; of the number of words alone .73 and .62) and prints these coefficients.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log1p
from typing import Final

from rheostat.signals.text.lexical import LEXICAL
from rheostat.signals.text.surface import SURFACE
from rheostat.signals.text.view import View

INTERCEPT: Final = -5.740
COEFFICIENTS: Final[dict[str, float]] = {
    "words": -1.758,
    "mean_sentence_length": 3.737,
    "sentences": 3.457,
    "clause_length": 0.304,
    "subordinators": 0.271,
    "prepositions": 1.159,
    "conjunctions": -0.250,
    "clauses": -0.039,
    "questions": -0.310,
    "punctuation_share": 2.374,
    "mean_word_length": 1.266,
}
"""What log(1 + feature) counts for."""
_DEEPEST = 40.0
_COMPUTE: Final[dict[str, Callable[[View], float]]] = {**SURFACE, **LEXICAL}


def parts(view: View) -> list[float]:
    """Return log(1 + feature) in the order of COEFFICIENTS."""
    return [log1p(_COMPUTE[name](view)) for name in COEFFICIENTS]


def syntax_depth(view: View) -> float:
    """Return the estimated number of levels of the deepest parse tree, 1 to 40; 0 without words or for mostly Chinese text,
    for which there is no parser to learn from."""
    if not view.words or 2 * view.cjk > view.words:
        return 0.0
    depth = INTERCEPT + sum(a * b for a, b in zip(COEFFICIENTS.values(), parts(view), strict=True))
    return min(max(depth, 1.0), _DEEPEST)
