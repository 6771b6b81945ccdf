"""`rheostat distil`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rheostat.cli.console import say, say_json, told


@told
def distil(
    outcomes: Annotated[str, typer.Argument(help="The outcomes table; labels are not needed.", metavar="OUTCOMES")],
    teacher: Annotated[str | None, typer.Option(help="The model to learn from (default: the dearest).")] = None,
    name: Annotated[str, typer.Option(help="What to call the student.")] = "student",
    out: Annotated[str, typer.Option(help="Where the student's ONNX file goes.")] = "student.onnx",
    table_out: Annotated[
        str | None, typer.Option(help="Where a table with the student's answers goes, for tune and advise.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over the files that are there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a small text model from a large one's answers: tf-idf and logistic regression, in one ONNX file.

    It learns from the teacher's answers on train, is chosen by agreement on dev, and is compared with the teacher on test:
    agreement, accuracy where labels are known, size, speed, and where it sits on the cost-quality curve.

    Example: `rheostat distil outcomes.parquet --teacher large --out student.onnx`
    """
    from rheostat.cli.smaller_lines import as_data, say_smaller
    from rheostat.lab.outcomes_file import load, save
    from rheostat.lab.smaller import compare, with_model
    from rheostat.lab.smaller import distil as run
    from rheostat.lab.tune import by_cost

    for place in (out, table_out):
        if place is not None and Path(place).exists() and not force:
            raise typer.BadParameter(f"{place} is there already; name another, or add --force")
    table = load(outcomes)
    chosen = teacher or by_cost(table)[-1]
    if chosen not in table.models:
        raise typer.BadParameter(f"the table has no model {chosen!r}; it has: {', '.join(table.models)}")
    if name in table.models:
        raise typer.BadParameter(f"the table has a model {name!r} already; choose another --name")
    student = run(table, chosen, out)
    columns = table.model(chosen)
    wait = float(student.waits.mean())
    cost = float(columns.cost.mean()) * min(1.0, wait / max(float(columns.latency_s.mean()), 1e-9))
    wide = with_model(table, name, student.scores, cost=cost, latency_s=wait)
    found = compare(wide, chosen, name, sizes=(0, student.size), waits=(columns.latency_s[:1000], student.waits))
    if table_out is not None:
        save(wide, table_out)
    if as_json:
        say_json({"out": out, "labels": student.labels, "cost": cost, **as_data(found)})
        return
    say_smaller(found)
    say(f"  file: {student.size / 1e6:.3g} MB; cost taken as {cost:.4g} a call, the teacher's by the ratio of their times")
    say()
    say(f"wrote {out}; use it in your config:")
    say(f"  {name}: {{backend: onnx, path: {out}, cost: {cost:.4g}}}")
