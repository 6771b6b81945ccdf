"""Records in an embedded database: what happened, answerable by one SQL query, while it is being written."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from rheostat.clock import Clock, SystemClock
from rheostat.errors import StoreError
from rheostat.telemetry.base import Entry
from rheostat.telemetry.encode import Encoded, EntryEncoder, decode
from rheostat.telemetry.schema import RECORD_COLUMNS, connect
from rheostat.telemetry.text import MAX_TEXT
from rheostat.types import Feedback, RouteRecord

P99_BY_VERSION: Final = """
WITH ranked AS (
  SELECT model, version, elapsed_s,
         row_number() OVER (PARTITION BY model, version ORDER BY elapsed_s) AS place,
         count(*) OVER (PARTITION BY model, version) AS calls
  FROM attempts WHERE failure IS NULL
)
SELECT model, version, calls, elapsed_s AS p99_s FROM ranked
WHERE place = (calls * 99 + 99) / 100 ORDER BY model, version
"""
"""The 99th percentile (nearest rank) of good calls, in seconds, by model and version."""

_WIDTH = len(RECORD_COLUMNS)


def _insert(rows: int) -> str:
    # a batch that is tried again although it had been stored meets its own (id, ts); an id used anew has another time
    values = f"({', '.join('?' for _ in RECORD_COLUMNS)})"
    return f"INSERT OR IGNORE INTO record_rows ({', '.join(RECORD_COLUMNS)}) VALUES {', '.join([values] * rows)}"


# Every statement that runs gives up the interpreter and has to wait for the event loop to get it back: rows go in by the
# dozen. Three sizes, so that each is prepared once.
_INSERTS = tuple((rows, _insert(rows)) for rows in (80, 10, 1))
_INSERT_FEEDBACK = "INSERT INTO feedback (request_id, wall, label, reward, source) VALUES (?, ?, ?, ?, ?)"
_SWEEP_EVERY = 1_000  # rows written between two looks at what has become too old
_SWEEP_MOST = 5_000  # rows deleted at a time, so that no batch waits long

_NOWHERE = (-1, -1)

Row = tuple[Any, ...]


class SqliteSink:
    """Stores entries in a SQLite database in WAL mode; readers are welcome at any time, from any process.

    Tables: `records` (one row a request; `record` is the whole of it as JSON, `seq` rises with every row) and `feedback`
    (joined by `request_id`, in whichever order the two arrive). Clients may use a request id again: then it has several
    records, and `get` returns the newest. The view `attempts` has one row a try at a model, joined by `seq`; the view
    `calls` has the request's id, time and route beside it. Both, and the columns of `records` beyond the first dozen,
    are read out of the JSON when somebody asks for them: a query over every try takes about two seconds for 100,000
    records (`calls` with `WHERE ts > ...` looks at those of a time only). For example, p99 by model version (this is
    `P99_BY_VERSION`):

        WITH ranked AS (
          SELECT model, version, elapsed_s,
                 row_number() OVER (PARTITION BY model, version ORDER BY elapsed_s) AS place,
                 count(*) OVER (PARTITION BY model, version) AS calls
          FROM attempts WHERE failure IS NULL
        )
        SELECT model, version, calls, elapsed_s AS p99_s FROM ranked
        WHERE place = (calls * 99 + 99) / 100 ORDER BY model, version

    Args:
        path: the file; made if absent.
        max_rows: records kept, the newest; 0: no limit. Checked every thousand rows, so it may be exceeded by as many.
        max_age_s: seconds after which a record is deleted; 0: never.
        max_text: characters of one text that are kept.
        mask: removes secrets from entries that carry an error.

    Raises:
        StoreError: the file is damaged, another program's, or cannot be opened; it is left as it is.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_rows: int = 0,
        max_age_s: float = 0.0,
        max_text: int = MAX_TEXT,
        clock: Clock | None = None,
        mask: Callable[[str], str] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self._max_rows = max_rows
        self._max_age_s = max_age_s
        self._clock: Clock = clock if clock is not None else SystemClock()
        self.encoder = EntryEncoder(max_text=max_text, mask=mask)
        self._unswept = 0
        try:
            os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
            self._open()
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(f"cannot write records to {self.path}: {error.strerror or error}") from error

    def write(self, entries: Sequence[Entry]) -> None:
        """Store the entries in one transaction: all of them, or none and an error."""
        self.write_encoded([self.encoder.encode(entry) for entry in entries])

    def write_encoded(self, batch: Sequence[Encoded]) -> None:
        """Store entries that are encoded already in one transaction: all of them, or none and an error."""
        self._follow()
        values: list[Any] = []
        feedback: list[Row] = []
        for encoded in batch:
            entry = encoded.entry
            if isinstance(entry, RouteRecord):
                values += (
                    entry.id, entry.wall, entry.route, entry.status, entry.label, entry.selected_model, entry.tenant,
                    entry.cost, entry.elapsed_s, encoded.changed, encoded.data.decode(),
                )  # fmt: skip
            else:
                feedback.append((entry.request_id, entry.wall, entry.label, entry.reward, entry.source))
        database = self._database
        try:
            database.execute("BEGIN IMMEDIATE")
            _insert_records(database, values)
            if feedback:
                database.executemany(_INSERT_FEEDBACK, feedback)
            self._sweep(len(batch))
            database.execute("COMMIT")
        except BaseException as error:
            if database.in_transaction:
                database.rollback()
            if type(error) in (sqlite3.OperationalError, sqlite3.DatabaseError):  # the store, not the rows
                raise StoreError(f"{self.path}: {error}") from error
            raise

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _open(self) -> None:
        self._database = connect(self.path, write=True)
        self._identity: tuple[int, int] | None = _identity(self.path)

    def _follow(self) -> None:
        """Open the file anew when somebody moved or deleted it: otherwise rows would go where nobody finds them."""
        if _identity(self.path) != self._identity:
            self._database.close()
            self._identity = _NOWHERE
            self._open()

    def _sweep(self, written: int) -> None:
        """Delete what is over the limits, a bounded number of rows at a time."""
        self._unswept += written
        if self._unswept < _SWEEP_EVERY or not (self._max_rows or self._max_age_s):
            return
        database = self._database
        oldest, newest = database.execute("SELECT min(seq), max(seq) FROM record_rows").fetchone()
        keep_from = 0
        if self._max_rows and newest is not None:
            keep_from = newest - self._max_rows + 1
        if self._max_age_s:
            limit = self._clock.wall() - self._max_age_s
            young = database.execute("SELECT min(seq) FROM record_rows WHERE ts >= ?", (limit,)).fetchone()[0]
            keep_from = max(keep_from, young if young is not None else (newest or 0) + 1)
            database.execute("DELETE FROM feedback WHERE wall < ? AND wall > 0", (limit,))
        if self._max_rows:
            last = database.execute("SELECT max(number) FROM feedback").fetchone()[0] or 0
            database.execute("DELETE FROM feedback WHERE number <= ?", (last - self._max_rows,))
        if oldest is None or keep_from <= oldest:
            self._unswept = 0
            return
        until = min(keep_from, oldest + _SWEEP_MOST)
        database.execute("DELETE FROM record_rows WHERE seq < ?", (until,))
        if until == keep_from:
            self._unswept = 0


