"""What makes the figures of an outcomes table worthless, in one word and one sentence each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from rheostat.lab.bootstrap import paired_bootstrap
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.trust import Flag, overlaps

FEW_STEPS: Final = 10
"""With fewer distinct confidences a threshold has hardly anything to choose from."""
_LACKING: Final = 0.01
_STRANGE: Final = 0.5
_MOST: Final = 200_000  # rows whose inputs are compared; more take a while and say the same


def traps(table: OutcomesTable, names: Sequence[str], *, where: str = "", thresholds: bool = True) -> list[Flag]:
    """Return what a reader of figures over these rows must be told first.

    Args:
        table: the rows that the figures are of.
        names: the models in question, cheapest first.
        where: what to call the rows (a split).
        thresholds: whether thresholds on the confidences are in question.
    """
    found = one_class(table, where) or label_mismatch(table, names)
    if thresholds:
        found += flat_confidence(table, names[:-1], steps=True)
    return found


def one_class(table: OutcomesTable, where: str = "") -> list[Flag]:
    """Flag rows whose right label is always the same: a constant answer is perfect there."""
    truth = table.truth[table.known]
    if not len(truth) or len(np.unique(truth)) > 1:
        return []
    text = f"every right label{f' on {where}' if where else ''} is {table.labels[truth[0]]!r}: any constant is perfect there"
    return [Flag("one class", "labels", text)]


def label_mismatch(table: OutcomesTable, names: Sequence[str]) -> list[Flag]:
    """Flag models that mostly say labels that are never right."""
    found = []
    known = np.unique(table.truth[table.known])
    for name in dict.fromkeys(names):
        said = table.model(name).label[table.answered(name) & table.known]
        strange = ~np.isin(said, known)
        if len(said) and strange.mean() > _STRANGE:
            example = table.labels[int(said[strange][0])]
            text = (
                f"{strange.mean():.0%} of its answers are labels that are never right, such as {example!r} (right ones: "
                f"{', '.join(repr(table.labels[code]) for code in known[:4])}); map its labels in the config"
            )
            found.append(Flag("label mismatch", name, text))
    return found


def flat_confidence(table: OutcomesTable, names: Sequence[str], *, steps: bool = False) -> list[Flag]:
    """Flag models whose confidence is absent, the same on every row, or, with `steps`, missing here and there or coarse."""
    found = []
    for name in names:
        values = table.model(name).confidence[table.answered(name)]
        some = values[np.isfinite(values)]
        distinct = len(np.unique(some))
        if len(values) and not len(some):
            text = (
                "no confidence was recorded, so no cascade can pass on from it; record one, or learn a signal from the "
                "requests with `rheostat train router`"
            )
            found.append(Flag("no confidence", name, text))
        elif distinct == 1:
            text = f"its confidence is {some[0]:g} on every row: a threshold on it decides nothing"
            found.append(Flag("constant scores", name, text))
        elif steps and distinct:
            lacking = 1.0 - len(some) / len(values)
            if lacking > _LACKING:
                text = f"{lacking:.1%} of its answers have no confidence; a cascade always passes those on"
                found.append(Flag("some without confidence", name, text))
            if distinct < FEW_STEPS:
                text = (
                    f"it has {distinct} distinct confidences only: rows that tie go on together, so budgets are met in steps"
                )
                found.append(Flag("ties", name, text))
    return found


def not_better(table: OutcomesTable, names: Sequence[str], where: str = "") -> list[Flag]:
    """Flag a dear model that is not shown to be better than the cheap one: then escalation has nothing to gain by itself."""
    rows = table.complete(names)
    if len(names) < 2 or not rows.any():
        return []
    first, last = names[0], names[-1]
    dear, cheap = (table.correct(name)[rows].astype(np.float64) for name in (last, first))
    gap = paired_bootstrap(dear, cheap)
    if gap.better:
        return []
    text = (
        f"not shown to be better than {first}{f' on {where}' if where else ''}: {gap.mean * 100:+.2f} points "
        f"[{gap.low * 100:+.2f}, {gap.high * 100:+.2f}]; what routing brings must come from rows on which they differ"
    )
    return [Flag("strong no better", last, text)]


def repeats(table: OutcomesTable) -> list[Flag]:
    """Flag a table whose inputs stand in several splits: what was learned from one is then not fresh in the other."""
    if table.inputs is None or len(table) > _MOST:
        return []
    found = overlaps(table)
    if found is None or not found.crossing:
        return []
    text = (
        f"{found.crossing:,} of {found.groups:,} distinct inputs stand in more than one split ({found.test_rows:,} test "
        "rows repeat rows of train or dev): figures on them are too good"
    )
    return [Flag("split overlap", "splits", text)]
