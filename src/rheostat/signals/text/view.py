"""One text, and what several features share of it."""

from __future__ import annotations

import re
import unicodedata
from functools import cached_property
from typing import Final

LONGEST: Final = 20_000
"""Characters of a text that are read; `length` alone counts them all."""


class _Classes(dict[int, str]):
    """The class of every character: U capital, L other letter, D digit, C Chinese or Japanese, S space, A apostrophe,
    K sign of program code, P any other sign."""

    def __missing__(self, code: int) -> str:
        letter = _classify(chr(code))
        if code < 0x10000:  # beyond it the table could grow without end
            self[code] = letter
        return letter


_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
CJK_CHARACTER = re.compile(f"[{_CJK}]")
_CJK_RUN = re.compile(f"[{_CJK}]+")
_CODE_SIGNS = "{}()[];=<>_\\|&`$#*/"


def _classify(character: str) -> str:
    if CJK_CHARACTER.match(character):
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
WORDS = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+(?:['’][^\W_{_CJK}]+)*")


class View:
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

    @cached_property
    def tokens(self) -> list[str]:
        """The words in lower case, every Chinese or Japanese character being one."""
        return WORDS.findall(self.text.lower())

    def share(self, count: int) -> float:
        return count / self.read if self.read else 0.0

    def signs(self) -> int:
        classes = self.classes
        return classes.count(b"P") + classes.count(b"K") + classes.count(b"A")
