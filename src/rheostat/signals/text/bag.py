"""Which words stand in a text, as counts in a fixed number of buckets: what a net that was trained on one kind of request
knows about its words.

Feature hashing (Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", ICML 2009) without signs. Chinese
is counted by character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import xxhash

from rheostat.signals.text.view import View

_NAME: Final = re.compile(r"bag([1-9]\d{0,3})\.(\d{1,4})")


def bag_names(size: int) -> tuple[str, ...]:
    """Return the names of all buckets, `bagSIZE.0` first; size from 1 to 9,999."""
    return tuple(f"bag{size}.{bucket}" for bucket in range(size))


def is_bag(name: str) -> bool:
    """True for `bagSIZE.BUCKET` with a bucket below the size."""
    match = _NAME.fullmatch(name)
    return match is not None and int(match[2]) < int(match[1]) and match[2] == str(int(match[2]))


class WordBag:
    """Counts words by bucket.

    Args:
        names: names for which `is_bag` holds.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._empty = dict.fromkeys(self.names, 0.0)
        self._sizes = sorted({int(name[3:].partition(".")[0]) for name in self.names})

    def measure(self, text: str) -> dict[str, float]:
        """Return the number of words in each bucket, in the order asked for; only the beginning of a long text is read."""
        found = self._empty.copy()
        if not found:
            return found
        for word in View(text).tokens:
            digest = xxhash.xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))
            for size in self._sizes:
                name = f"bag{size}.{digest % size}"
                if name in found:
                    found[name] += 1.0
        return found
