"""Records as JSON lines in ECS form, for ELK and for every other reader of lines."""

from __future__ import annotations

import errno
import fcntl
import logging
import math
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rheostat.errors import StoreError
from rheostat.telemetry.base import Entry
from rheostat.telemetry.encode import Encoded, EntryEncoder, decode, finite
from rheostat.telemetry.text import MAX_TEXT, escape_invisible
from rheostat.types import Feedback, RouteRecord

ECS_VERSION = "8.11.0"
_OUTCOMES = {"ok": b"success", "degraded": b"success", "error": b"failure", "rejected": b"failure"}
# The line up to the entry's own JSON; joining bytes costs a quarter of encoding a struct.
_HEAD = (
    b'{"@timestamp":"%b.%06dZ",%b,"event":{"kind":"event","dataset":"rheostat.%b","id":%b,"sequence":%d,"outcome":"%b",'
    b'"duration":%d},"rheostat":{%b"%b":'
)
_ABSENT = Raw()
_LONGEST_S = 3e8  # nanoseconds beyond this do not fit a 64-bit number with room to spare

_log = logging.getLogger("rheostat.telemetry")


class _Ours(Struct, frozen=True, omit_defaults=True):
    changed: bool = False
    record: Raw = _ABSENT
    feedback: Raw = _ABSENT


class _Line(Struct, frozen=True):
    """The part of a line that is read back."""

    rheostat: _Ours


