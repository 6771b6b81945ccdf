"""What is said to the file of promises: one function for each thing that happens to a promise. Times are wall time."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

import msgspec

from rheostat.results.result import Result, Waiting, read_input, read_reply

TABLES: Final = """
CREATE TABLE results (
  id TEXT PRIMARY KEY,
  request_id TEXT NOT NULL, route TEXT NOT NULL, tenant TEXT, state TEXT NOT NULL,
  created REAL NOT NULL, finished REAL NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,
  due REAL NOT NULL, until REAL NOT NULL,
  input BLOB, reply BLOB,
  post_due REAL, posts INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX results_by_route ON results (state, route, due);
CREATE INDEX results_by_end ON results (until);
CREATE INDEX results_to_post ON results (post_due) WHERE post_due IS NOT NULL
"""
"""`due` is when the route may be asked again, `until` when waiting ends, the result goes, or the row is forgotten."""

CLOCK_STEP_S = 3_600.0
"""A time further in the future than any pause is no appointment but a clock that was set back: it counts as due."""


def add(database: sqlite3.Connection, waiting: Waiting, data: bytes, due: float, until: float, most: int) -> bool:
    """Note a promise; False when `most` are waiting already."""
    if database.execute("SELECT count(*) FROM results WHERE state = 'pending'").fetchone()[0] >= most:
        return False
    database.execute(
        "INSERT INTO results (id, request_id, route, tenant, state, created, due, until, input) "
        "VALUES (?, ?, ?, ?, 'pending', ?, ?, ?, ?)",
        (
            waiting.id, waiting.request_id, waiting.route, waiting.tenant, waiting.created, due, until, data,
        ),
    )  # fmt: skip
    return True


def claim(
    database: sqlite3.Connection, now: float, room: Mapping[str, int], lease_s: Mapping[str, float], most: int
) -> list[tuple[Waiting, int]]:
    """Take what is due, what has been so for longest first: at most `room` a route and `most` in all, each with the number
    of earlier tries.

    Nobody else takes it for `lease_s` seconds; if it is not finished then, whoever had it is dead, and it is due again.
    """
    due: list[tuple[float, str, str]] = []
    for route, count in room.items():
        due += database.execute(
            "SELECT due, id, route FROM results WHERE state = 'pending' AND route = ? AND (due <= ? OR due > ?) "
            "ORDER BY due LIMIT ?",
            (route, now, now + CLOCK_STEP_S, min(count, most)),
        ).fetchall()
    found: list[tuple[Waiting, int]] = []
    for _, key, route in sorted(due)[:most]:
        data, attempts = database.execute("SELECT input, attempts FROM results WHERE id = ?", (key,)).fetchone()
        try:
            waiting = read_input(data)
        except (msgspec.MsgspecError, TypeError):  # a damaged row must not hold up the others
            database.execute("UPDATE results SET state = 'failed', finished = ?, input = NULL WHERE id = ?", (now, key))
            continue
        database.execute("UPDATE results SET due = ?, attempts = attempts + 1 WHERE id = ?", (now + lease_s[route], key))
        found.append((waiting, attempts))
    return found


def postpone(database: sqlite3.Connection, key: str, due: float, reply: bytes | None) -> None:
    """Try again at `due`; `reply` says how the last try failed, None when it was not one."""
    database.execute(
        "UPDATE results SET due = ?, reply = ifnull(?, reply), attempts = attempts - ? WHERE id = ? AND state = 'pending'",
        (due, reply, reply is None, key),
    )


def finish(
    database: sqlite3.Connection, key: str, state: str, reply: bytes, now: float, until: float, *, post: bool
) -> bool:
    """Store how it ended and delete the input; False when that was stored before, or the promise is over."""
    done = database.execute(
        "UPDATE results SET state = ?, reply = ?, finished = ?, until = ?, post_due = ?, input = NULL "
        "WHERE id = ? AND state = 'pending'",
        (state, reply, now, until, now if post else None, key),
    )
    return done.rowcount == 1


def find(database: sqlite3.Connection, key: str) -> Result | None:
    """Return a promise by its id."""
    row = database.execute(
        "SELECT state, request_id, route, tenant, created, finished, attempts, reply FROM results WHERE id = ?", (key,)
    ).fetchone()
    if row is None:
        return None
    state, request_id, route, tenant, created, finished, attempts, reply = row
    said = read_reply(reply) if state in ("done", "failed") else (None, None, None)
    return Result(
        id=key, state=state, request_id=request_id, route=route, tenant=tenant, created=created, finished=finished,
        attempts=attempts, record=said[0], prediction=said[1], error=said[2],
    )  # fmt: skip


def sweep(database: sqlite3.Connection, now: float, keep_s: float, *, post: bool) -> None:
    """Give up what waited too long, drop the content of old results, forget what is older still."""
    database.execute("DELETE FROM results WHERE until <= ? AND state = 'expired'", (now,))
    database.execute(
        "UPDATE results SET state = 'expired', reply = NULL, post_due = NULL, until = ? "
        "WHERE until <= ? AND state IN ('done', 'failed')",
        (now + keep_s, now),
    )
    database.execute(
        "UPDATE results SET state = 'failed', input = NULL, finished = ?, until = ?, post_due = ? "
        "WHERE until <= ? AND state = 'pending'",
        (now, now + keep_s, now if post else None, now),
    )


def counts(database: sqlite3.Connection) -> dict[str, int]:
    """Return how many there are by state, and under `posting` how many are still to be posted."""
    found = dict(database.execute("SELECT state, count(*) FROM results GROUP BY state").fetchall())
    posting = database.execute("SELECT count(*) FROM results WHERE post_due IS NOT NULL").fetchone()[0]
    return {**{state: found.get(state, 0) for state in ("pending", "done", "failed", "expired")}, "posting": posting}


def claim_posts(database: sqlite3.Connection, now: float, most: int, lease_s: float) -> list[tuple[Result, int]]:
    """Take results that are to be posted now, each with the number of earlier tries."""
    rows = database.execute(
        "SELECT id, posts FROM results WHERE post_due <= ? OR post_due > ? ORDER BY post_due LIMIT ?",
        (now, now + CLOCK_STEP_S, most),
    ).fetchall()
    found = []
    for key, posts in rows:
        database.execute("UPDATE results SET post_due = ?, posts = posts + 1 WHERE id = ?", (now + lease_s, key))
        result = find(database, key)
        if result is not None:
            found.append((result, posts))
    return found


def posted(database: sqlite3.Connection, key: str, due: float | None) -> None:
    """Note that a post was taken (None), or when it is to be tried again."""
    database.execute("UPDATE results SET post_due = ? WHERE id = ? AND post_due IS NOT NULL", (due, key))
