"""Server-sent events: bytes in, events out, however the bytes are cut.

Source: the event stream format of the HTML standard, 9.2.6. Unlike there, what is no UTF-8 is not replaced, and what stands
at the end without an empty line after it is handed out by `end`: the reader judges it, who knows what came before.
"""

from __future__ import annotations

import re

from msgspec import Struct

from rheostat.errors import ModelError

LARGEST_EVENT = 1 << 20
"""Bytes of one event, its line under way included, that are held."""
_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class Event(Struct, frozen=True, gc=False):
    """One event: its lines of data, joined, and its name if it has one."""

    data: bytes
    name: bytes = b""


class SseParser:
    """Reads one stream. `feed` it everything in order, then call `end`."""

    __slots__ = ("_after_cr", "_data", "_first", "_kept", "_largest", "_name", "_parts", "_under_way")

    def __init__(self, largest: int = LARGEST_EVENT) -> None:
        self._largest = largest
        self._parts: list[bytes] = []  # of the line that is under way
        self._data: list[bytes] = []
        self._name = b""
        self._kept = 0  # bytes of data of the event that is under way
        self._under_way = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes.

        Raises:
            ModelError: `bad_output`: an event is too large.
        """
        if not chunk:
            return []
        if self._after_cr and chunk[:1] == b"\n":  # the second half of a line's end
            chunk = chunk[1:]
        self._after_cr = chunk[-1:] == b"\r"
        events: list[Event] = []
        *lines, rest = _LINE.split(chunk)
        for line in lines:
            if self._parts:
                self._parts.append(line)
                whole = b"".join(self._parts)
                self._parts, self._under_way = [], 0
            else:
                whole = line
            self._line(whole, events)
        if rest:
            self._parts.append(rest)
            self._under_way += len(rest)
            if self._kept + self._under_way > self._largest:
                raise self._too_large()
        return events

    def end(self) -> list[Event]:
        """Return what stands at the end of the stream without the empty line that ends an event."""
        events: list[Event] = []
        if self._parts:
            whole, self._parts = b"".join(self._parts), []
            self._line(whole, events)
        self._line(b"", events)
        return events

    def _line(self, line: bytes, events: list[Event]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(Event(self._data[0] if len(self._data) == 1 else b"\n".join(self._data), self._name))
            self._data, self._name, self._kept = [], b"", 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._kept += len(value) + 1
        elif field == b"event":
            self._name = value
        if self._kept > self._largest:
            raise self._too_large()

    def _too_large(self) -> ModelError:
        return ModelError("bad_output", f"an event of the stream has more than {self._largest} bytes")
