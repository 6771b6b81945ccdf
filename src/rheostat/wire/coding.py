"""Bodies that a server packs although it was asked not to: gzip and deflate are read, within bounds."""

from __future__ import annotations

import zlib

from rheostat.wire.failures import BrokenOff, TooLargeAnswer

_GZIP = 16 + zlib.MAX_WBITS
_LARGEST_STEP = 16 << 20
"""Bytes that one piece off the network may become: a piece of 256 kB that becomes more is made to do harm."""


class Decoder:
    """Unpacks one body, piece by piece."""

    __slots__ = ("_inner", "_kind", "_largest")

    def __init__(self, kind: bytes, largest: int) -> None:
        self._kind = kind
        self._largest = largest or _LARGEST_STEP
        self._inner = None if kind == b"deflate" else zlib.decompressobj(_GZIP)

    @property
    def ended(self) -> bool:
        """Whether the packed body is whole; an empty one is."""
        return self._inner is None or self._inner.eof

    def decode(self, data: bytes) -> bytes:
        """Return the next piece unpacked.

        Raises:
            BrokenOff: it is not packed as the server said.
            TooLargeAnswer: it becomes too large.
        """
        if self._inner is None:  # deflate is sent in two ways: with a zlib header, as the standard says, and without
            has_header = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0 if len(data) > 1 else True
            self._inner = zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
        try:
            made = self._inner.decompress(data, self._largest + 1)
        except zlib.error as error:
            raise BrokenOff(f"the body is not {self._kind.decode()}, as the server says: {error}") from None
        if len(made) > self._largest or self._inner.unconsumed_tail:
            raise TooLargeAnswer(f"more than {self._largest} bytes, unpacked")
        if self._inner.unused_data:
            raise BrokenOff("something stands behind the end of the packed body")
        return made


def decoder(coding: bytes, largest: int) -> Decoder | None:
    """Return what unpacks a content coding; None for one that packs nothing.

    Raises:
        BrokenOff: it is one that is not read.
    """
    kind = coding.strip().lower()
    if kind in (b"", b"identity"):
        return None
    if kind in (b"gzip", b"x-gzip"):
        return Decoder(b"gzip", largest)
    if kind == b"deflate":
        return Decoder(kind, largest)
    raise BrokenOff(f"the body is packed as {coding[:40].decode('latin-1')!r} although the request asked for none of that")