class SqliteReader:
    """Reads a record database, from any thread, while others write.

    Raises:
        StoreError: the file is absent, damaged, or no record database.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._database = connect(self._path, write=False)
        self._lock = threading.Lock()

    def get(self, request_id: str) -> RouteRecord | None:
        """Return the newest record with this request id, or None."""
        newest = "SELECT CAST(record AS BLOB) FROM records WHERE id = ? ORDER BY seq DESC LIMIT 1"
        rows = self.query(newest, (_storable(request_id),))
        return decode(rows[0][0], RouteRecord) if rows else None

    def recent(self, count: int, route: str | None = None) -> list[RouteRecord]:
        """Return the last `count` records, newest first; of one route where it is named."""
        return [decode(row[0], RouteRecord) for row in self.query(
            "SELECT CAST(record AS BLOB) FROM records WHERE ?1 IS NULL OR route = ?1 ORDER BY seq DESC LIMIT ?2",
            (route, max(0, count)),
        )]  # fmt: skip

    def feedback_for(self, request_id: str) -> list[Feedback]:
        """Return the judgements on one request, in the order they came."""
        return [
            Feedback(request_id=row[0], wall=row[1], label=row[2], reward=row[3], source=row[4])
            for row in self.query(
                "SELECT request_id, wall, label, reward, source FROM feedback WHERE request_id = ? ORDER BY number",
                (_storable(request_id),),
            )
        ]

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one query (the database is open for reading only).

        Raises:
            StoreError: SQLite refuses it; the message says why.
        """
        try:
            with self._lock:
                return self._database.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from error

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_dev


def _storable(request_id: str) -> str:
    return request_id.encode("utf-8", "replace").decode()


def _insert_records(database: sqlite3.Connection, values: list[Any]) -> None:
    """Insert rows that stand one after the other in `values`."""
    start = 0
    for rows, statement in _INSERTS:
        step = rows * _WIDTH
        while len(values) - start >= step:
            database.execute(statement, values[start : start + step])
            start += step
