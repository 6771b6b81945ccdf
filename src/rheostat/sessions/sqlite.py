"""Conversations in an SQLite file, which all processes of a machine may share."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final

from rheostat.clock import Clock
from rheostat.sessions.store import LEASE_S, OVERHEAD, Change, Kept, SessionKey, Told
from rheostat.sqlite_file import Layout, SqliteFile

LAYOUT: Final = Layout(
    what="sessions",
    without="requests that need what was said before are refused",
    setting="sessions.path",
    application_id=0x52485345,  # "RHSE"
    version=1,
    tables="""
CREATE TABLE sessions (
  id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, tenant TEXT, name TEXT NOT NULL,
  head BLOB NOT NULL, size INTEGER NOT NULL, used REAL NOT NULL, token TEXT NOT NULL, lease REAL NOT NULL
);
CREATE INDEX sessions_by_use ON sessions (used);
CREATE TABLE turns (
  number INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL REFERENCES sessions, turn BLOB NOT NULL
);
CREATE INDEX turns_by_session ON turns (session, number)
""",
    synchronous="NORMAL",
)
_SWEEP_EVERY = 64  # turns
_SWEEP_MOST = 500  # sessions at a time


class SqliteStore:
    """Keeps about `max_total` bytes at `path`, each session for `max_age_s` seconds after its last turn.

    What `close` has returned survives the death of the process; after a loss of power the last turns may be missing.
    """

    def __init__(self, path: str, clock: Clock, max_age_s: float, max_total: int, mask: Callable[[str], str] = str) -> None:
        self.file = SqliteFile(path, LAYOUT, clock, mask=mask)
        self._clock = clock
        self._max_age_s = max_age_s
        self._max_total = max_total
        self._unswept = 0

    async def open(self, key: SessionKey, token: str) -> Kept | None:
        return await self.file.run(lambda database: self._open(database, key, token))

    async def renew(self, key: SessionKey, token: str) -> bool:
        now = self._clock.wall()
        update = "UPDATE sessions SET lease = ? WHERE digest = ? AND token = ? AND lease > ?"
        values = (now + LEASE_S, key.digest, token, now)
        return await self.file.run(lambda database: database.execute(update, values).rowcount == 1)

    async def close(self, key: SessionKey, token: str, change: Change | None) -> bool:
        return await self.file.run(lambda database: self._close(database, key, token, change))

    async def forget(self, key: SessionKey) -> bool:
        def forgotten(database: sqlite3.Connection) -> bool:
            row = database.execute("SELECT id, used FROM sessions WHERE digest = ?", (key.digest,)).fetchone()
            if row is None:
                return False
            _delete(database, [row[0]])
            return bool(row[1])

        return await self.file.run(forgotten)

    async def told(self, most: int) -> Sequence[Told]:
        now = self._clock.wall()
        query = (
            "SELECT tenant, name, (SELECT count(*) FROM turns WHERE session = sessions.id), size, used, "
            "token != '' AND lease > ? AND lease <= ? FROM sessions WHERE used > ? ORDER BY used DESC, id DESC LIMIT ?"
        )
        values = (now, now + LEASE_S, max(0.0, now - self._max_age_s), most)
        rows = await self.file.run(lambda database: database.execute(query, values).fetchall())
        return [Told(tenant, name, turns, size, used, bool(busy)) for tenant, name, turns, size, used, busy in rows]

    async def aclose(self) -> None:
        self.file.close()

    def _open(self, database: sqlite3.Connection, key: SessionKey, token: str) -> Kept | None:
        now, digest = self._clock.wall(), key.digest
        row: Any = database.execute(
            "SELECT id, head, used, token, lease FROM sessions WHERE digest = ?", (digest,)
        ).fetchone()
        if row is not None and row[3] and now < row[4] <= now + LEASE_S:  # later than that: the clock was set back
            return None
        if row is not None and row[2] and now - row[2] >= self._max_age_s:
            _delete(database, [row[0]])
            row = None
        if row is None:
            database.execute(
                "INSERT INTO sessions (digest, tenant, name, head, size, used, token, lease) "
                "VALUES (?, ?, ?, ?, ?, 0, ?, ?)",
                (digest, key.tenant, key.name, b"", OVERHEAD, token, now + LEASE_S),
            )
            return Kept(b"", ())
        database.execute("UPDATE sessions SET token = ?, lease = ? WHERE id = ?", (token, now + LEASE_S, row[0]))
        turns = database.execute("SELECT turn FROM turns WHERE session = ? ORDER BY number", (row[0],)).fetchall()
        return Kept(row[1], tuple(turn for (turn,) in turns))

    def _close(self, database: sqlite3.Connection, key: SessionKey, token: str, change: Change | None) -> bool:
        now = self._clock.wall()
        row = database.execute(
            "SELECT id, used FROM sessions WHERE digest = ? AND token = ? AND lease > ?", (key.digest, token, now)
        ).fetchone()
        if row is None:
            return False
        (session, used) = row
        if change is None:
            if used:
                database.execute("UPDATE sessions SET token = '' WHERE id = ?", (session,))
            else:
                _delete(database, [session])
            return True
        numbers = [number for (number,) in database.execute(
            "SELECT number FROM turns WHERE session = ? ORDER BY number", (session,)
        )]  # fmt: skip
        gone = numbers[: change.first] + numbers[max(change.first, change.last) :]
        database.executemany("DELETE FROM turns WHERE number = ?", [(number,) for number in gone])
        database.executemany("INSERT INTO turns (session, turn) VALUES (?, ?)", [(session, turn) for turn in change.turns])
        (size,) = database.execute("SELECT ifnull(sum(length(turn)), 0) FROM turns WHERE session = ?", (session,)).fetchone()
        database.execute(
            "UPDATE sessions SET head = ?, size = ?, used = ?, token = '' WHERE id = ?",
            (change.head, OVERHEAD + len(change.head) + size, now, session),
        )
        self._sweep(database)
        return True

    def _sweep(self, database: sqlite3.Connection) -> None:
        """Now and then drop what is too old, and what is too much, a bounded number at a time."""
        self._unswept += 1
        if self._unswept < _SWEEP_EVERY:
            return
        self._unswept = 0
        now = self._clock.wall()
        free = "(token = '' OR lease <= ? OR lease > ?)"
        leases = (now, now + LEASE_S)
        old = database.execute(
            f"SELECT id FROM sessions WHERE used <= ? AND {free} ORDER BY used LIMIT ?",
            (now - self._max_age_s, *leases, _SWEEP_MOST),
        ).fetchall()
        _delete(database, [session for (session,) in old])
        over = database.execute("SELECT ifnull(sum(size), 0) FROM sessions").fetchone()[0] - self._max_total
        gone = []
        if over > 0:
            for session, size in database.execute("SELECT id, size FROM sessions ORDER BY used LIMIT ?", (_SWEEP_MOST,)):
                gone.append(session)
                over -= size
                if over <= 0:
                    break
        _delete(database, gone)


def _delete(database: sqlite3.Connection, sessions: Sequence[int]) -> None:
    rows = [(session,) for session in sessions]
    database.executemany("DELETE FROM turns WHERE session = ?", rows)
    database.executemany("DELETE FROM sessions WHERE id = ?", rows)
