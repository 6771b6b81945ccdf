"""Warnings about an outcomes table and what is replayed over it, beside the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rheostat.cli.console import note

if TYPE_CHECKING:
    from rheostat.lab.outcomes import OutcomesTable
    from rheostat.policies import Policy


def warn(
    table: OutcomesTable, part: OutcomesTable, names: Sequence[str], where: str = "", *, thresholds: bool = True,
    compared: bool = False,
) -> None:  # fmt: skip
    """Say what makes figures over these rows worthless.

    Args:
        table: all rows, to see what stands in several splits.
        part: the rows that count here.
        names: the models in question, cheapest first.
        where: what to call the rows.
        thresholds: thresholds on confidences are in question.
        compared: the result itself does not say whether the last model is better than the first.
    """
    from rheostat.lab.traps import not_better, repeats, traps

    found = [*traps(part, names, where=where, thresholds=thresholds), *repeats(table)]
    found += not_better(part, names, where) if compared else []
    for flag in found:
        note(f"warning: {flag.about}: {flag.text}")


def warn_of_load(name: str, policy: Policy) -> None:
    """Say that the policy decides by what no table holds, where it does."""
    from rheostat.policies.reads import without_load

    if unseen := without_load(policy):
        note(f"warning: {name}: {unseen}")
