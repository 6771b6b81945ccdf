"""Cheap numbers about a text, English and Chinese alike."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Final

from rheostat.errors import ConfigError, Problem
from rheostat.types import Request

LONGEST: Final = 20_000
"""Characters of a text that are read; `length` alone counts them all."""

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

    def score(self, request: Request) -> Mapping[str, float]:
        """Return the features of the request's text."""
        return self.measure(request.text)

    def measure(self, text: str) -> dict[str, float]:
        """Return the features of `text`, in the order asked for."""
        view = _View(text)
        return {name: compute(view) for name, compute in self._each}


def unknown_feature(name: str) -> str:
    """Say that there is no such feature and which one may be meant."""
    near = get_close_matches(name, FEATURES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(FEATURES)}"
    return f"no text feature {name!r}; {hint}"


class _Classes(dict[int, str]):
    """The class of every character: U capital, L other letter, D digit, C Chinese or Japanese, S space, A apostrophe,
    K sign of program code, P any other sign."""

    def __missing__(self, code: int) -> str:
        letter = _classify(chr(code))
        if code < 0x10000:  # beyond it the table could grow without end
            self[code] = letter
        return letter


_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_CJK_CHARACTER = re.compile(f"[{_CJK}]")
_CJK_RUN = re.compile(f"[{_CJK}]+")
_CODE_SIGNS = "{}()[];=<>_\\|&`$#*/"


def _classify(character: str) -> str:
    if _CJK_CHARACTER.match(character):
        return "C"
    if character.isspace():
        return "S"
    if character in "'’":
        return "A"
    if character in _CODE_SIGNS:
        return "K"
    kind = unicodedata.category(character)
    if kind in ("Lu", "Lt"):
        return "U"
    if kind[0] in "LM":
        return "L"
    return "D" if kind == "Nd" else "P"


# Bytes are translated several times faster than text, and most text is ASCII.
_ASCII_CLASSES = "".join(_classify(chr(code)) for code in range(128)).encode() * 2
_CLASSES = _Classes()
_WORD_CHARACTERS = bytes(code if chr(code) in "ULD" else 32 for code in range(256))
_ENDS = re.compile(r"""[.!?](?=["')\]]?(?:\s|\Z))""")
_WIDE_ENDS = re.compile(r"[。！？…](?![。！？…])")
_WORDS = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+(?:['’][^\W_{_CJK}]+)*")
_RUNS = re.compile(r"(\S)\1{2,}")
_CLAUSE_MARKS = ",;:，；：、"
_CODE_WORDS = (
    *("```", "def ", "return ", "import ", "function", "class ", "const ", "void ", "SELECT ", "#include"),
    *("=>", "==", ");", "</", "();", "!=", "::"),
)


class _View:
    """One text, and what several features share of it, each worked out at most once."""

    def __init__(self, text: str) -> None:
        self.length = len(text)
        self.text = text if self.length <= LONGEST else text[:LONGEST]
        self.read = len(self.text)
        self.ascii = self.text.isascii()

    @cached_property
    def cjk(self) -> int:
        return 0 if self.ascii else sum(map(len, _CJK_RUN.findall(self.text)))

    @cached_property
    def classes(self) -> bytes:
        """The classes of all characters, a run of Chinese or Japanese ones being one C."""
        if self.ascii:
            return self.text.encode("ascii").translate(_ASCII_CLASSES)
        return _CJK_RUN.sub("一", self.text).translate(_CLASSES).encode("ascii")

    @cached_property
    def spelt(self) -> list[bytes]:
        """The words that have letters, as classes: enough to count and measure them."""
        return self.classes.translate(_WORD_CHARACTERS, b"A").split()

    @cached_property
    def words(self) -> int:
        return len(self.spelt) + self.cjk

    @cached_property
    def sentences(self) -> int:
        stripped = self.text.rstrip()
        if not stripped:
            return 0
        ends = len(_ENDS.findall(stripped))
        if not self.ascii:
            ends += len(_WIDE_ENDS.findall(stripped))
        return ends if ends and stripped[-1] in ".!?。！？…\"')]" else ends + 1

    def share(self, count: int) -> float:
        return count / self.read if self.read else 0.0

    def signs(self) -> int:
        classes = self.classes
        return classes.count(b"P") + classes.count(b"K") + classes.count(b"A")


def _mean_word_length(view: _View) -> float:
    return (len(b"".join(view.spelt)) + view.cjk) / view.words if view.words else 0.0


def _mean_sentence_length(view: _View) -> float:
    return view.words / view.sentences if view.sentences else 0.0


def _non_ascii_share(view: _View) -> float:
    if view.text.isascii():
        return 0.0
    return view.share(view.read - len(view.text.encode("ascii", "ignore")))


def _mixed_script(view: _View) -> float:
    share = view.cjk / view.words if view.words else 0.0
    return 2.0 * min(share, 1.0 - share)


def _urls(view: _View) -> float:
    text = view.text.lower()
    return float(text.count("://") + text.count("www.") - text.count("//www."))


def _code_likeness(view: _View) -> float:
    words = sum(map(view.text.__contains__, _CODE_WORDS))
    return min(1.0, 4.0 * view.share(view.classes.count(b"K")) + 0.15 * words)


def _repeated_share(view: _View) -> float:
    return view.share(sum(match.end() - match.start() for match in _RUNS.finditer(view.text)))


def _type_token_ratio(view: _View) -> float:
    words = _WORDS.findall(view.text.lower())
    return len(set(words)) / len(words) if words else 0.0


def _longest_word(view: _View) -> float:
    return float(max(map(len, view.spelt), default=min(view.cjk, 1)))


_COMPUTE: Final[dict[str, Callable[[_View], float]]] = {
    "length": lambda view: float(view.length),
    "words": lambda view: float(view.words),
    "mean_word_length": _mean_word_length,
    "sentences": lambda view: float(view.sentences),
    "mean_sentence_length": _mean_sentence_length,
    "clauses": lambda view: float(sum(map(view.text.count, _CLAUSE_MARKS))),
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
