"""Looking up what was recorded of one request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rheostat.errors import NotFound
from rheostat.telemetry import SqliteReader

if TYPE_CHECKING:
    from rheostat.config import Loaded
    from rheostat.telemetry import Recorder
    from rheostat.types import Feedback, RouteRecord


def recorded(loaded: Loaded, recorder: Recorder, request_id: str) -> tuple[RouteRecord, list[Feedback]]:
    """Return the record of a recent request from the SQLite sink, and the judgements on it.

    Raises:
        NotFound: no such record, or no SQLite sink is configured.
    """
    if loaded.config.records.sqlite is None:
        raise NotFound("records are looked up in SQLite; set `records.sqlite`")
    recorder.flush(1.0)
    reader = SqliteReader(Path(loaded.base) / loaded.config.records.sqlite)
    try:
        found = reader.get(request_id)
        if found is None:
            raise NotFound(f"no record {request_id[:80]!r}")
        return found, reader.feedback_for(request_id)
    finally:
        reader.close()
