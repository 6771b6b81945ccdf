"""What a segment begins with, and which beginnings say that a smaller model can write the rest of it.

Source of the idea: RelayGen (arXiv 2602.06454): words that open a passage tell how hard its tokens will be, and that can be
learned offline from the margins between the likeliest tokens, without training a model.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import msgspec
from msgspec import Struct

from rheostat.segments.borders import Borders, Segment, border, is_fenced

_CODE, _HEADING, _ITEM, _NUMBER = "<code>", "<heading>", "<item>", "<number>"
_MARK = re.compile(r"(```)|(#{1,6})(?=\s)|([-*+•])(?=\s)|(\d+[.)])(?=\s)")
_WORD = re.compile(r"[*_\"'“(]{0,3}([^\W\d_]+(?:['’-][^\W\d_]+)*)(?=[^\w'’-])")


class Cue(Struct, frozen=True, forbid_unknown_fields=True):
    """One beginning as it was measured: how often it was seen, how far ahead the likeliest token was on average when the
    small model went on from it (`margin`) and in the strong model's own words (`own_margin`), each in [0, 1]; `held` is the
    former on texts that were not used to choose it (None: it was not seen there)."""

    cue: str
    count: int
    margin: float
    own_margin: float
    chosen: bool
    held: float | None = None


class Cues(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `rheostat relay calibrate` writes: for which pair of models and kind of segment the cues were learned, and the
    share of the segments that the chosen ones begin."""

    strong: str
    strong_version: str
    small: str
    small_version: str
    at: Segment
    share: float
    cues: tuple[Cue, ...]

    @property
    def chosen(self) -> frozenset[str]:
        """The cues after which the small model writes."""
        return frozenset(cue.cue for cue in self.cues if cue.chosen)


def load_cues(path: Path) -> Cues:
    """Read a file of cues.

    Raises:
        ValueError: it cannot be read, or is none.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Cues)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"it holds no cues: {error}") from None


def save_cues(cues: Cues, path: Path) -> None:
    """Write a file of cues."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(cues), indent=1) + b"\n")


def cue_of(segment: str) -> tuple[str, int] | None:
    """Return what a segment begins with, and how long that is; None while that is not certain, or it begins with nothing
    that says anything.

    A mark of a list, a heading or code stands for all of its kind, a word for itself, in small letters.
    """
    start = len(segment) - len(segment.lstrip())
    if mark := _MARK.match(segment, start):
        return next(
            name for name, there in zip((_CODE, _HEADING, _ITEM, _NUMBER), mark.groups(), strict=True) if there
        ), mark.end()
    if word := _WORD.match(segment, start):
        return word[1].lower(), word.end()
    return None


class CueWatch:
    """Watches what a model writes for a segment that begins with one of the `chosen` cues.

    Args:
        at: what a segment is.
        begins: whether the text begins with a segment of its own.
        fenced: whether the text begins inside code between fences.
    """

    def __init__(self, chosen: Collection[str], at: Segment, *, begins: bool, fenced: bool = False) -> None:
        self.found = ""
        self._chosen = chosen
        self._at: Segment = at
        self._start: int | None = 0 if begins else None
        self._done = 0
        self._seen = 0
        self._fenced = fenced

    def look(self, text: str) -> int | None:
        """Return where the text ends behind a cue, or None; `found` is then the cue."""
        seen, self._seen = self._seen, len(text)
        while True:
            if self._start is not None and (cue := cue_of(text[self._start :])) is not None:
                name, length = cue
                end = self._start + length
                self._start = None
                if name in self._chosen and end >= seen:
                    self.found = name
                    return end
            following = border(text[self._done :], self._at, fenced=self._fenced)
            if following is None:
                return None
            self._fenced = is_fenced(text[self._done : self._done + following], fenced=self._fenced)
            self._done += following
            self._start = self._done


__all__ = ["Borders", "Cue", "CueWatch", "Cues", "cue_of", "load_cues", "save_cues"]
