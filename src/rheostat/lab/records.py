"""Route records and judgements, read for analysis: from either kind of file, in order, a few at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from heapq import merge
from pathlib import Path
from typing import Final

from rheostat.telemetry import SqliteReader, read_records
from rheostat.telemetry.encode import decode
from rheostat.types import Feedback, RouteRecord

LINES: Final = (".jsonl", ".ndjson", ".json", ".log")
_PAGE: Final = 2_000  # records decoded at a time


def is_records(path: str | os.PathLike[str]) -> bool:
    """Return whether a file's name is that of records, and not of an outcomes table."""
    return Path(path).suffix.lower() in (*LINES, ".sqlite", ".sqlite3", ".db")


def read_feedback(path: str | os.PathLike[str]) -> dict[str, Feedback]:
    """Return the latest judgement on each request; what an earlier one said and the latest does not is kept.

    Raises:
        StoreError: the file is absent, damaged, or holds no records.
        OSError: it cannot be read.
    """
    found: dict[str, Feedback] = {}
    for entry in _lines(path) if _is_lines(path) else _feedback_rows(path):
        if isinstance(entry, Feedback):
            before = found.get(entry.request_id)
            label = entry.label if entry.label is not None or before is None else before.label
            reward = entry.reward if entry.reward is not None or before is None else before.reward
            found[entry.request_id] = Feedback(request_id=entry.request_id, wall=entry.wall, label=label, reward=reward)
    return found


def read_routed(path: str | os.PathLike[str]) -> Iterator[RouteRecord]:
    """Yield the records in the order they were written.

    Raises:
        StoreError: the file is absent, damaged, or holds no records.
        OSError: it cannot be read.
    """
    if _is_lines(path):
        for entry in _lines(path):
            if isinstance(entry, RouteRecord):
                yield entry
        return
    reader = SqliteReader(path)
    try:
        last = -1
        sql = "SELECT seq, CAST(record AS BLOB) FROM records WHERE seq > ? ORDER BY seq LIMIT ?"
        while page := reader.query(sql, (last, _PAGE)):
            last = page[-1][0]
            for _, body in page:
                yield decode(body, RouteRecord)
    finally:
        reader.close()


def read_entries(path: str | os.PathLike[str]) -> Iterator[RouteRecord | Feedback]:
    """Yield records and judgements in the order of their times, as far as each kind was written in order.

    Raises:
        StoreError: the file is absent, damaged, or holds no records.
        OSError: it cannot be read.
    """
    if _is_lines(path):
        yield from _lines(path)
    else:
        kinds: tuple[Iterator[RouteRecord | Feedback], ...] = (read_routed(path), _feedback_rows(path))
        yield from merge(*kinds, key=lambda entry: entry.wall)


def judged_value(record: RouteRecord, feedback: Feedback) -> float | None:
    """Return what the answer was worth: the reward, else 1 or 0 for whether the label is the right one; None if unjudged."""
    if feedback.reward is not None:
        return feedback.reward
    if feedback.label is None or record.label is None:
        return None
    return float(feedback.label == record.label)


def _is_lines(path: str | os.PathLike[str]) -> bool:
    return Path(path).suffix.lower() in LINES


def _lines(path: str | os.PathLike[str]) -> Iterator[RouteRecord | Feedback]:
    return read_records(path)


def _feedback_rows(path: str | os.PathLike[str]) -> Iterator[Feedback]:
    reader = SqliteReader(path)
    try:
        last = -1
        sql = "SELECT number, request_id, wall, label, reward FROM feedback WHERE number > ? ORDER BY number LIMIT ?"
        while page := reader.query(sql, (last, _PAGE)):
            last = page[-1][0]
            for _, request_id, wall, label, reward in page:
                yield Feedback(request_id=request_id, wall=wall, label=label, reward=reward)
    finally:
        reader.close()
