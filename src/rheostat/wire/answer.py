"""An answer on its way in: bytes in any cut, then status, headers and body. No sockets here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from rheostat.wire.coding import Decoder, decoder
from rheostat.wire.failures import BrokenOff, TooLargeAnswer, WireError

MAX_HEAD = 65_536
"""Bytes that a status line and headers, or what stands between two pieces of a body, may have together."""
_MAX_INTERIM = 10
_FRAMING = frozenset((b"content-length", b"transfer-encoding", b"content-encoding"))
_VERSIONS = frozenset(("1.1", "1.0"))
Pairs = list[tuple[bytes, bytes]]


class Answer(NamedTuple):
    """A whole answer; the names of its headers are in lower case."""

    status: int
    headers: Pairs
    body: bytes


class AnswerParser:
    """Reads the answers of one connection, one after the other; `clear` comes before each.

    `begun` says that something came, `headed` that `status` and `headers` are known, `complete` that the body is whole,
    `reusable` that the connection may carry another request.
    """

    __slots__ = (
        "_decoder", "_delimited", "_fault", "_interim", "_parser", "_parts", "_quiet", "begun", "buffered", "complete",
        "headed", "headers", "largest", "reusable", "status",
    )  # fmt: skip

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self.clear(0)

    def clear(self, largest: int) -> None:
        """Get ready for the next answer; `largest` bounds what is held of its body at a time (0: the reader does)."""
        self.largest = largest
        self.begun = self.headed = self.complete = False
        self.reusable = True
        self.status = self.buffered = 0
        self.headers: Pairs = []
        self._parts: list[bytes] = []
        self._quiet = self._interim = 0
        self._delimited = False
        self._decoder: Decoder | None = None
        self._fault: WireError | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            WireError: they are no HTTP, or too much.
        """
        if self.complete:  # what follows an answer is nobody's
            self.reusable = False
            return
        self.begun = True
        self._quiet += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self.reusable = False
            if not self.complete and self._fault is None:
                raise BrokenOff(f"what came is no HTTP/1.1 answer: {str(error)[:100]}") from None
        if self._fault is not None and not self.complete:
            raise self._fault
        if self._quiet > MAX_HEAD and not self.complete:
            raise TooLargeAnswer(f"headers, or what stands between pieces of a body, of more than {MAX_HEAD} bytes")

    def end(self) -> None:
        """Take note that nothing more comes: that ends a body without a length.

        Raises:
            BrokenOff: the answer is cut short.
        """
        self.reusable = False
        if self.complete:
            return
        if not self.headed:
            raise BrokenOff("the connection was closed in the middle of an answer" if self.begun else "no answer came")
        if self._delimited:
            raise BrokenOff("the connection was closed in the middle of an answer's body")
        self._completed()
        if self._fault is not None:
            raise self._fault

    def take(self) -> bytes:
        """Return what has come of the body since the last time."""
        parts = self._parts
        if not parts:
            return b""
        self._parts, self.buffered = [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # what the parser calls

    def on_message_begin(self) -> None:
        if self.complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.headed:  # a trailer, or another answer, which nobody asked for
            return
        name = name.lower()
        if name in _FRAMING:
            self._framing(name, value)
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.headed:
            self.reusable = False
            return
        parser = self._parser
        status = parser.get_status_code()
        if parser.get_http_version() not in _VERSIONS:
            self._wrong("the server does not speak HTTP/1.1")
        elif status < 200:
            self._interim += 1
            if status == 101 or status < 100 or self._interim > _MAX_INTERIM:
                self._wrong(f"the server answered {status}, which nobody asked for")
        else:
            self.status = status
            self.headed = True
            self._quiet = 0

    def on_body(self, body: bytes) -> None:
        if self.complete:
            return
        self._quiet = 0
        if self._decoder is not None and self._fault is None:
            try:
                body = self._decoder.decode(body)
            except WireError as error:
                self._fault = error
        self._parts.append(body)
        self.buffered += len(body)
        if self.largest and self.buffered > self.largest:
            self._fault = TooLargeAnswer(f"more than {self.largest} bytes")
            self._parts, self.buffered = [], 0

    def on_message_complete(self) -> None:
        if not self.headed:  # an interim answer: the real one follows
            self.headers = []
            self._decoder = None
            self._delimited = False
        elif not self.complete:
            self.reusable = self.reusable and self._parser.should_keep_alive()
            self._completed()

    def _completed(self) -> None:
        if self._decoder is not None and self._fault is None and not self._decoder.ended:
            self._fault = BrokenOff("the compressed body is cut short")
        self.complete = self._fault is None

    def _framing(self, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            self._delimited = True
            if self.largest and value.isdigit() and int(value[:20]) > self.largest:
                self._fault = TooLargeAnswer(f"more than {self.largest} bytes")
        elif name == b"transfer-encoding":
            self._delimited = True
            if value.strip().lower() != b"chunked":
                self._wrong("the only transfer encoding that is read is chunked")
        else:
            try:
                self._decoder = decoder(value, self.largest)
            except WireError as error:
                self._fault = error

    def _wrong(self, told: str) -> None:
        self._fault = BrokenOff(told)


def header(headers: Pairs, name: bytes) -> str | None:
    """Return the first value of a header, by its name in lower case."""
    for known, value in headers:
        if known == name:
            return value.decode("latin-1")
    return None


class ShownHeaders(Mapping[str, str]):
    """An answer's headers, found by a name in any case."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs

    def __getitem__(self, name: str) -> str:
        found = header(self._pairs, name.lower().encode("latin-1", "replace"))
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.decode("latin-1") for name, _ in self._pairs))

    def __len__(self) -> int:
        return len(dict(self._pairs))