class JsonlSink:
    """Appends one line of JSON per entry to a file, a pipe or a terminal.

    ECS fields: `@timestamp`, `event.id`, `event.duration` (ns), `event.outcome`, `event.sequence` (rises by one with
    every row of this process, whatever the wall clock does), `trace.id`, `service.name`; everything else is the record
    itself under `rheostat.record`, or a judgement under `rheostat.feedback`. `rheostat.changed` marks a row in which
    characters were replaced or text was cut.

    A file that was renamed by a log rotator is opened anew. Several processes may append to one file. A batch (2,000 rows at
    most) is never split over two files.

    Args:
        path: the file; its folder is made if needed.
        service: the value of `service.name`.
        max_text: characters of one text that are kept.
        max_bytes: size in bytes at which the file becomes `path.1`, `path.1` becomes `path.2` and so on; 0: never.
        keep: how many of those are kept.
        mask: removes secrets from entries that carry an error.

    Raises:
        StoreError: the file cannot be opened for writing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        service: str = "rheostat",
        max_text: int = MAX_TEXT,
        max_bytes: int = 0,
        keep: int = 5,
        mask: Callable[[str], str] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self._max_bytes = max_bytes
        self._keep = max(1, keep)
        self.encoder = EntryEncoder(max_text=max_text, mask=mask)
        self._json = msgspec.json.Encoder().encode
        who = {"ecs": {"version": ECS_VERSION}, "service": {"name": service}, "process": {"pid": os.getpid()}}
        self._who = self._json(who)[1:-1]
        _, self._second, self._since = _second_of(0.0)  # of the last line: it is written out once a second
        self._sequence = 0
        self._rest = b""  # the end of a batch of which the store took only the beginning
        self._fd = -1
        self._regular = False
        try:
            os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
            self._open()
        except OSError as error:
            if error.errno != errno.ENXIO:  # a pipe that nobody reads yet: it is tried again when there is something to say
                raise StoreError(f"cannot write records to {self.path}: {error.strerror or error}") from error

    def write(self, entries: Sequence[Entry]) -> None:
        """Append the entries; after an OSError none of them is in the file."""
        self.write_encoded([self.encoder.encode(entry) for entry in entries])

    def write_encoded(self, batch: Sequence[Encoded]) -> None:
        """Append entries that are encoded already; after an OSError none of them is in the file."""
        if self._fd < 0:
            self._open()
        if self._rest:
            self._append(b"")
        before = self._sequence
        try:
            data = self._lines(batch)
            if self._regular:
                self._follow(len(data))
            self._append(data)
        except BaseException:
            self._sequence = before
            raise

    def close(self) -> None:
        """Write what is left of a batch and close the file."""
        if self._fd < 0:
            return
        try:
            if self._rest:
                self._append(b"")
        finally:
            os.close(self._fd)
            self._fd = -1

    def _lines(self, batch: Sequence[Encoded]) -> bytes:
        """Return the lines of a batch; in each, the entry's own JSON stands as it is."""
        parts: list[bytes] = []
        sequence, who, json = self._sequence, self._who, self._json
        second, since = self._second, self._since
        for encoded in batch:
            entry = encoded.entry
            sequence += 1
            wall = entry.wall
            if type(wall) is not float or not second <= wall < second + 1:
                wall, second, since = _second_of(finite(wall))
            micros = int((wall - second) * 1e6)
            changed = b'"changed":true,' if encoded.changed else b""
            end = b"}}\n"
            if isinstance(entry, RouteRecord):
                kind, request_id, outcome = b"record", entry.id, _OUTCOMES.get(entry.status, b"unknown")
                elapsed_s = entry.elapsed_s if type(entry.elapsed_s) is float else finite(entry.elapsed_s)
                duration = int(elapsed_s * 1e9 + 0.5) if 0.0 <= elapsed_s < _LONGEST_S else 0
                if entry.meta and (trace := _trace(entry.meta)):
                    end = b'},"trace":{"id":%b}}\n' % escape_invisible(json(trace))
            else:
                kind, request_id, outcome, duration = b"feedback", entry.request_id, b"unknown", 0
            head = _HEAD % (since, micros, who, kind, json(request_id), sequence, outcome, duration, changed, kind)
            parts += (head if head.isascii() else escape_invisible(head), encoded.data, end)
        self._sequence, self._second, self._since = sequence, second, since
        return b"".join(parts)

    def _append(self, data: bytes) -> None:
        """Write all of it, or raise with nothing new written; the end of a half-taken batch is kept and goes first."""
        data = self._rest + data
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:] if written else data)
            self._rest = b""
        except OSError:
            if written <= len(self._rest):
                self._rest = self._rest[written:]
                raise
            self._rest = data[written:]

    def _open(self) -> None:
        # Without O_NONBLOCK the opening of a pipe waits for its reader; afterwards waiting is right.
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o640)
        os.set_blocking(fd, True)
        self._fd = fd
        self._regular = stat.S_ISREG(os.fstat(fd).st_mode)
        if self._regular and self._torn():
            os.write(fd, b"\n")  # a crash left half a line; ours must not become its end

    def _torn(self) -> bool:
        with open(self.path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size == 0:
                return False
            file.seek(size - 1)
            return file.read(1) != b"\n"

    def _follow(self, coming: int) -> None:
        """Open the file anew when it was rotated away, and rotate it when `coming` bytes would make it too large."""
        if not self._is_ours():
            self._reopen()
        if self._max_bytes and os.fstat(self._fd).st_size + coming > self._max_bytes:
            fcntl.flock(self._fd, fcntl.LOCK_EX)  # another process may be about to do the same
            try:
                if self._is_ours() and os.fstat(self._fd).st_size:
                    for number in range(self._keep - 1, 0, -1):
                        if os.path.exists(f"{self.path}.{number}"):
                            os.replace(f"{self.path}.{number}", f"{self.path}.{number + 1}")
                    os.replace(self.path, f"{self.path}.1")
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            self._reopen()

    def _is_ours(self) -> bool:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return False
        mine = os.fstat(self._fd)
        return (found.st_ino, found.st_dev) == (mine.st_ino, mine.st_dev)

    def _reopen(self) -> None:
        old = self._fd
        self._open()
        os.close(old)


def read_records(path: str | os.PathLike[str]) -> Iterator[RouteRecord | Feedback]:
    """Read the entries of a file back, in order.

    A torn last line is left out (its writer may still be busy). Other lines that are no entries are left out too, and
    their number is logged as a warning.

    Raises:
        StoreError: the file holds lines, but none of them is an entry.
        OSError: it cannot be read.
    """
    decoder = msgspec.json.Decoder(_Line)
    good = bad = 0
    with open(path, "rb") as file:
        for line in file:
            try:
                entry = _entry(decoder.decode(line).rheostat)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                bad += line.endswith(b"\n") and not line.isspace()
                continue
            good += 1
            yield entry
    if bad and not good:
        raise StoreError(f"{os.fspath(path)} holds no Rheostat records: none of its {bad} lines is one")
    if bad:
        _log.warning("%s: %d lines are no records and were left out", os.fspath(path), bad)


def _entry(ours: _Ours) -> Entry:
    if ours.record is not _ABSENT:
        return decode(ours.record, RouteRecord)
    if ours.feedback is not _ABSENT:
        return decode(ours.feedback, Feedback)
    raise msgspec.DecodeError("neither a record nor a feedback")


def _second_of(wall: float) -> tuple[float, int, bytes]:
    """Return a time, the second it lies in, and how that second is written; 1970 for what no calendar has."""
    try:
        second = math.floor(wall)
        text = datetime.fromtimestamp(second, UTC).isoformat()[:19]
    except (ValueError, OverflowError, OSError):
        return _second_of(0.0)
    return wall, second, text.encode()


def _trace(meta: Any) -> str:
    """Find the trace in the request's meta: `trace_id`, or the second part of a W3C `traceparent`; "" when there is none."""
    found = meta.get("trace_id")
    if isinstance(found, str) and found:
        return found
    parent = meta.get("traceparent")
    parts = parent.split("-") if isinstance(parent, str) else ()
    return parts[1] if len(parts) >= 4 and len(parts[1]) == 32 else ""
