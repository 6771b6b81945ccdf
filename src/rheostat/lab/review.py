"""Answers that a person should look at: the queue, a sheet to work on, and the labels read back."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rheostat.errors import RheostatError
from rheostat.lab.records import LINES, read_feedback, read_routed
from rheostat.telemetry import JsonlSink, SqliteSink
from rheostat.types import Feedback, RouteRecord

COLUMNS: Final = ("request_id", "label", "guess", "confidence", "reason", "route", "time", "text")
"""The sheet: a person fills in `label`; the rest is there to read."""
SOURCE: Final = "review"
_RISKY: Final = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run what begins with these


class SheetError(RheostatError):
    """A sheet of labels cannot be used."""


class Taken(NamedTuple):
    """What was read of a sheet: rows with a label and without, and rows of requests that do not wait."""

    labelled: int
    empty: int
    strangers: tuple[str, ...]


def waiting(path: str | os.PathLike[str], route: str | None = None) -> Iterator[RouteRecord]:
    """Yield the records marked for review on which no label has come in yet, oldest first.

    Raises:
        StoreError: the file is absent, damaged, or holds no records.
        OSError: it cannot be read.
    """
    judged = {request_id for request_id, found in read_feedback(path).items() if found.label is not None}
    for record in read_routed(path):
        if record.review and record.id not in judged and (route is None or record.route == route):
            yield record


def write_sheet(records: Iterator[RouteRecord], path: str | os.PathLike[str]) -> int:
    """Write the records as a CSV sheet with an empty `label` column and return how many there are.

    Text that a spreadsheet would take for a formula gets an apostrophe in front.

    Raises:
        OSError: it cannot be written.
    """
    count = 0
    with open(path, "w", encoding="utf-8-sig", newline="") as file:  # with a mark, or Excel reads Chinese as noise
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for record in records:
            text = (record.input.text if record.input is not None else None) or ""
            sure = "" if record.confidence is None else f"{record.confidence:.4f}"
            cells = (record.id, "", record.guess or "", sure, record.review, record.route, f"{record.wall:.3f}", text)
            writer.writerow([f"'{cell}" if cell.startswith(_RISKY) else cell for cell in cells])
            count += 1
    return count


def take_sheet(sheet: str | os.PathLike[str], records: str | os.PathLike[str], wall: float) -> Taken:
    """Add the labels of a sheet to the records as judgements (`source: review`); all of them or, with an error, none.

    Args:
        sheet: a CSV file with the columns `request_id` and `label`; rows without a label are left waiting.
        wall: the time of the judgements, in seconds since 1970.

    Raises:
        SheetError: the columns are missing, or two rows give one request different labels; the message says where.
        StoreError: the records cannot be used.
        OSError: a file cannot be read or written.
    """
    found, empty = _labels(sheet)
    known = {record.id for record in waiting(records)}
    strangers = tuple(request_id for request_id in found if request_id not in known)
    rows = [
        Feedback(request_id=request_id, wall=wall, label=label, source=SOURCE)
        for request_id, label in found.items()
        if request_id in known
    ]
    if rows:
        sink = JsonlSink(records) if Path(records).suffix.lower() in LINES else SqliteSink(records)
        try:
            sink.write(rows)
        finally:
            sink.close()
    return Taken(len(rows), empty, strangers)


def _labels(sheet: str | os.PathLike[str]) -> tuple[dict[str, str], int]:
    found: dict[str, str] = {}
    empty = 0
    with open(sheet, encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        try:
            lacking = [name for name in COLUMNS[:2] if name not in (reader.fieldnames or ())]
            if lacking:
                raise SheetError(
                    f"{sheet}: expected the columns request_id and label, there is no {' and no '.join(lacking)}"
                )
            for row in reader:
                request_id, label = (row["request_id"] or "").removeprefix("'").strip(), (row["label"] or "").strip()
                if not label:
                    empty += 1
                elif found.setdefault(request_id, label) != label:
                    told = f"{found[request_id]!r} and {label!r}"
                    raise SheetError(f"{sheet} line {reader.line_num}: request {request_id} is labelled twice, {told}")
        except (csv.Error, UnicodeDecodeError) as error:
            raise SheetError(f"{sheet} line {reader.line_num}: {error}; save it as CSV in UTF-8") from error
    return found, empty
