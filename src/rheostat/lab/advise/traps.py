"""What makes advice worthless: traps in the table that go before any talk of routing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from rheostat.lab.outcomes import SPLITS, OutcomesTable
from rheostat.lab.traps import flat_confidence, label_mismatch, one_class
from rheostat.lab.trust import Flag

BLOCKING: Final = frozenset({"no rows", "one class", "label mismatch"})
"""Kinds of flags with which no advice can be given."""
FEW_POINTS: Final = 0.03
"""A split that cannot show a difference of this size is said to have too few rows."""
MOST_MODELS: Final = 5
_POWER: Final = 2.486  # z of a one-sided 5 % test plus z of 80 % power
_FAILING: Final = 0.05


def traps(table: OutcomesTable, names: Sequence[str]) -> list[Flag]:
    """Return what is wrong with the rows, the labels and the confidences; training and overlap are `trust`'s.

    Args:
        names: the models in question, cheapest first.
    """
    found = [*_rows(table, names), *_labels(table, names)]
    if any(flag.kind in BLOCKING for flag in found):
        return found
    found += _confidences(table, names[:-1])
    found += _prices(table, names)
    if len(names) > MOST_MODELS:
        text = f"{len(names)} models; more than {MOST_MODELS} levels cost more in upkeep and waiting than they bring"
        found.append(Flag("many models", "pool", text))
    return found


def detectable(table: OutcomesTable, low: str, high: str) -> float:
    """Return the least difference in accuracy, in [0, 1], that a paired one-sided 5 % test shows with 80 % power.

    2.486 * sqrt(d / n), d being the share of the n rows on which one model is right and the other wrong (McNemar's test
    in the normal limit; Lachenbruch 1992).
    """
    rows = table.complete((low, high))
    count = int(rows.sum())
    if not count:
        return float("inf")
    apart = float((table.correct(low)[rows] != table.correct(high)[rows]).mean())
    return _POWER * float(np.sqrt(max(apart, 1.0 / count) / count))


def _rows(table: OutcomesTable, names: Sequence[str]) -> list[Flag]:
    found = []
    for split in ("dev", "test"):
        part = table.select(split=split)
        usable = part.complete(names)
        if not usable.any():
            why = ", ".join(f"{count} rows: {reason}" for reason, count in part.left_out(names).items()) or "it is empty"
            found.append(
                Flag("no rows", split, f"no row of {split} can be used ({why}); advice chooses on dev, proves on test")
            )
            continue
        lost = 1.0 - float(usable.mean())
        if lost > _FAILING:
            why = ", ".join(f"{reason} ({count})" for reason, count in part.left_out(names).items())
            found.append(Flag("rows left out", split, f"{lost:.1%} of {split} count nowhere: {why}"))
        if len(names) > 1:
            least = detectable(part, names[0], names[-1])
            if least > FEW_POINTS:
                text = f"with {int(usable.sum())} rows no difference under {least * 100:.1f} points can be shown"
                found.append(Flag("too few rows", split, text))
    return found


def _labels(table: OutcomesTable, names: Sequence[str]) -> list[Flag]:
    judged = table.subset(table.split > 0)
    return [*one_class(judged, "dev and test"), *label_mismatch(table, names)]


def _confidences(table: OutcomesTable, names: Sequence[str]) -> list[Flag]:
    return flat_confidence(table.select(split=SPLITS[1]), names)


def _prices(table: OutcomesTable, names: Sequence[str]) -> list[Flag]:
    costs = [float(table.model(name).cost.mean()) for name in names]
    if len(names) > 1 and max(costs) <= 0.0:
        return [Flag("no prices", "costs", "every call costs 0, so no saving can be worked out; set `cost` of the models")]
    if len(names) > 1 and costs[0] >= costs[-1]:
        return [Flag("no prices", "costs", f"every call costs {costs[0]:g}: a second call saves nothing; set `cost`")]
    return []
