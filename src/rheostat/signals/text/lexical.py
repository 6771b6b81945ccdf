"""Features of function words, English and Chinese: counts of words that join, ask, deny or order clauses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from rheostat.signals.text.view import View

_CONJUNCTIONS = frozenset(["and", "or", "but", "nor", "yet", "so", "plus"])
_SUBORDINATORS = frozenset(
    [
        "because",
        "although",
        "though",
        "if",
        "unless",
        "until",
        "while",
        "when",
        "whenever",
        "where",
        "whereas",
        "since",
        "after",
        "before",
        "that",
        "which",
        "who",
        "whom",
        "whose",
        "whether",
        "once",
        "as",
        "than",
    ]
)
_NEGATIONS = frozenset(["not", "no", "never", "none", "nothing", "nobody", "nowhere", "neither", "nor", "cannot", "without"])
_QUESTION_WORDS = frozenset(["what", "who", "whom", "whose", "which", "when", "where", "why", "how"])
_PREPOSITIONS = frozenset(
    [
        "of",
        "in",
        "to",
        "for",
        "with",
        "on",
        "at",
        "from",
        "by",
        "about",
        "into",
        "over",
        "between",
        "through",
        "under",
        "against",
        "during",
        "within",
        "upon",
        "toward",
        "towards",
    ]
)
_ZH_CONJUNCTIONS = re.compile("和(?![谐平气])|(?<!参)与|或者|还是|但是|可是|不过|而且|并且|以及|然后|同时")
_ZH_SUBORDINATORS = re.compile(
    "因为|由于|虽然|尽管|如果|要是|假如|只要|只有|除非|所以|因此|以便|即使|无论|不管|既然|当.{1,12}时"
)
_ZH_NEGATIONS = re.compile("不|没|无|未|非(?![常洲])|(?<![特区性分级类个])别(?![人的处墅])")
_ZH_QUESTIONS = re.compile("什么|为何|怎么|怎样|如何|哪(?!怕)|谁|几(?!乎)|多少|吗|呢|是否")
_NUMBERS = re.compile(r"\d+(?:[.,:/]\d+)*%?|[=+×÷√∑∫≤≥≠±^]|\\[a-z]+")
_PARTS = re.compile(r"[.!?,;:，；：、。！？…\n]+")


def _counted(words: frozenset[str], chinese: re.Pattern[str]) -> Callable[[View], float]:
    def count(view: View) -> float:
        found = sum(map(words.__contains__, view.tokens))
        return float(found + (len(chinese.findall(view.text)) if view.cjk else 0))

    return count


def _negations(view: View) -> float:
    found = sum(word in _NEGATIONS or word.endswith(("n't", "n’t")) for word in view.tokens)
    return float(found + (len(_ZH_NEGATIONS.findall(view.text)) if view.cjk else 0))


def _numbers(view: View) -> float:
    return min(1.0, len(_NUMBERS.findall(view.text)) / view.words) if view.words else 0.0


def _clause_length(view: View) -> float:
    parts = sum(map(bool, map(str.strip, _PARTS.split(view.text))))
    return view.words / parts if parts else 0.0


LEXICAL: Final[dict[str, Callable[[View], float]]] = {
    "conjunctions": _counted(_CONJUNCTIONS, _ZH_CONJUNCTIONS),
    "subordinators": _counted(_SUBORDINATORS, _ZH_SUBORDINATORS),
    "prepositions": _counted(_PREPOSITIONS, re.compile("在|从|对于|关于|通过|根据|按照|为了")),
    "negations": _negations,
    "question_words": _counted(_QUESTION_WORDS, _ZH_QUESTIONS),
    "numbers": _numbers,
    "clause_length": _clause_length,
}
