"""How deeply English sentences are nested, without a parser.

A linear student of a dependency parser: `python -m bench.syntax` fits it on sentences of three public sets, holds it against
the parser on two others (correlation about .7 to .8) and prints these coefficients.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log1p
from typing import Final

from rheostat.signals.text.lexical import LEXICAL
from rheostat.signals.text.surface import SURFACE
from rheostat.signals.text.view import View

INTERCEPT: Final = -6.383
COEFFICIENTS: Final[dict[str, float]] = {
    "words": -2.411,
    "mean_sentence_length": 4.234,
    "sentences": 4.363,
    "clause_length": 0.463,
    "subordinators": 0.272,
    "prepositions": 1.168,
    "conjunctions": -0.210,
    "clauses": 0.093,
    "questions": -0.294,
    "punctuation_share": 2.049,
    "mean_word_length": 1.270,
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
