"""The tables of the record database, and the check that a file is one."""

from __future__ import annotations

import os
import sqlite3
from urllib.parse import quote

from rheostat.errors import StoreError

APPLICATION_ID = 0x52484F53  # "RHOS"
SCHEMA_VERSION = 1
_MAGIC = b"SQLite format 3\x00"

RECORD_COLUMNS = (
    "seq", "id", "ts", "route", "status", "route_type", "reason", "label", "confidence", "selected_model",
    "selected_version", "level", "fallback_reason", "cost", "elapsed_s", "overhead_s", "deciding_s", "propensity",
    "policy_version", "config_version", "tenant", "session", "error_type", "changed", "record",
)  # fmt: skip
ATTEMPT_COLUMNS = (
    "seq", "position", "model", "version", "started_s", "elapsed_s", "failure", "upstream_status", "confidence", "label",
)  # fmt: skip

TABLES = """
CREATE TABLE records (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  ts REAL, route TEXT, status TEXT, route_type TEXT, reason TEXT, label TEXT, confidence REAL,
  selected_model TEXT, selected_version TEXT, level INTEGER, fallback_reason TEXT,
  cost REAL, elapsed_s REAL, overhead_s REAL, deciding_s REAL, propensity REAL,
  policy_version TEXT, config_version TEXT, tenant TEXT, session TEXT, error_type TEXT,
  changed INTEGER, record TEXT
);
CREATE INDEX records_by_time ON records (ts);
CREATE TABLE attempts (
  seq INTEGER NOT NULL, position INTEGER NOT NULL,
  model TEXT, version TEXT, started_s REAL, elapsed_s REAL, failure TEXT, upstream_status INTEGER,
  confidence REAL, label TEXT,
  PRIMARY KEY (seq, position)
) WITHOUT ROWID;
CREATE VIEW calls AS
  SELECT records.id, records.ts, records.route, records.status, attempts.*
  FROM attempts JOIN records USING (seq);
CREATE TABLE feedback (
  number INTEGER PRIMARY KEY,
  request_id TEXT NOT NULL, wall REAL, label TEXT, reward REAL, source TEXT
);
CREATE INDEX feedback_by_request ON feedback (request_id);
"""


def connect(path: str, *, write: bool) -> sqlite3.Connection:
    """Open the record database at `path`; with `write`, an absent or empty file becomes one.

    Raises:
        StoreError: it is absent (for reading), no SQLite file, damaged, another program's, or of a later version.
            The file is left as it is.
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
    if not _is_ours(database, path):
        if not write:
            raise StoreError(f"{path} holds no records yet")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("BEGIN IMMEDIATE")
        if not _is_ours(database, path):  # another process may have been quicker
            for statement in TABLES.split(";\n"):
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        database.execute("COMMIT")
    database.execute("SELECT seq FROM records ORDER BY seq DESC LIMIT 1").fetchone()
    if write:
        # In WAL mode NORMAL loses nothing when the process dies; a power cut may cost the last moments.
        database.execute("PRAGMA synchronous = NORMAL")


def _is_ours(database: sqlite3.Connection, path: str) -> bool:
    """Return True for a record database and False for an empty one; anything else raises."""
    owner = database.execute("PRAGMA application_id").fetchone()[0]
    version = database.execute("PRAGMA user_version").fetchone()[0]
    tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if owner == 0 and tables == 0:
        return False
    if owner != APPLICATION_ID:
        raise StoreError(f"{path} is another program's database; it was left as it is: name another file for the records")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a later Rheostat (schema {version}, this one knows {SCHEMA_VERSION}): "
            "upgrade, or name another file for the records"
        )
    return True
