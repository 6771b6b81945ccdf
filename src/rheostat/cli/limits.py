"""Goals and models as they are named on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rheostat.lab.goal import Goal
    from rheostat.lab.outcomes import OutcomesTable

GOALS = ("max-share", "min-quality", "min-relative-quality", "max-cost", "max-latency")
GOAL_HELP = (
    "A limit to keep; may be repeated: max-share=0.2 (calls of the last model), min-quality=0.95, "
    "min-relative-quality=0.98 (of the last model's), max-cost=5, max-latency=50ms (95th percentile)."
)
STAGES_HELP = "Models, cheapest first, with commas between (default: all, by cost)."


def goal_of(pairs: Sequence[str], sure: bool = True) -> Goal:
    """Read NAME=VALUE limits; a limit may be a percentage, a latency has a unit or is in seconds."""
    from rheostat.lab.goal import Goal
    from rheostat.types.duration import Duration

    limits: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if name not in GOALS or not equals:
            raise typer.BadParameter(f"--goal takes NAME=VALUE with one of {', '.join(GOALS)}, got {pair!r}")
        key = name.replace("-", "_")
        try:
            limits[key] = Duration.parse(_bare(value)) if key == "max_latency" else _fraction(value)
        except ValueError as error:
            raise typer.BadParameter(f"--goal {name}: {error}") from None
    try:
        return Goal(**limits, sure=sure)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _bare(value: str) -> str | float:
    try:
        return float(value)
    except ValueError:
        return value


def _fraction(value: str) -> float:
    return float(value.removesuffix("%")) / 100.0 if value.endswith("%") else float(value)


def stages_of(
    table: OutcomesTable, stages: str | None, weak: str | None = None, strong: str | None = None
) -> tuple[str, ...]:
    """Return the models that are meant, cheapest first: those named, else all of the table by cost."""
    if (weak is None) != (strong is None) or (weak is not None and stages is not None):
        raise typer.BadParameter("name both --weak and --strong, or --stages, or none of them")
    from rheostat.lab.tune import by_cost

    if stages is not None:
        names = tuple(name.strip() for name in stages.split(",") if name.strip())
    else:
        names = (weak, strong) if weak is not None and strong is not None else by_cost(table)
    for name in names:
        if name not in table.models:
            raise typer.BadParameter(f"the table has no model {name!r}; it has: {', '.join(table.models)}")
    return names
