"""`rheostat explain`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rheostat.cli.console import say, say_json, told

if TYPE_CHECKING:
    from rheostat.types import Feedback, RouteRecord


@told
def explain(
    request_id: Annotated[
        str | None, typer.Argument(help="The id that came with the answer (`request_id`).", metavar="REQUEST_ID")
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="The latest request.")] = False,
    records: Annotated[str | None, typer.Option(help="The records: a .sqlite or a .jsonl file.")] = None,
    config: Annotated[
        str, typer.Option(help="The config that says where records are, without --records.")
    ] = "rheostat.yaml",
    as_json: Annotated[bool, typer.Option("--json", help="Print the record, and its explanation as data.")] = False,
) -> None:
    """Tell how one request was decided: signals, rules, scores against thresholds, attempts, fallback, cost.

    Example: `rheostat explain --last`, or `rheostat explain 0192f0c1-... --records records.sqlite`
    """
    from rheostat.errors import NotFound
    from rheostat.telemetry.explanation import explain as explained

    if (request_id is None) != last:
        raise typer.BadParameter("name a request id, or --last for the latest request (not both)")
    place = records or _configured(config)
    record, feedback = _from_lines(place, request_id) if _is_lines(place) else _from_sqlite(place, request_id)
    if record is None:
        raise NotFound(f"{place} has no request {request_id!r}" if request_id else f"{place} has no request yet")
    explanation = explained(record, feedback)
    if as_json:
        say_json({"explanation": explanation, "record": record, "feedback": feedback})
        return
    for line in explanation.text:
        say(line)


def _configured(config: str) -> str:
    from rheostat.config import load_config
    from rheostat.errors import NotFound

    if not Path(config).exists():
        raise typer.BadParameter(f"there is no {config} here that says where records are; name them with --records")
    loaded = load_config(config)
    place = loaded.config.records.sqlite or loaded.config.records.jsonl
    if place is None:
        raise NotFound(f"{config} keeps no records; add `records: {{sqlite: records.sqlite}}` to it")
    return str(Path(loaded.base, place))


def _is_lines(place: str) -> bool:
    from rheostat.lab.records import LINES

    return Path(place).suffix.lower() in LINES


def _from_sqlite(place: str, request_id: str | None) -> tuple[RouteRecord | None, list[Feedback]]:
    from rheostat.telemetry import SqliteReader

    reader = SqliteReader(place)
    try:
        found = reader.get(request_id) if request_id is not None else next(iter(reader.recent(1)), None)
        return found, reader.feedback_for(found.id) if found is not None else []
    finally:
        reader.close()


def _from_lines(place: str, request_id: str | None) -> tuple[RouteRecord | None, list[Feedback]]:
    from rheostat.telemetry import read_records
    from rheostat.types import RouteRecord

    found: RouteRecord | None = None
    feedback: list[Feedback] = []
    for entry in read_records(place):
        if isinstance(entry, RouteRecord):
            if request_id is None or entry.id == request_id:
                found = entry
        elif request_id is None or entry.request_id == request_id:
            feedback.append(entry)
    return found, [each for each in feedback if found is not None and each.request_id == found.id]
