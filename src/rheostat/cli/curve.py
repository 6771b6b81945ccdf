"""`rheostat curve`."""

from __future__ import annotations

from typing import Annotated

import typer

from rheostat.cli.console import say, say_json, say_table, told
from rheostat.cli.limits import STAGES_HELP, stages_of
from rheostat.cli.table_warnings import warn


@told
def curve(
    outcomes: Annotated[str, typer.Argument(help="The outcomes table (from evaluate).", metavar="OUTCOMES")],
    stages: Annotated[str | None, typer.Option(help=STAGES_HELP)] = None,
    split: Annotated[str, typer.Option(help="train, dev, test or all.")] = "dev",
    points: Annotated[int, typer.Option(help="How many thresholds to show, evenly by share (0: all).", min=0)] = 21,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show quality, share of large calls, cost and latency of a cascade by its threshold.

    Example: `rheostat curve outcomes.parquet --stages fast,large`
    """
    import numpy as np

    from rheostat.lab.curve import cascade_curve
    from rheostat.lab.outcomes import SPLITS
    from rheostat.lab.outcomes_file import load

    if split not in (*SPLITS, "all"):
        raise typer.BadParameter(f"--split is one of {', '.join(SPLITS)} or all, got {split!r}")
    table = load(outcomes)
    names = stages_of(table, stages)
    part = table if split == "all" else table.select(split=split)
    try:
        found = cascade_curve(part, names)
    except (ValueError, KeyError) as error:
        raise typer.BadParameter(str(error.args[0])) from None
    warn(table, part, names, split, compared=True)
    at = range(len(found))
    if points and len(found) > points:
        shares = np.linspace(found.share[0], found.share[-1], points)
        at = sorted({int(np.abs(found.share - share).argmin()) for share in shares})  # type: ignore[assignment]
    rows = [found.point(index) for index in at]
    if as_json:
        shown = [{name: value if np.isfinite(value) else None for name, value in row._asdict().items()} for row in rows]
        say_json({"stages": names, "split": split, "n": found.n, "points": shown, "left_out": found.left_out})
        return
    say(f"cascade {' > '.join(names)} on {split}: n={found.n}, {len(found)} thresholds that make a difference")
    for reason, count in found.left_out.items():
        say(f"left out: {count} rows, {reason}")
    say()
    head = [
        "threshold",
        "quality",
        f"calls of {names[-1]}",
        "cost",
        "latency (mean)",
        f"answered by {names[0]}",
        "its precision",
    ]
    say_table(
        head,
        [
            [
                "all go on" if np.isinf(row.threshold) else f"{row.threshold:.4f}", f"{row.quality:.2%}", f"{row.share:.1%}",
                f"{row.cost:.4g}", f"{row.latency_s * 1000:.3g} ms", f"{row.coverage:.1%}",
                f"{row.precision:.2%}" if np.isfinite(row.precision) else "-",
            ]
            for row in rows
        ],
    )  # fmt: skip
