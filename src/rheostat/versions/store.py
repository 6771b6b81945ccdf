"""The file in which versions are kept: their content by its hash, what happened to them, and the one that is pinned.

The functions work on an open file, for whoever asks without a gateway; `VersionStore` runs them for a gateway.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import Struct

from rheostat.clock import Clock
from rheostat.errors import NotFound
from rheostat.sqlite_file import Layout, SqliteFile

Action = Literal["serve", "rollback", "release"]
"""A config was taken up from the file; a kept version was put in its place; the file serves again."""
Sources = Mapping[str, bytes]
"""The files of a config by name; its own has the empty one."""
Stamps = Mapping[str, Sequence[Sequence[Any]]]
"""By model, what tells that its files are still the same: (setting, time of change in ns, bytes)."""
LAYOUT = Layout(
    what="versions",
    without="configs are served without being kept",
    setting="versions.path",
    application_id=0x52485653,  # "RHVS"
    version=1,
    tables="""
CREATE TABLE blobs (hash TEXT PRIMARY KEY, blob BLOB NOT NULL);
CREATE TABLE versions (version TEXT PRIMARY KEY, files TEXT NOT NULL, stamps TEXT NOT NULL);
CREATE TABLE changes (
  number INTEGER PRIMARY KEY AUTOINCREMENT, wall REAL NOT NULL, version TEXT NOT NULL, action TEXT NOT NULL,
  before TEXT NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL
);
CREATE TABLE pin (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, version TEXT NOT NULL,
  instead_of TEXT NOT NULL)
