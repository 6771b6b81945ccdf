"""How usual the words of a text are.

The table holds English words that occur at least once per million words, and Chinese characters, by Zipf value (van Heuven
et al. 2014): log10 of occurrences per thousand million. Chinese is counted by character, so nothing is segmented. The file
comes from wordfreq (Robyn Speer, data CC BY-SA 4.0) and is written by `python -m bench.frequencies`.
"""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path
from typing import Final

from rheostat.signals.text.view import CJK_CHARACTER, View

FILE: Final = "frequency.xz"
UNKNOWN: Final = 2.0
"""The Zipf value given to what the table does not hold: the usual one of words below 3."""
_RARE_CHARACTER: Final = 4.0


@cache
def table() -> dict[str, float]:
    """Return Zipf values by word or character, read once."""
    lines = lzma.decompress(Path(__file__).with_name(FILE).read_bytes()).decode().splitlines()
    found = {}
    for line in lines[1:]:
        value, *words = line.split()
        found.update(dict.fromkeys(words, float(value)))
    return found


def _values(view: View) -> list[float]:
    """Zipf values of the words without digits; of `it's` and the like the part before the apostrophe counts."""
    known = table()
    values = []
    for word in view.tokens:
        value = known.get(word)
        if value is None:
            if any(map(str.isdigit, word)):
                continue
            value = known.get(word.replace("’", "'").partition("'")[0], UNKNOWN)
        values.append(value)
    return values


def mean_frequency(view: View) -> float:
    """Return the mean Zipf value, 2 to 8; 0 without words."""
    values = _values(view)
    return sum(values) / len(values) if values else 0.0


def rare_words(view: View) -> float:
    """Return the share of words below Zipf 3 (once per million) and Chinese characters below 4, 0 to 1."""
    known = table()
    words = [word for word in view.tokens if not any(map(str.isdigit, word))]
    rare = 0
    for word in words:
        if CJK_CHARACTER.match(word):
            rare += known.get(word, 0.0) < _RARE_CHARACTER
        else:
            rare += word not in known and word.replace("’", "'").partition("'")[0] not in known
    return rare / len(words) if words else 0.0
