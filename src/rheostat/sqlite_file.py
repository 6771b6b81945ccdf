"""An SQLite file that a gateway writes while it serves, and the one thread that does it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from msgspec import Struct

from rheostat.clock import Clock
from rheostat.errors import StoreError

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]

PATIENCE_S = 0.5
"""How long a request waits for the file; one that is slower counts as away."""
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_SWITCHES = 50
_SWITCH_PAUSE_S = 0.01
_TOGETHER = 256  # jobs that share one transaction, and so one wait for the disk
_log = logging.getLogger("rheostat.store")


class Layout(Struct, frozen=True, kw_only=True):
    """What is in such a file. `what` and `without` are for the log: `results`, `no request can be promised an answer`;
    `setting` names the file in the config. With `synchronous: FULL` what was written survives a loss of power, with `NORMAL`
    the death of the process."""

    what: str
    without: str
    setting: str
    application_id: int
    version: int
    tables: str
    synchronous: Literal["FULL", "NORMAL"] = "FULL"


class _Job:
    __slots__ = ("alone", "done", "work")

    def __init__(self, work: Work, alone: bool = False) -> None:
        self.work = work
        self.alone = alone  # outside of a transaction
        self.done: Future[Any] = Future()


class SqliteFile:
    """Runs work on the SQLite file at `path` (WAL), each in a transaction, in a thread of its own.

    What `run` has returned survives the death of the process and, where the layout says so and the disk keeps its word, a
    loss of power. A file that fails or hangs is left alone for a growing while, during which `run` refuses at once.

    Args:
        mask: removes secrets from error texts.
        patience_s: longest wait in seconds for one piece of work.
    """

    def __init__(
        self, path: str, layout: Layout, clock: Clock, *, mask: Callable[[str], str] = str, patience_s: float = PATIENCE_S
    ) -> None:
        self.path = path
        self.layout = layout
        self.failures = 0
        self.last_error = ""
        self._clock = clock
        self._mask = mask
        self._patience_s = patience_s
        self._pause_s = 0.0
        self._away_until = float("-inf")
        self._database: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None  # begins with the first work

    @property
    def away(self) -> bool:
        """True while the store is left alone because it failed."""
        return self._clock.monotonic() < self._away_until

    async def run(self, work: Callable[[sqlite3.Connection], T], patience_s: float | None = None) -> T:
        """Return what `work` returned, once it is written.

        Raises:
            StoreError: the store is away, failed, or took longer than its patience. The work may still be done then.
        """
        found: T = await self._do(_Job(work), self._patience_s if patience_s is None else patience_s)
        return found

    async def tidy(self) -> None:
        """Move everything into the file itself, so that nothing of what was deleted is left in the log beside it.

        Raises:
            StoreError: as `run`.
        """
        await self._do(_Job(lambda database: database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone(), True), 30.0)

    async def _do(self, job: _Job, patience_s: float) -> Any:
        if self.away:
            raise StoreError(f"the store of {self.layout.what} is away: {self.last_error}")
        self._put(job)
        try:
            async with asyncio.timeout(patience_s):
                found = await asyncio.wrap_future(job.done)
        except TimeoutError:
            self._failed("it gave no answer in time")
            raise StoreError(f"the store of {self.layout.what} gave no answer in time: {self.path}") from None
        except sqlite3.Error as error:
            self._failed(f"{type(error).__name__}: {error}")
            raise StoreError(f"the store of {self.layout.what} failed: {self.last_error}") from error
        except OSError as error:
            self._failed(str(error))
            raise StoreError(f"the store of {self.layout.what} failed: {self.last_error}") from error
        if self._pause_s:
            self._pause_s = 0.0
            _log.info("%s: the store works again", self.layout.what)
        return found

    def close(self, timeout_s: float = 5.0) -> None:
        """Finish what is queued and close the file."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(timeout_s)

    def _put(self, job: _Job) -> None:
        self._jobs.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=f"rheostat-{self.layout.what}", daemon=True)
            self._thread.start()

    def _failed(self, why: str) -> None:
        self.failures += 1
        self.last_error = self._mask(why)[:500]
        if not self._pause_s:
            _log.error("%s: the store fails, %s: %s", self.layout.what, self.layout.without, self.last_error)
        self._pause_s = min(_LONGEST_PAUSE_S, 2 * self._pause_s or _FIRST_PAUSE_S)
        self._away_until = self._clock.monotonic() + self._pause_s

    def _serve(self) -> None:
        while True:
            jobs: list[_Job] = []
            job = self._jobs.get()
            while job is not None:
                if job.done.set_running_or_notify_cancel():
                    jobs.append(job)
                if len(jobs) >= _TOGETHER or self._jobs.empty():
                    break
                job = self._jobs.get()
            together = [each for each in jobs if not each.alone]
            for some in (together, *([each] for each in jobs if each.alone)):
                if some:
                    self._transact(some)
            if job is None:
                self._shut()
                return

    def _transact(self, jobs: list[_Job]) -> None:
        """Do the jobs in one transaction; when it fails, each by itself, so that none spoils another's."""
        try:
            database = self._open()
            if not jobs[0].alone:
                database.execute("BEGIN IMMEDIATE")
            found = [job.work(database) for job in jobs]
            if database.in_transaction:
                database.execute("COMMIT")
        except BaseException as error:  # the thread must live
            self._back_out(error)
            if len(jobs) > 1:
                for job in jobs:
                    self._transact([job])
                return
            jobs[0].done.set_exception(error)
            return
        for job, value in zip(jobs, found, strict=True):
            job.done.set_result(value)

    def _back_out(self, error: BaseException) -> None:
        database = self._database
        if database is None:
            return
        with contextlib.suppress(sqlite3.Error):
            if database.in_transaction:
                database.rollback()
        if isinstance(error, sqlite3.Error):  # opened anew next time: the file may have been repaired or replaced
            self._shut()

    def _open(self) -> sqlite3.Connection:
        """Return the open file; opened anew when somebody moved or deleted it."""
        if self._database is not None and _identity(self.path) != self._identity:
            self._shut()
        if self._database is None:
            self._database = connect(self.path, self.layout)
            self._identity = _identity(self.path)
        return self._database

    def _shut(self) -> None:
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None