""",
)


class Change(Struct, frozen=True):
    """Something that happened: since `wall` (seconds since 1970) `version` serves, in the place of `before`."""

    number: int
    wall: float
    version: str
    action: Action
    before: str = ""
    who: str = ""
    why: str = ""


class Pin(Struct, frozen=True):
    """`version` serves although the config's file has other content, as long as that is `instead_of`. `number` is that of
    the change that made it so."""

    number: int
    version: str
    instead_of: str


class Version(Struct, frozen=True):
    """A version as it is kept."""

    version: str
    sources: Sources
    stamps: Stamps = {}


def find_version(database: sqlite3.Connection, name: str) -> Version:
    """Return the version of this name, or whose name begins so.

    Raises:
        NotFound: there is none, or there are several.
    """
    like = name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    rows = database.execute(
        "SELECT version, files, stamps FROM versions WHERE version LIKE ? ESCAPE '\\' LIMIT 2", (like,)
    ).fetchall()
    if len(rows) != 1 or not name:
        many = f"several versions begin with {name!r}" if rows and name else f"no version {name[:40]!r} is kept"
        raise NotFound(f"{many}; `rheostat versions` lists them", "version")
    version, files, stamps = rows[0]
    hashes: dict[str, str] = msgspec.json.decode(files)
    sources = {
        file: database.execute("SELECT blob FROM blobs WHERE hash = ?", (key,)).fetchone()[0] for file, key in hashes.items()
    }
    return Version(version, sources, msgspec.json.decode(stamps))


def list_changes(database: sqlite3.Connection, most: int) -> list[Change]:
    """Return what happened, the last first."""
    query = "SELECT number, wall, version, action, before, who, why FROM changes ORDER BY number DESC LIMIT ?"
    return [Change(*row) for row in database.execute(query, (most,))]


def pin_of(database: sqlite3.Connection) -> Pin | None:
    """Return the version that is pinned, if one is."""
    row = database.execute("SELECT number, version, instead_of FROM pin").fetchone()
    return None if row is None else Pin(*row)


def last_good(database: sqlite3.Connection, now: str) -> str:
    """Return the version that served before `now`, and from which nobody has gone back.

    Raises:
        NotFound: there is none.
    """
    left = {before for (before,) in database.execute("SELECT before FROM changes WHERE action = 'rollback'")}
    query = (
        "SELECT version FROM changes WHERE action != 'release' AND version != ? "
        "AND version IN (SELECT version FROM versions) ORDER BY number DESC"
    )
    for (version,) in database.execute(query, (now,)):
        if version not in left:
            found: str = version
            return found
    raise NotFound("there is no version before this one to go back to; `rheostat versions` lists all", "version")


def keep_version(database: sqlite3.Connection, version: Version, change: Change, most: int) -> int:
    """Keep a version, and that it serves from now on; the oldest go where there are more than `most`.

    Returns the change's number; 0 where the same version served already, and nothing was written down.
    """
    last = database.execute("SELECT version FROM changes ORDER BY number DESC LIMIT 1").fetchone()
    if change.action == "serve" and last is not None and last[0] == change.version:
        return 0
    hashes = {name: sha256(blob).hexdigest() for name, blob in version.sources.items()}
    database.executemany(
        "INSERT OR IGNORE INTO blobs VALUES (?, ?)", [(hashes[name], blob) for name, blob in version.sources.items()]
    )
    values = (version.version, _json(hashes), _json(version.stamps))
    database.execute("INSERT OR REPLACE INTO versions VALUES (?, ?, ?)", values)
    number = _told(database, change)
    _tidy(database, most)
    return number


def set_pin(database: sqlite3.Connection, pin: Pin | None) -> None:
    """Pin a version, or none."""
    database.execute("DELETE FROM pin")
    if pin is not None:
        database.execute("INSERT INTO pin VALUES (1, ?, ?, ?)", (pin.number, pin.version, pin.instead_of))


class VersionStore:
    """The versions of one config, for gateways that serve it."""

    def __init__(self, path: str, keep: int, clock: Clock, mask: Callable[[str], str]) -> None:
        self.file = SqliteFile(path, LAYOUT, clock, mask=mask, patience_s=2.0)
        self._keep = keep
        self._clock = clock

    async def pin(self) -> Pin | None:
        """Return the version that is pinned, if one is.

        Raises (every method):
            StoreError: the file cannot be used now.
        """
        return await self.file.run(pin_of)

    async def version(self, name: str) -> Version:
        """Return a version. Raises NotFound."""
        return await self.file.run(lambda database: find_version(database, name))

    async def changes(self, most: int) -> list[Change]:
        """Return what happened, the last first."""
        return await self.file.run(lambda database: list_changes(database, most))

    async def last_good(self, now: str) -> str:
        """Return the version to go back to from `now`. Raises NotFound."""
        return await self.file.run(lambda database: last_good(database, now))

    async def served(self, version: Version, before: str) -> None:
        """Keep a version that was taken up from the file; nothing is pinned any more."""
        change = Change(0, self._clock.wall(), version.version, "serve", before, "file")

        def serve(database: sqlite3.Connection) -> None:
            keep_version(database, version, change, self._keep)
            set_pin(database, None)

        await self.file.run(serve)

    async def pinned(self, version: Version, instead_of: str, before: str, who: str, why: str) -> Pin:
        """Pin a version that serves now."""
        change = Change(0, self._clock.wall(), version.version, "rollback", before, who, why)

        def pin(database: sqlite3.Connection) -> Pin:
            made = Pin(keep_version(database, version, change, self._keep), version.version, instead_of)
            set_pin(database, made)
            return made

        return await self.file.run(pin)

    async def released(self, version: Version, before: str, who: str, why: str) -> None:
        """Pin nothing: the file serves again."""
        change = Change(0, self._clock.wall(), version.version, "release", before, who, why)

        def release(database: sqlite3.Connection) -> None:
            keep_version(database, version, change, self._keep)
            set_pin(database, None)

        await self.file.run(release)


def _told(database: sqlite3.Connection, change: Change) -> int:
    values = (change.wall, change.version, change.action, change.before, change.who, change.why)
    cursor = database.execute(
        "INSERT INTO changes (wall, version, action, before, who, why) VALUES (?, ?, ?, ?, ?, ?)", values
    )
    return cursor.lastrowid or 0


def _tidy(database: sqlite3.Connection, most: int) -> None:
    """Drop versions that have not served for longest, but not one that is pinned, and content that no version has."""
    old = database.execute(
        "SELECT version FROM versions WHERE version NOT IN (SELECT version FROM pin) "
        "ORDER BY (SELECT max(number) FROM changes WHERE changes.version = versions.version) DESC LIMIT -1 OFFSET ?",
        (most,),
    ).fetchall()
    if not old:
        return
    database.executemany("DELETE FROM versions WHERE version = ?", old)
    used = {
        key for (files,) in database.execute("SELECT files FROM versions") for key in msgspec.json.decode(files).values()
    }
    gone = [(key,) for (key,) in database.execute("SELECT hash FROM blobs") if key not in used]
    database.executemany("DELETE FROM blobs WHERE hash = ?", gone)


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
