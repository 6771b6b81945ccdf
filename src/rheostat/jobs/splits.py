"""Train, dev and test: by what the data says, or by the text itself."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from rheostat.chance import chance
from rheostat.lab.trust import likeness
from rheostat.types import text_of

SHARES: Final = (("train", 0.7), ("dev", 0.1), ("test", 0.2))
"""What the automatic split aims at; the last takes the rest."""
_WORDS: Final = {
    "train": "train", "training": "train", "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev",
    "development": "dev", "test": "test", "testing": "test", "holdout": "test",
}  # fmt: skip


def split_of(data: Any, seed: int = 0) -> str:
    """Return train, dev or test (70, 10 and 20 % of distinct inputs) for a text or a row of features.

    It depends on the input and the seed alone: texts that count as the same question (`lab.trust.LIKENESS`: letter case,
    width, punctuation and white space aside) always fall together, and adding or removing rows moves no other row. A
    training script that keeps to `split_of(text) == "train"` has not seen what `rheostat evaluate` chooses and reports on.
    """
    text = text_of(data)
    key = likeness(text) or text or _canonical(data)
    point = chance(f"split/{seed}", key)
    edge = 0.0
    for name, share in SHARES[:-1]:
        edge += share
        if point < edge:
            return name
    return SHARES[-1][0]


def split_word(word: str) -> str | None:
    """Return the split that a word means (`validation`: dev), or None."""
    return _WORDS.get(word.strip().lower())


def _canonical(data: Any) -> str:
    return msgspec.json.encode(data, order="sorted", enc_hook=str).decode()
