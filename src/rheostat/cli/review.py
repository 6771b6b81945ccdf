"""`rheostat review`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rheostat.cli.console import note, say, say_json, say_table, told

if TYPE_CHECKING:
    from rheostat.types import RouteRecord

_SHOWN = 20


@told
def review(
    records: Annotated[str, typer.Argument(help="The records: a .sqlite or a .jsonl file.", metavar="RECORDS")],
    out: Annotated[str | None, typer.Option(help="Write all that waits to this CSV sheet, to fill in `label`.")] = None,
    labels: Annotated[str | None, typer.Option(help="Read the labels of a filled-in sheet back as judgements.")] = None,
    route: Annotated[str | None, typer.Option(help="Only requests of this route.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over the file of --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the answers that a person should look at; hand them out as a sheet and take the labels back.

    Answers are marked by the policy `review`. Keep `input: raw` in the config's `records`, or the sheet has no texts.

    Example: `rheostat review records.sqlite --out queue.csv`, then `rheostat review records.sqlite --labels queue.csv`
    """
    from rheostat.lab.review import take_sheet, waiting, write_sheet

    if out is not None and labels is not None:
        raise typer.BadParameter("--out hands a sheet out, --labels takes one back: one at a time")
    if out is not None and Path(out).exists() and (not force or Path(out).samefile(records)):
        raise typer.BadParameter(f"{out} is there already, perhaps with labels; name another --out, or add --force")
    if labels is not None:
        taken = take_sheet(labels, records, time.time())
        if as_json:
            say_json(taken._asdict())
            return
        say(f"{taken.labelled} labels taken, {taken.empty} rows without a label go on waiting")
        if taken.strangers:
            shown = ", ".join(taken.strangers[:3])
            note(f"{len(taken.strangers)} rows are of requests that do not wait (unknown, or labelled before): {shown}")
        return
    queue = waiting(records, route)
    if out is not None:
        count = write_sheet(queue, out)
        say(f"{count} answers wait; wrote {out}: fill in `label`, then `rheostat review {records} --labels {out}`")
        return
    first: list[RouteRecord] = []
    count = 0
    for record in queue:
        count += 1
        if len(first) < _SHOWN:
            first.append(record)
    if as_json:
        say_json({"waiting": count, "oldest": first})
        return
    say(f"{count} answers wait for a person" + (f"; the oldest {_SHOWN}:" if count > _SHOWN else ""))
    if first:
        say_table(
            ("request", "route", "guess", "why"), [(each.id, each.route, each.guess or "-", each.review) for each in first]
        )
