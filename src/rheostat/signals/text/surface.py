"""Features of the surface: lengths, signs and shares of characters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from rheostat.signals.text.view import View

RUNS = re.compile(r"(\S)\1{2,}")
CLAUSE_MARKS = ",;:，；：、"
CODE_WORDS = (
    *("```", "def ", "return ", "import ", "function", "class ", "const ", "void ", "SELECT ", "#include"),
    *("=>", "==", ");", "</", "();", "!=", "::"),
)


def _mean_word_length(view: View) -> float:
    return (len(b"".join(view.spelt)) + view.cjk) / view.words if view.words else 0.0


def _mean_sentence_length(view: View) -> float:
    return view.words / view.sentences if view.sentences else 0.0


def _non_ascii_share(view: View) -> float:
    if view.text.isascii():
        return 0.0
    return view.share(view.read - len(view.text.encode("ascii", "ignore")))


def _mixed_script(view: View) -> float:
    share = view.cjk / view.words if view.words else 0.0
    return 2.0 * min(share, 1.0 - share)


def _urls(view: View) -> float:
    text = view.text.lower()
    return float(text.count("://") + text.count("www.") - text.count("//www."))


def _code_likeness(view: View) -> float:
    words = sum(map(view.text.__contains__, CODE_WORDS))
    return min(1.0, 4.0 * view.share(view.classes.count(b"K")) + 0.15 * words)


def _repeated_share(view: View) -> float:
    return view.share(sum(match.end() - match.start() for match in RUNS.finditer(view.text)))


def _type_token_ratio(view: View) -> float:
    words = view.tokens
    return len(set(words)) / len(words) if words else 0.0


def _longest_word(view: View) -> float:
    return float(max(map(len, view.spelt), default=min(view.cjk, 1)))


SURFACE: Final[dict[str, Callable[[View], float]]] = {
    "length": lambda view: float(view.length),
    "words": lambda view: float(view.words),
    "mean_word_length": _mean_word_length,
    "sentences": lambda view: float(view.sentences),
    "mean_sentence_length": _mean_sentence_length,
    "clauses": lambda view: float(sum(map(view.text.count, CLAUSE_MARKS))),
    "digits_share": lambda view: view.share(view.classes.count(b"D")),
    "uppercase_share": lambda view: view.share(view.classes.count(b"U")),
    "punctuation_share": lambda view: view.share(view.signs()),
    "whitespace_share": lambda view: view.share(view.classes.count(b"S")),
    "non_ascii_share": _non_ascii_share,
    "cjk_share": lambda view: view.share(view.cjk),
    "mixed_script": _mixed_script,
    "questions": lambda view: float(view.text.count("?") + view.text.count("？")),
    "exclamations": lambda view: float(view.text.count("!") + view.text.count("！")),
    "urls": _urls,
    "code_likeness": _code_likeness,
    "repeated_share": _repeated_share,
    "type_token_ratio": _type_token_ratio,
    "longest_word": _longest_word,
    "newlines": lambda view: float(view.text.count("\n")),
}
