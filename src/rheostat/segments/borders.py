"""Where a segment of a text ends. Pure; a text that still grows is looked at again with every piece."""

from __future__ import annotations

import re
from typing import Literal

Segment = Literal["sentence", "line", "block"]
"""`sentence`: up to its full stop or a line's end; `line`; `block`: up to an empty line. Fenced code is one block."""

_ENDS: dict[Segment, re.Pattern[str]] = {
    "sentence": re.compile(r"[.!?…]+[\"'”’)\]*_]*(?=\s)|[。！？]+[\"”’」』）]*|(?<=\S)(?=[ \t]*\n)"),
    "line": re.compile(r"(?<=\S)(?=[ \t]*\n)"),
    "block": re.compile(r"(?<=\S)(?=[ \t]*\n[ \t]*\n)|(?<=```)(?=[ \t]*\n)"),
}
_FENCE = re.compile(r"^[ \t]*```", re.MULTILINE)
_NO_END = re.compile(
    r"(?:^[ \t]*\d+|\b(?:[A-Za-z]|[A-Za-z]\.[A-Za-z]|Dr|Mr|Mrs|Ms|St|vs|etc|No|Fig|approx))\.$", re.MULTILINE
)


def border(text: str, kind: Segment, start: int = 0, *, fenced: bool = False) -> int | None:
    """Return the end of the first segment that ends at `start` or later, but not at 0; None while none does for certain.

    A segment ends before the white space that follows it, so that whoever goes on writes that: models write a word together
    with the space before it.

    Args:
        fenced: whether the text begins inside code between fences.
    """
    for found in _ENDS[kind].finditer(text):
        end = found.end()
        if end < max(start, 1) or (found[0] == "." and _NO_END.search(text, 0, end)):
            continue
        if kind == "line" or not is_fenced(text[:end], fenced=fenced):
            return end
    return None


def is_fenced(text: str, *, fenced: bool = False) -> bool:
    """Return whether the end of a text, which may begin inside code, lies inside code between fences."""
    return fenced != bool(len(_FENCE.findall(text)) % 2)


def segments(text: str, kind: Segment) -> list[str]:
    """Return the segments of a whole text; together they are the text."""
    found, fenced = [], False
    while (end := border(text, kind, fenced=fenced)) is not None:
        found.append(text[:end])
        fenced = is_fenced(text[:end], fenced=fenced)
        text = text[end:]
    return [*found, text] if text else found


class Borders:
    """Watches a text that grows, of which what was seen is out already: a border is only of use behind that."""

    def __init__(self, kind: Segment, *, fenced: bool = False) -> None:
        self._kind = kind
        self._fenced = fenced
        self._seen = 0

    def look(self, text: str) -> int | None:
        """Return the first border at which the text can still end, or None."""
        found = border(text, self._kind, self._seen, fenced=self._fenced)
        self._seen = len(text)
        return found
