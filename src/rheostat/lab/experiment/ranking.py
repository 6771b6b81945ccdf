"""Metrics of rankings: AUC, and the share of hits among a user's best rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rheostat.lab.experiment.served import Served, Traffic
from rheostat.lab.experiment.unit import Rows, Units
from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import OutcomesTable


class Auc(Struct, frozen=True):
    """The chance that a row whose right label is `positive` is scored above one whose is not; ties count half.

    The score of a row is the probability that the served mix gave to `positive`. With two labels either may be it. The
    units are DeLong's placement values, scaled so that their mean is the AUC: resampling them gives the linearised
    bootstrap of the AUC. Source: DeLong, DeLong and Clarke-Pearson (1988); Obuchowski (1997) for clusters.
    """

    positive: str = ""

    name = "AUC"
    lower_is_better = False
    percent = False

    def raw(self, served: Served) -> Floats:
        code = positive_code(self.positive, served.table, "AUC")
        return served.probability(np.full(len(served.table), code, np.int32))

    def units(self, raw: Floats, rows: Rows, traffic: Traffic) -> Units:
        table = traffic.table
        liked = table.truth[rows] == positive_code(self.positive, table, "AUC")
        score = raw[rows]
        count, others = int(liked.sum()), int((~liked).sum())
        if not count or not others:
            kind = table.labels[int(table.truth[rows][0])] if len(rows) else "nothing"
            raise ValueError(f"AUC compares rows of two kinds, and the right label of all {len(rows)} rows is {kind!r}")
        high, low = np.sort(score[liked]), np.sort(score[~liked])
        below = _twice_below(low, score[liked])
        above = 2 * count - _twice_below(high, score[~liked])
        found = below.mean() / (2 * others)
        values = np.empty(len(rows))
        values[liked] = found + len(rows) / count * (below / (2 * others) - found)
        values[~liked] = found + len(rows) / others * (above / (2 * count) - found)
        return Units(values, rows)


def _twice_below(ordered: Floats, score: Floats) -> npt.NDArray[np.int64]:
    """Twice the number of ordered scores below each score, equal ones counting half."""
    found: npt.NDArray[np.int64] = np.searchsorted(ordered, score, "left") + np.searchsorted(ordered, score, "right")
    return found


class TopK(Struct, frozen=True):
    """The share of `positive` rows among each user's `k` best-scored rows, averaged over users: CTR@k, like-rate at k.

    Rows are ranked within the meta field `by` by the probability that the served mix gave to `positive`; rows of equal
    score share the places that are left evenly, so that a constant score is exactly random. Users with fewer than `k` rows
    are left out.
    """

    k: int
    by: str
    positive: str

    lower_is_better = False
    percent = True

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"`k` must be 1 or more, got {self.k}")
        if not self.by:
            raise ValueError(f"top-{self.k} ranks rows within a user: name the meta field that says whose they are")

    @property
    def name(self) -> str:
        return f"{self.positive} among top {self.k} per {self.by.removeprefix('meta.')}"

    def raw(self, served: Served) -> Floats:
        return served.probability(
            np.full(len(served.table), positive_code(self.positive, served.table, self.name), np.int32)
        )

    def units(self, raw: Floats, rows: Rows, traffic: Traffic) -> Units:
        table = traffic.table
        user, score = traffic.codes(self.by)[rows], raw[rows]
        liked = (table.truth[rows] == positive_code(self.positive, table, self.name)).astype(np.float64)
        order = np.lexsort((-score, user))
        user, score, liked = user[order], score[order], liked[order]
        starts = np.concatenate([[True], user[1:] != user[:-1]])
        block = np.concatenate([[True], starts[1:] | (score[1:] != score[:-1])])
        first_of_user = np.maximum.accumulate(np.where(starts, np.arange(len(rows)), 0))
        first_of_block = np.flatnonzero(block)
        size = np.diff(np.append(first_of_block, len(rows)))
        before = first_of_block - first_of_user[first_of_block]
        part = np.repeat(np.clip((self.k - before) / size, 0.0, 1.0), size)
        at = np.cumsum(starts) - 1
        hits, owned = np.bincount(at, part * liked), np.bincount(at)
        kept = (owned >= self.k) & (user[starts] >= 0)
        if not kept.any():
            raise ValueError(f"no {self.by} has {self.k} rows or more, so that there is no top {self.k}")
        return Units(hits[kept] / self.k, rows[order][starts][kept])


def positive_code(positive: str, table: OutcomesTable, metric: str) -> int:
    """Return the code of the label that counts as a hit; with two labels, AUC needs none to be named.

    Raises:
        ValueError: it is not named and must be, or no row has it.
    """
    if not positive and len(table.labels) == 2:
        return 1
    if not positive:
        raise ValueError(f"{metric} needs the label that counts as a hit; labels: {', '.join(table.labels)}")
    if positive not in table.labels:
        raise ValueError(f"no label {positive!r} in the table; labels: {', '.join(table.labels)}")
    return table.labels.index(positive)
