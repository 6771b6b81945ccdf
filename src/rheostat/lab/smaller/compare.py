"""A smaller model beside the one it was made from: what is lost, what is gained, where it sits on the curve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rheostat.lab.bootstrap import Difference, Interval, bootstrap, paired_bootstrap
from rheostat.lab.goal import Goal, GoalError
from rheostat.lab.metrics import hull
from rheostat.lab.outcomes import OK, Floats, ModelColumns, ModelInfo, OutcomesTable
from rheostat.lab.tune import Tuned, tune
from rheostat.lab.verdict import pays


class Smaller(Struct, frozen=True, kw_only=True):
    """What became of a model when it was made smaller, on the rows of one split.

    `agreement` is the share of rows, in [0, 1], with the same label; `accuracy` of the large and the small one and `change`
    (small minus large) are None where no right label is known. `sizes` in bytes (0: unknown). `speed` is the large one's
    mean latency divided by the small one's, with 95 % interval over the rows measured. `on_hull` says that no mix of the
    table's other models does as well for as little; `cascade` is the small one before the large one at 20 % of calls,
    None without right labels or confidences, and `worth` whether it pays.
    """

    large: str
    small: str
    rows: int
    agreement: Interval
    accuracy: tuple[Interval, Interval] | None
    change: Difference | None
    sizes: tuple[int, int]
    speed: Interval
    on_hull: bool | None
    cascade: Tuned | None
    worth: bool


def with_model(
    table: OutcomesTable, name: str, scores: npt.ArrayLike, *, cost: float, latency_s: npt.ArrayLike
) -> OutcomesTable:
    """Return the table with one model more.

    Args:
        scores: rows x labels of the table, each row a distribution; a row of NaN where it was not asked.
        cost: of one call, in the pool's unit.
        latency_s: seconds, one for all rows or one a row.

    Raises:
        ValueError: the table has a model of that name.
    """
    if name in table.models:
        raise ValueError(f"the table has a model {name!r} already; choose another name")
    found = np.asarray(scores, dtype=np.float64)
    absent = np.isnan(found).any(axis=1)
    label = np.where(absent, -1, np.nan_to_num(found, nan=-1.0).argmax(axis=1)).astype(np.int32)
    columns = ModelColumns(
        label=label, confidence=found.max(axis=1), cost=np.full(len(table), cost), scores=found.astype(np.float32),
        latency_s=np.broadcast_to(np.asarray(latency_s, dtype=np.float64), (len(table),)).copy(),
        failure=np.where(absent, -1, OK).astype(np.int8),
    )  # fmt: skip
    info = {**table.model_info, name: ModelInfo(cost=cost)}
    return replace(table, columns={name: columns, **table.columns}, model_info=info)


def compare(
    table: OutcomesTable, large: str, small: str, *, split: str = "test", sizes: tuple[int, int] = (0, 0),
    waits: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> Smaller:  # fmt: skip
    """Compare `small` with the `large` model it was made from, on the rows of `split` that both answered.

    Args:
        sizes: of the files, in bytes, large and small.
        waits: seconds measured for single rows, large and small; by default the table's latencies.

    Raises:
        ValueError: no row of the split was answered by both.
    """
    part = table.select(split=split)
    both = part.answered(large) & part.answered(small)
    if not both.any():
        raise ValueError(f"{split} has no row that {large} and {small} both answered")
    part = part.subset(both)
    same = (part.model(large).label == part.model(small).label).astype(np.float64)
    known = part.known
    accuracy = change = on_hull = None
    if known.any():
        right = {name: part.correct(name)[known].astype(np.float64) for name in (large, small)}
        accuracy, change = (bootstrap(right[large]), bootstrap(right[small])), paired_bootstrap(right[small], right[large])
        on_hull = _on_hull(part.subset(known), small)
    measured = waits or (part.model(large).latency_s, part.model(small).latency_s)
    cascade = _cascade(table, small, large)
    return Smaller(
        large=large, small=small, rows=len(part), agreement=bootstrap(same), accuracy=accuracy, change=change, sizes=sizes,
        speed=ratio(*measured), on_hull=on_hull, cascade=cascade, worth=cascade is not None and pays(cascade.reported),
    )  # fmt: skip


def ratio(a: npt.ArrayLike, b: npt.ArrayLike, draws: int = 2000, seed: int = 0) -> Interval:
    """Return mean(a) / mean(b) with its 95 % percentile bootstrap interval, both resampled by themselves."""
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    rng = np.random.default_rng(seed)

    def means(values: Floats) -> Floats:
        found: Floats = values[rng.integers(0, len(values), (draws, len(values)))].mean(axis=1)
        return np.maximum(found, 1e-300)

    low, high = np.quantile(means(left) / means(right), [0.025, 0.975])
    return Interval(float(left.mean() / max(right.mean(), 1e-300)), float(low), float(high), min(len(left), len(right)))


def _on_hull(part: OutcomesTable, name: str) -> bool:
    fine = part.subset(part.complete(part.models))
    if not len(fine):
        return False
    cost = [float(fine.model(each).cost.mean()) for each in fine.models]
    quality = [float(fine.correct(each).mean()) for each in fine.models]
    return fine.models.index(name) in hull(cost, quality)


def _cascade(table: OutcomesTable, small: str, large: str) -> Tuned | None:
    try:
        return tune(table, Goal(max_share=0.2), stages=(small, large))
    except (GoalError, ValueError):
        return None
