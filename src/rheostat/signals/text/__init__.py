"""Cheap numbers about a text, English and Chinese alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from rheostat.errors import ConfigError, Problem
from rheostat.signals.text.frequency import mean_frequency, rare_words, table
from rheostat.signals.text.lexical import LEXICAL
from rheostat.signals.text.surface import SURFACE
from rheostat.signals.text.syntax import syntax_depth
from rheostat.signals.text.view import LONGEST, View
from rheostat.types import Request

FEATURES: Final[dict[str, str]] = {
    "length": "characters",
    "words": "words; every Chinese or Japanese character counts as one",
    "mean_word_length": "characters a word; 0 without words",
    "sentences": "sentences, by . ! ? … and their Chinese forms; 0 for blank text",
    "mean_sentence_length": "words a sentence; 0 for blank text",
    "clauses": "commas, semicolons, colons and their Chinese forms",
    "digits_share": "digits among all characters, 0 to 1",
    "uppercase_share": "capitals among all characters, 0 to 1",
    "punctuation_share": "punctuation and symbols among all characters, 0 to 1",
    "whitespace_share": "white space among all characters, 0 to 1",
    "non_ascii_share": "characters outside ASCII among all, 0 to 1",
    "cjk_share": "Chinese and Japanese characters among all, 0 to 1",
    "mixed_script": "0 for one script, up to 1 when half of the words are Chinese or Japanese and half are not",
    "questions": "question marks, Chinese ones too",
    "exclamations": "exclamation marks, Chinese ones too",
    "urls": "web addresses: `://` or a leading `www.`",
    "code_likeness": "0 to 1: brackets, operators and the words of programming languages",
    "repeated_share": "characters in runs of three or more of the same, 0 to 1",
    "type_token_ratio": "different words among all words, 0 to 1; 0 without words",
    "longest_word": "characters of the longest word",
    "newlines": "line ends",
    "mean_frequency": "mean Zipf frequency of words without digits, Chinese by character, 2 to 8; 0 without words",
    "rare_words": "words rarer than one in a million, Chinese characters than one in 100,000, among all, 0 to 1",
    "conjunctions": "words that join equals: and, but, 但是",
    "subordinators": "words that open a dependent clause: because, which, 如果",
    "prepositions": "of, with, between, 关于",
    "negations": "not, n't, never, 不, 没",
    "question_words": "what, why, how, 什么, 吗",
    "numbers": "numbers and signs of formulas a word, 0 to 1",
    "clause_length": "words between two marks of punctuation, Chinese characters as words; 0 for blank text",
    "syntax_depth": "estimated levels of the deepest parse tree, 1 to 40; 0 for mostly Chinese text or no words",
}
"""Every text feature by name, with what it says and its range. All are finite for every string; shares of an empty
text are 0."""


class TextFeatures:
    """Computes the features it was asked for, and nothing else.

    Args:
        names: keys of FEATURES.

    Raises:
        ConfigError: a name is unknown; the nearest one is given.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        unknown = [name for name in self.names if name not in FEATURES]
        if unknown:
            raise ConfigError([Problem("signals", None, unknown_feature(name)) for name in unknown])
        self._each = tuple((name, _COMPUTE[name]) for name in self.names)
        if not {"mean_frequency", "rare_words"}.isdisjoint(self.names):
            table()  # read now, and not while the first request waits

    def score(self, request: Request) -> Mapping[str, float]:
        """Return the features of the request's text."""
        return self.measure(request.text)

    def measure(self, text: str) -> dict[str, float]:
        """Return the features of `text`, in the order asked for."""
        view = View(text)
        return {name: compute(view) for name, compute in self._each}


def unknown_feature(name: str) -> str:
    """Say that there is no such feature and which one may be meant."""
    near = get_close_matches(name, FEATURES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(FEATURES)}"
    return f"no text feature {name!r}; {hint}"


_COMPUTE: Final[dict[str, Callable[[View], float]]] = {
    **SURFACE,
    **LEXICAL,
    "mean_frequency": mean_frequency,
    "rare_words": rare_words,
    "syntax_depth": syntax_depth,
}
__all__ = ["FEATURES", "LONGEST", "TextFeatures", "unknown_feature"]