def connect(path: str, layout: Layout) -> sqlite3.Connection:
    """Open the file, making it if it is absent; only its owner may read it, as what clients sent stands in it.

    Raises:
        StoreError: it is another program's or a later version's; it is left as it is.
        sqlite3.Error, OSError: it cannot be opened.
    """
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    uri = f"file:{quote(os.path.abspath(path))}?mode=rw"
    database = sqlite3.connect(uri, uri=True, timeout=2.0, isolation_level=None, check_same_thread=False)
    try:
        owner, version, tables = _whose(database)
        if owner != layout.application_id and (owner or tables):
            raise StoreError(f"{path} is another program's database; name another file in `{layout.setting}`")
        if version > layout.version:
            raise StoreError(f"{path} was written by a later Rheostat; upgrade, or name another file in `{layout.setting}`")
        _log_ahead(database)
        database.execute(f"PRAGMA synchronous = {layout.synchronous}")
        database.execute("PRAGMA secure_delete = ON")  # what is no longer needed is overwritten
        if owner != layout.application_id:
            database.execute("BEGIN IMMEDIATE")
            if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in layout.tables.split(";\n"):
                    database.execute(statement)
                database.execute(f"PRAGMA application_id = {layout.application_id}")
                database.execute(f"PRAGMA user_version = {layout.version}")
            database.execute("COMMIT")
    except BaseException:
        database.close()
        raise
    return database


def _whose(database: sqlite3.Connection) -> tuple[int, int, int]:
    """Return the program, the version and the number of tables of one moment: another process may be making them."""
    database.execute("BEGIN")
    owner = database.execute("PRAGMA application_id").fetchone()[0]
    tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    version = database.execute("PRAGMA user_version").fetchone()[0]
    database.execute("COMMIT")
    return owner, version, tables


def _log_ahead(database: sqlite3.Connection) -> None:
    """Switch to WAL; while another process does the same, SQLite refuses at once, whatever its timeout."""
    for left in reversed(range(_SWITCHES)):
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if not left:
                raise
            time.sleep(_SWITCH_PAUSE_S)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_dev
