"""The tables of the record database, and the check that a file is one."""

from __future__ import annotations

import os
import sqlite3
from urllib.parse import quote

from rheostat.errors import StoreError

APPLICATION_ID = 0x52484F53  # "RHOS"
SCHEMA_VERSION = 3
_MAGIC = b"SQLite format 3\x00"

_PAGE_BYTES = 8_192  # a page holds several records; the default of 4,096 holds two or three and costs a fifth more time
_CHECKPOINT_PAGES = 2_000

RECORD_COLUMNS = (
    "id", "ts", "route", "status", "label", "selected_model", "tenant", "cost", "elapsed_s", "changed", "record",
)  # fmt: skip
"""What is written to `record_rows`; the other columns of `records` are read out of the JSON when somebody asks for them."""


_DERIVED = {
    "route_type": "''", "reason": "''", "confidence": "NULL", "selected_version": "''", "level": "0",
    "fallback_reason": "''", "overhead_s": "0.0", "deciding_s": "0.0", "propensity": "1.0", "policy_version": "''",
    "config_version": "''", "session": "NULL", "error_type": "NULL",
}  # fmt: skip
_DERIVED_COLUMNS = ", ".join(  # the JSON leaves out what has its default
    f"ifnull(json_extract(record, '$.{name}'), {default}) AS {name}" for name, default in _DERIVED.items()
)
_MODEL = "json_extract(try.value, '$.model')"
_SERVED = f"{_MODEL} = ifnull(nullif(json_extract(told.value, '$.served_by'), ''), json_extract(told.value, '$.model'))"
_GOOD = f"{_SERVED} AND json_extract(try.value, '$.failure') IS NULL"

# Views, not generated columns: those would be worked out at every insert, though they are not stored.
TABLES = f"""
CREATE TABLE record_rows (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  ts REAL, route TEXT, status TEXT, label TEXT, selected_model TEXT, tenant TEXT, cost REAL, elapsed_s REAL,
  changed INTEGER, record TEXT
);
CREATE UNIQUE INDEX record_rows_by_id ON record_rows (id, ts);
CREATE INDEX record_rows_by_time ON record_rows (ts);
CREATE VIEW records AS
  SELECT seq, {", ".join(RECORD_COLUMNS)}, {_DERIVED_COLUMNS}
  FROM record_rows;
CREATE VIEW calls AS
  SELECT r.id, r.ts, r.route, r.status, r.seq,
    try.key + (
      SELECT ifnull(sum(json_array_length(earlier.value, '$.attempts')), 0)
      FROM json_each(r.record, '$.outcomes') AS earlier WHERE earlier.key < told.key
    ) AS position,
    {_MODEL} AS model,
    CASE WHEN {_SERVED} THEN ifnull(json_extract(told.value, '$.version'), '') ELSE '' END AS version,
    json_extract(try.value, '$.started_s') AS started_s,
    json_extract(try.value, '$.elapsed_s') AS elapsed_s,
    json_extract(try.value, '$.failure.kind') AS failure,
    json_extract(try.value, '$.failure.upstream_status') AS upstream_status,
    CASE WHEN {_GOOD} THEN json_extract(told.value, '$.prediction.confidence') END AS confidence,
    CASE WHEN {_GOOD} THEN json_extract(told.value, '$.prediction.label') END AS label
  FROM record_rows AS r, json_each(r.record, '$.outcomes') AS told, json_each(told.value, '$.attempts') AS try;
CREATE VIEW attempts AS
  SELECT seq, position, model, version, started_s, elapsed_s, failure, upstream_status, confidence, label FROM calls;
CREATE TABLE feedback (
  number INTEGER PRIMARY KEY,
  request_id TEXT NOT NULL, wall REAL, label TEXT, reward REAL, source TEXT
);
CREATE INDEX feedback_by_request ON feedback (request_id);
"""


def connect(path: str, *, write: bool) -> sqlite3.Connection:
    """Open the record database at `path`; with `write`, an absent or empty file becomes one.

    Raises:
        StoreError: it is absent (for reading), no SQLite file, damaged, another program's, of a later version, or (for
            writing) of an earlier one, which can still be read. The file is left as it is.
    """
    head = _head(path)
    if not head and not write:
        raise StoreError(f"no records at {path}: the file is absent or empty")
    if head and head != _MAGIC:
        raise StoreError(f"{path} is no SQLite database; it was left as it is: name another file for the records")
    try:
        uri = f"file:{quote(os.path.abspath(path))}?mode={'rwc' if write else 'ro'}"
        database = sqlite3.connect(uri, uri=True, timeout=5.0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise StoreError(f"cannot open the records at {path}: {error}") from error
    try:
        _prepare(database, path, write=write)
    except sqlite3.Error as error:
        database.close()
        raise StoreError(f"{path} cannot be used as a record database ({error}); it was left as it is") from error
    except StoreError:
        database.close()
        raise
    return database


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC))
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreError(f"cannot open the records at {path}: {error.strerror or error}") from error


def _prepare(database: sqlite3.Connection, path: str, *, write: bool) -> None:
    """Check whose file it is before anything in it is touched, then set it up."""
    if not _is_ours(database, path, write=write):
        if not write:
            raise StoreError(f"{path} holds no records yet")
        database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("BEGIN IMMEDIATE")
        if not _is_ours(database, path, write=write):  # another process may have been quicker
            for statement in TABLES.split(";\n"):
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        database.execute("COMMIT")
    database.execute("SELECT seq FROM records ORDER BY seq DESC LIMIT 1").fetchone()
    if write:
        # In WAL mode NORMAL loses nothing when the process dies; a power cut may cost the last moments.
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")


def _is_ours(database: sqlite3.Connection, path: str, *, write: bool) -> bool:
    """Return True for a record database and False for an empty one; anything else raises."""
    tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]  # first: they may be in the making
    owner = database.execute("PRAGMA application_id").fetchone()[0]
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if owner == 0 and tables == 0:
        return False
    if owner != APPLICATION_ID:
        raise StoreError(f"{path} is another program's database; it was left as it is: name another file for the records")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a later Rheostat (schema {version}, this one knows {SCHEMA_VERSION}): "
            "upgrade, or name another file for the records"
        )
    if write and version < SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by an earlier Rheostat (schema {version}, this one writes {SCHEMA_VERSION}): it can still "
            "be read, but name another file for new records, or move this one away"
        )
    return True
