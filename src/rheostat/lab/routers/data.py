"""What a binary router learns from: numbers read of each request, and how good either model's answer was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from rheostat.lab.metrics import Floats, floats
from rheostat.lab.outcomes import Ints, OutcomesTable
from rheostat.signals.feature_line import FeatureLine, shown_value

Columns = npt.NDArray[np.float32]
FEWEST = 30
"""Fewer rows than this are refused: nothing can be learned and nothing can be shown."""
TEXT = ("length", "words", "mean_word_length", "mean_sentence_length", "digits_share", "uppercase_share",
        "punctuation_share", "numbers", "questions", "newlines", "rare_words", "mean_frequency", "clauses",
        "code_likeness", "type_token_ratio", "longest_word")  # fmt: skip
"""Text features a router reads unless others are named."""


@dataclass(frozen=True)
class RoutingData:
    """Rows to learn from.

    Args:
        features: names of the first columns of `x`, as `FeatureLine` reads them; those with `=` (one-hot) come last.
        x: float32 (n, features + embedding).
        weak, strong: quality of either model's answer, usually in [0, 1].
        same: rows with the same number hold the same prompt and stay together in every fold.
        embedding: width of the sentence embedding at the end of `x`; 0: none.

    Raises:
        ValueError: shapes differ, a quality is not finite, too few rows, or `strong` is no better than `weak`.
    """

    features: tuple[str, ...]
    x: Columns
    weak: Floats
    strong: Floats
    same: Ints
    embedding: int = 0
    names: tuple[str, str] = ("weak", "strong")
    data_hash: str = ""
    max_tokens: int = 128
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(floats(self.weak, f"quality of {self.names[0]}"))
        if len(floats(self.strong, f"quality of {self.names[1]}")) != n or len(self.same) != n:
            raise ValueError(f"weak has {n} rows, strong {len(self.strong)}, same {len(self.same)}: expected as many")
        if self.x.shape != (n, len(self.features) + self.embedding):
            raise ValueError(f"x has shape {self.x.shape}, expected ({n}, {len(self.features) + self.embedding})")
        onehot = ["=" in name for name in self.features]
        if onehot != sorted(onehot):
            raise ValueError("features of the form FIELD=VALUE must come after all others")

    @property
    def gain(self) -> Floats:
        """Quality of the strong model minus the weak one's, per row: what a router is after."""
        found: Floats = self.strong - self.weak
        return found

    @property
    def plain(self) -> int:
        """How many of the columns are plain numbers (text features, numbers of meta)."""
        return sum("=" not in name for name in self.features)

    def __len__(self) -> int:
        return len(self.weak)

    def take(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> RoutingData:
        """Return some of the rows (a mask or indices)."""
        return replace(
            self, x=self.x[rows], weak=self.weak[rows], strong=self.strong[rows], same=self.same[rows]
        )  # fmt: skip

    def blocks(self) -> dict[str, list[int]]:
        """Return the columns by what they belong to: each plain feature, each field that is one-hot, the embedding."""
        found: dict[str, list[int]] = {}
        for place, name in enumerate(self.features):
            found.setdefault(name.partition("=")[0], []).append(place)
        if self.embedding:
            found["embedding"] = list(range(len(self.features), self.x.shape[1]))
        return found


def must_route(data: RoutingData) -> None:
    """Refuse data on which there is nothing to route.

    Raises:
        ValueError: too few rows, the strong model is no better, or both are equally good on every row.
    """
    weak, strong = data.names
    if len(data) < FEWEST:
        raise ValueError(f"{len(data)} rows are too few to learn a router from; at least {FEWEST} are needed")
    if data.strong.mean() <= data.weak.mean():
        raise ValueError(
            f"{strong} ({data.strong.mean():.2%}) is no better than {weak} ({data.weak.mean():.2%}) on these {len(data)} "
            f"rows: use {weak} alone, or name them the other way round"
        )
    if not np.isfinite(data.x[:, : data.plain]).any() and not data.embedding and data.plain == len(data.features):
        raise ValueError(f"none of the features {', '.join(data.features)} has a value on any row")


def from_table(
    table: OutcomesTable,
    weak: str,
    strong: str,
    *,
    features: Sequence[str] = TEXT,
    group: str | None = None,
    embed: Callable[[str], npt.ArrayLike] | None = None,
    tell: Callable[[int, int], None] = lambda _done, _all: None,
) -> RoutingData:
    """Read the rows of an outcomes table on which both models answered and the right label is known.

    Args:
        features: names as `FeatureLine` reads them.
        group: a field such as `meta.subject`, added one-hot: every value that occurs on two rows or more.
        embed: gives a text's sentence embedding, shape (width,) or (1, width).
        tell: called with (rows done, all rows).

    Raises:
        ValueError: no row is left, the table kept no inputs, or `group` never occurs.
        ConfigError: a feature is unknown.
    """
    if table.inputs is None:
        raise ValueError("the outcomes table keeps no inputs, so nothing can be read of them: evaluate without --no-inputs")
    rows = np.flatnonzero(table.complete((weak, strong)))
    if not len(rows):
        raise ValueError(f"no row has a known right label and an answer of both {weak} and {strong}")
    plain = [name for name in dict.fromkeys(features) if "=" not in name]
    onehot = [name for name in dict.fromkeys(features) if "=" in name]
    if group is not None:
        onehot += [f"{group}={value}" for value in _values(table, rows, group)]
    line = FeatureLine((*plain, *onehot))
    found, texts = [], []
    for done, row in enumerate(rows.tolist()):
        request = table.request(row)
        values = line.read(request)
        if embed is not None:
            values += np.asarray(embed(request.text), dtype=np.float64).reshape(-1).tolist()
        found.append(np.array(values, dtype=np.float32))
        texts.append(request.text or str(table.inputs[row]))
        tell(done + 1, len(rows))
    return RoutingData(
        line.names, np.stack(found), table.correct(weak)[rows].astype(np.float64),
        table.correct(strong)[rows].astype(np.float64), same_prompts(texts), found[0].size - len(line.names),
        (weak, strong), table.data_hash, left_out=table.left_out((weak, strong)),
    )  # fmt: skip


def same_prompts(texts: Sequence[str]) -> Ints:
    """Number the texts; those that differ in case and white space only get the same number."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(" ".join(text.casefold().split()), len(known)) for text in texts], dtype=np.int32)


def folds(same: Ints, count: int, seed: int) -> Ints:
    """Return a fold (0 to count - 1) per row, dealt out by chance; rows of the same number share one.

    Raises:
        ValueError: fewer distinct numbers than folds.
    """
    values, where = np.unique(same, return_inverse=True)
    if len(values) < count:
        raise ValueError(f"{count} folds need as many distinct prompts, there are {len(values)}")
    dealt = np.random.default_rng(seed).permutation(len(values)) % count
    return dealt[where].astype(np.int32)


def _values(table: OutcomesTable, rows: npt.NDArray[np.int64], group: str) -> list[str]:
    place, _, key = group.partition(".")
    if place not in ("meta", "data") or not key:
        raise ValueError(f"the group is a field, meta.FIELD or data.FIELD, got {group!r}")
    counts: dict[str, int] = {}
    for row in rows.tolist():
        request = table.request(row)
        source = request.meta if place == "meta" else request.data
        value = source.get(key) if isinstance(source, Mapping) else None
        if value is not None:
            counts[shown_value(value)] = counts.get(shown_value(value), 0) + 1
    found = sorted(value for value, count in counts.items() if count > 1)
    if not found:
        raise ValueError(f"no value of {group} occurs on two rows or more")
    return found
