"""`rheostat calibrate`."""

from __future__ import annotations

from typing import Annotated

import typer

from rheostat.cli.console import note, say, told
from rheostat.cli.table_warnings import warn


@told
def calibrate(
    outcomes: Annotated[
        str, typer.Argument(help="The outcomes table (from evaluate), or judged records.", metavar="OUTCOMES")
    ],
    model: Annotated[str, typer.Option(help="Whose confidence is calibrated.")],
    method: Annotated[str, typer.Option(help="auto, platt, isotonic, temperature or quantile.")] = "auto",
    out: Annotated[str, typer.Option(help="Where the calibrator goes.")] = "calibration.json",
    choose: Annotated[str, typer.Option(help="The split to fit on.")] = "dev",
    report: Annotated[str, typer.Option(help="The split to judge it on.")] = "test",
) -> None:
    """Make a model's confidence mean what it says: 0.9 is right nine times of ten.

    Fits on one split, reports on another, and writes a file that the model's `calibration` setting names. Evaluate again
    afterwards: thresholds tuned on the old confidences do not fit the new ones.

    A file of records (.sqlite, .db or .jsonl) gives the answers on which feedback came in (a `reward` of 0 or 1, or a
    label), such as those of conversations, whose right answers no table can list: it fits on seven of ten and reports on
    the rest.

    Example: `rheostat calibrate outcomes.parquet --model fast --out fast.calibration.json`
    """
    from rheostat.lab.calibration import calibrate as fit
    from rheostat.lab.calibration import calibrate_judged
    from rheostat.lab.outcomes import SPLITS
    from rheostat.lab.outcomes_file import load
    from rheostat.lab.records import is_records
    from rheostat.signals.calibrator import save_calibrator

    for option, split in (("--choose", choose), ("--report", report)):
        if split not in SPLITS:
            raise typer.BadParameter(f"{option} is one of {', '.join(SPLITS)}, got {split!r}")
    if is_records(outcomes):
        found = calibrate_judged(outcomes, model, method)
        choose, report = "the judged answers", "the others"
    else:
        table = load(outcomes)
        if model in table.models:
            warn(table, table.subset(table.split > 0), (model, model))
        found = fit(table, model, method, choose=choose, report=report)
    kind = type(found.fitted).__name__.lower()
    say(f"{model}: {kind}, fitted on {found.fitted_on} rows of {choose}, judged on {found.reported_on} rows of {report}")
    say(f"calibration error (ECE) {found.ece_before:.4f} -> {found.ece_after:.4f}")
    say(f"Brier score             {found.brier_before:.4f} -> {found.brier_after:.4f}")
    for warning in found.fitted.warnings:
        note(f"warning: {warning}")
    if found.ece_after >= found.ece_before:
        say("It does not help on the held-out rows: better leave this model as it is.")
    save_calibrator(found.fitted, out)
    say(f"written to {out}; in the config: models.{model}.calibration: {out}")
