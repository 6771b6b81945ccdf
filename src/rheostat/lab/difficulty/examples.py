"""Texts, what is measured of them, and on which of them the small model erred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import SPLITS, Codes, OutcomesTable
from rheostat.lab.trust import likeness
from rheostat.signals.feature_line import FeatureLine
from rheostat.signals.text import FEATURES
from rheostat.signals.text.bag import bag_names
from rheostat.types import Request, text_of

TEXT: Final = tuple(FEATURES)
"""Every named text feature."""
WORDS: Final = bag_names(512)
"""The words themselves, in 512 buckets."""
SIMPLE: Final = ("length", "words", "mean_word_length", "sentences", "digits_share", "punctuation_share", "whitespace_share")
"""Features that only count characters; what the others add to them is what structure and vocabulary say."""


@dataclass(frozen=True)
class Examples:
    """Rows to learn difficulty from.

    Args:
        texts: n texts.
        features: names of the d columns.
        x: (n, d) numbers.
        error: n values, 1 where the small model was wrong, else 0.
        split: n codes into SPLITS.
        like: n numbers, equal for texts that count as the same question.
    """

    texts: tuple[str, ...]
    features: tuple[str, ...]
    x: npt.NDArray[np.float32]
    error: Floats
    split: Codes
    like: npt.NDArray[np.uint64]
    data_hash: str = ""

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: npt.NDArray[Any]) -> Examples:
        """Return the given rows (indices or a boolean mask)."""
        at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return replace(
            self,
            texts=tuple(self.texts[i] for i in at),
            x=self.x[at],
            error=self.error[at],
            split=self.split[at],
            like=self.like[at],
        )

    def part(self, split: str) -> Examples:
        """Return the rows of one split.

        Raises:
            ValueError: no such split, or it has no row.
        """
        if split not in SPLITS:
            raise ValueError(f"split: expected one of {', '.join(SPLITS)}, got {split!r}")
        found = self.take(self.split == SPLITS.index(split))
        if not len(found):
            raise ValueError(f"no usable row of {split}: the table needs rows of it with text, label and answer")
        return found

    def only(self, names: Sequence[str]) -> Examples:
        """Return the rows with the named columns only."""
        place = {name: column for column, name in enumerate(self.features)}
        return replace(self, features=tuple(names), x=self.x[:, [place[name] for name in names]])


def measured(texts: Sequence[str], features: Sequence[str], tell: Callable[[int, int], None] | None = None) -> Any:
    """Return (n, d) float32: the features of every text, read as the served signal reads them."""
    line = FeatureLine(features)
    found = np.zeros((len(texts), len(line.names)), dtype=np.float32)
    for row, text in enumerate(texts):
        found[row] = line.read(Request(id="", data=text, text=text))
        if tell is not None and row % 2_000 == 0:
            tell(row, len(texts))
    return found


def from_texts(
    texts: Sequence[str],
    error: npt.ArrayLike,
    split: npt.ArrayLike,
    features: Sequence[str] = TEXT,
    data_hash: str = "",
    tell: Callable[[int, int], None] | None = None,
) -> Examples:
    """Measure the texts.

    Args:
        error: n values, 0 or 1.
        split: n codes into SPLITS.

    Raises:
        ConfigError: a feature is unknown.
        ValueError: lengths differ, or an error is neither 0 nor 1.
    """
    wrong, codes = np.asarray(error, dtype=np.float64), np.asarray(split, dtype=np.int8)
    if not len(texts) == len(wrong) == len(codes):
        raise ValueError(f"{len(texts)} texts, {len(wrong)} errors and {len(codes)} splits; one of each a row is needed")
    if not np.isin(wrong, (0.0, 1.0)).all():
        raise ValueError("`error` must be 0 (the small model was right) or 1 (it erred), without NaN")
    keys = ((likeness(text) or text).encode("utf-8", "surrogatepass") for text in texts)
    like = np.fromiter(map(xxhash.xxh3_64_intdigest, keys), dtype=np.uint64, count=len(texts))
    return Examples(tuple(texts), tuple(features), measured(texts, features, tell), wrong, codes, like, data_hash)


def read_examples(
    table: OutcomesTable,
    small: str,
    features: Sequence[str] = (*TEXT, *WORDS),
    tell: Callable[[int, int], None] | None = None,
) -> Examples:
    """Take the rows of an outcomes table on which the right label and the small model's answer are known.

    Raises:
        KeyError: no such model.
        ValueError: the table kept no inputs, or none of them has text.
    """
    if table.inputs is None:
        raise ValueError("the table kept no inputs: evaluate again without leaving them out")
    rows = np.flatnonzero(table.complete((small,)))
    texts = [text_of(msgspec.json.decode(raw)) if (raw := table.inputs[row]) is not None else "" for row in rows]
    if not any(map(str.strip, texts)):
        raise ValueError("no row has text: difficulty is read from text; for tables of features train a router instead")
    return from_texts(texts, ~table.correct(small)[rows], table.split[rows], features, table.data_hash, tell)
