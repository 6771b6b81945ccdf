"""A list of words with a value each, read as a score of the whole text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from rheostat.errors import ConfigError, Problem
from rheostat.types.text import normalise_text

# Words, numbers and runs of Chinese characters; what is left between white space may be an emoticon.
_PIECES = re.compile(r"[\u3400-\u9fff]+|[^\W\u3400-\u9fff]+(?:['’][^\W\u3400-\u9fff]+)*|[^\w\s]+")
_NEGATION = -0.74
_REACH = 3
_ALPHA = 15.0
_ENGLISH = ("not", "no", "never", "none", "nobody", "nothing", "neither", "nor", "cannot", "without", "hardly", "ain't")
_CHINESE = ("不", "没", "没有", "无", "非", "别", "未", "不是", "不太")
_NEGATORS = frozenset((*_ENGLISH, *_CHINESE))


class Lexicon:
    """One-word terms (Chinese: any run of characters) with a valence each; the score of a text lies in (-1, 1).

    A term counts once for every time it stands in the text; one within three words after a negation counts with -0.74
    of its valence; the sum s becomes s / sqrt(s^2 + 15). In runs of Chinese characters the longest term wins, left to
    right. Source: Hutto & Gilbert, VADER (2014), for the two constants and the negation rule.
    """

    def __init__(self, terms: Mapping[str, float]) -> None:
        self._terms = dict(terms)
        self._longest = max((len(term) for term in terms if _is_chinese(term[0])), default=1)

    def score(self, normalised: str) -> float | None:
        """Return the score of a text that went through `normalise_text`, or None when none of its words is listed."""
        total, hits, negated_until = 0.0, 0, -1
        for position, token in enumerate(self._tokens(normalised)):
            valence = self._terms.get(token)
            if valence is not None:
                hits += 1
                total += valence * _NEGATION if position <= negated_until else valence
            if token in _NEGATORS or token.endswith(("n't", "n’t")):
                negated_until = position + _REACH
        return total / math.sqrt(total * total + _ALPHA) if hits else None

    def _tokens(self, text: str) -> list[str]:
        tokens: list[str] = []
        for chunk in text.split():
            if chunk in self._terms:
                tokens.append(chunk)
                continue
            for piece in _PIECES.findall(chunk):
                if _is_chinese(piece[0]):
                    self._cut(piece, tokens)
                else:
                    tokens.append(piece)
        return tokens

    def _cut(self, run: str, tokens: list[str]) -> None:
        start = 0
        while start < len(run):
            for end in range(min(len(run), start + self._longest), start, -1):
                if end == start + 1 or run[start:end] in self._terms or run[start:end] in _NEGATORS:
                    tokens.append(run[start:end])
                    start = end
                    break


def read_lexicon(path: Path) -> Lexicon:
    """Read `term<TAB>valence` lines; further columns, blank lines and lines that start with `#` are passed over.

    Raises:
        ConfigError: the file is missing, a line has another shape (the first ten are named), or it holds no term.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("lexicon", None, f"{path.name} cannot be read: {error}")]) from error
    terms: dict[str, float] = {}
    problems: list[Problem] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or (line.startswith("#") and "\t" not in line):
            continue
        term, _, rest = line.partition("\t")
        try:
            valence = float(rest.partition("\t")[0])
        except ValueError:
            valence = math.nan
        if not math.isfinite(valence) or not normalise_text(term).strip():
            problems.append(Problem("lexicon", number, f"{path.name}: expected term<TAB>number, got {line!r:.60}"))
            continue
        terms[normalise_text(term).strip()] = valence
    if not terms and not problems:
        problems.append(Problem("lexicon", None, f"{path.name} holds no term"))
    if problems:
        raise ConfigError(problems[:10])
    return Lexicon(terms)


def _is_chinese(character: str) -> bool:
    return "\u3400" <= character <= "\u9fff"
