"""What a quality predictor learns from: numbers read of each request, and each model's quality and cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rheostat.lab.metrics import Floats
from rheostat.lab.metrics_many import best_single
from rheostat.lab.outcomes import Ints, OutcomesTable
from rheostat.lab.routers import TEXT, RoutingData, from_table
from rheostat.lab.routers.data import FEWEST, Columns

Rows = npt.NDArray[np.bool_] | npt.NDArray[np.int64]


@dataclass(frozen=True)
class ManyData:
    """Rows to learn from, for two models or more.

    Args:
        models: their names.
        features: names of the first columns of `x`, as `FeatureLine` reads them; those with `=` (one-hot) come last.
        x: float32 (n, features + embedding).
        quality, cost: (n, models); quality usually in [0, 1], cost 0 or more.
        same: rows with the same number hold the same prompt and stay together in every fold.
        embedding: width of the sentence embedding at the end of `x`; 0: none.

    Raises:
        ValueError: shapes differ, a number is not finite, a cost is negative, or there is only one model.
    """

    models: tuple[str, ...]
    features: tuple[str, ...]
    x: Columns
    quality: Floats
    cost: Floats
    same: Ints
    embedding: int = 0
    data_hash: str = ""
    max_tokens: int = 128
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.models) < 2:
            raise ValueError(f"at least two models are needed to choose between, got {len(self.models)}")
        shape = (len(self.x), len(self.models))
        for name, values in (("quality", self.quality), ("cost", self.cost)):
            if values.shape != shape:
                raise ValueError(f"{name} has shape {values.shape}, expected {shape}: a row a request, a column a model")
            if not np.isfinite(values).all():
                at = self.models[int(np.flatnonzero(~np.isfinite(values).all(axis=0))[0])]
                raise ValueError(f"{name} of {at} holds NaN or infinite values; leave those rows out")
        if (self.cost < 0.0).any():
            raise ValueError("a cost is negative")
        _ = self.frame

    @cached_property
    def frame(self) -> RoutingData:
        """The same columns as a pair's rows, for the scaling that both share; its qualities are empty."""
        zero = np.zeros(len(self.x))
        return RoutingData(self.features, self.x, zero, zero, self.same, self.embedding, max_tokens=self.max_tokens)

    @property
    def singles(self) -> list[tuple[float, float]]:
        """(mean cost, mean quality) of every model."""
        return list(zip(self.cost.mean(axis=0).tolist(), self.quality.mean(axis=0).tolist(), strict=True))

    @property
    def best(self) -> int:
        """The best single model: highest mean quality, ties to the cheapest."""
        return best_single(self.singles)

    @property
    def grouped(self) -> bool:
        """True when there are one-hot columns, of a task for instance."""
        return self.frame.plain < len(self.features)

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Rows) -> ManyData:
        """Return some of the rows (a mask or indices)."""
        return replace(
            self, x=self.x[rows], quality=self.quality[rows], cost=self.cost[rows], same=self.same[rows]
        )  # fmt: skip


def must_choose(data: ManyData) -> None:
    """Refuse rows that are too few to learn from.

    Raises:
        ValueError: fewer than 30 rows.
    """
    if len(data) < FEWEST:
        raise ValueError(f"{len(data)} rows are too few to learn from; at least {FEWEST} are needed")


def many_from_table(
    table: OutcomesTable,
    models: Sequence[str],
    *,
    features: Sequence[str] = TEXT,
    group: str | None = None,
    embed: Callable[[str], npt.ArrayLike] | None = None,
    tell: Callable[[int, int], None] = lambda _done, _all: None,
) -> ManyData:
    """Read the rows of an outcomes table on which every model answered and the right label is known.

    Quality is 1 where a model's label is right, else 0; cost is the row's own where one was recorded, else the model's.

    Args:
        models: which of the table's models.
        features, group, embed, tell: as for binary routers (`rheostat.lab.routers.from_table`).

    Raises:
        ValueError: no row is left, fewer than two models, the table kept no inputs, or `group` never occurs.
        ConfigError: a feature is unknown.
    """
    names = tuple(dict.fromkeys(models))
    if len(names) < 2:
        raise ValueError(f"at least two models are needed to choose between, got {len(names)}")
    part = table.subset(np.flatnonzero(table.complete(names)))
    pair = from_table(part, names[0], names[1], features=features, group=group, embed=embed, tell=tell)
    quality = np.stack([part.correct(name) for name in names], axis=1).astype(np.float64)
    cost = np.stack([_cost(part, name) for name in names], axis=1)
    return ManyData(
        names, pair.features, pair.x, quality, cost, pair.same, pair.embedding, table.data_hash, pair.max_tokens,
        table.left_out(names),
    )  # fmt: skip


def _cost(table: OutcomesTable, name: str) -> Floats:
    found = table.model(name).cost
    return np.where(np.isfinite(found), found, table.model_info[name].cost)
