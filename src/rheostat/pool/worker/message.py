"""What goes between the gateway and a worker process: MessagePack behind a length, never a pickle."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import DecodeError, Struct, ValidationError
from msgspec.msgpack import Decoder, Encoder, Ext

from rheostat.errors import ModelError
from rheostat.pool.backend import Reply, Row
from rheostat.pool.worker import arena as memory
from rheostat.pool.worker.arena import Arena
from rheostat.types import Prediction
from rheostat.types.text import well_formed

HEAD = struct.Struct("<IB")
"""Before every message: its length in bytes and its flags."""
PLACED, FAILED, HEAVY = 1, 2, 4
"""Flags: the message lies in the arena and this says where; the whole call failed; the process holds much memory."""
_ARRAY, _BYTES = 1, 2
_Said = tuple[str, str, int | None, float | None]
UNSENDABLE = (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError)
"""What is raised for a row or an answer that has no form between processes."""


class Place(Struct, array_like=True):
    """Where something lies in the arena."""

    start: int
    length: int


class ArrayForm(Struct, array_like=True):
    """A numpy array: its kind, its shape, and its numbers, as they are or by where they lie."""

    kind: str
    shape: tuple[int, ...]
    data: bytes | Place


class Ready(Struct, tag=True):
    """A worker process that has opened and tried its model; times in seconds, as in a contract's report. `code` are the
    files beside the config that the model was imported from, as they were: time of change, size, inode."""

    labels: tuple[str, ...] | None
    rows: int = 0
    row_s: float = 0.0
    slowest_s: float = 0.0
    skipped: str = ""
    code: dict[str, tuple[int, int, int]] = {}


class Refused(Struct, tag=True):
    """Why a worker process cannot serve: `problems` of the config (path and message), or one message of a `kind`."""

    kind: str
    message: str
    problems: tuple[tuple[str, str], ...] = ()


class Writer:
    """Writes rows and replies; large parts go into the arena, if there is one."""

    def __init__(self, arena: Arena | None = None) -> None:
        self._arena = arena
        self._encoder = Encoder(enc_hook=self._foreign)
        self._forms = Encoder()

    def rows(self, rows: Sequence[Row]) -> bytes:
        """Return the message with these rows; anything that is in the arena is overwritten.

        Raises:
            TypeError, ValueError, OverflowError, NotImplementedError, RecursionError: a row cannot be sent.
        """
        if self._arena is not None:
            self._arena.clear()
        payload = self._encoder.encode([row if type(row) is str else self._lifted(row) for row in rows])
        if len(payload) >= memory.SHARED_FROM and (place := self._place(payload)) is not None:
            payload = self._forms.encode(place)
            return HEAD.pack(len(payload), PLACED) + payload
        return HEAD.pack(len(payload), 0) + payload

    def replies(self, replies: Sequence[Any], heavy: bool = False) -> bytes:
        """Return the message with these replies; one that cannot be sent becomes `bad_output`."""
        flags = HEAVY if heavy else 0
        said = [_told(reply) for reply in replies]
        try:
            payload = self._encoder.encode(said)
        except UNSENDABLE:
            payload = self._encoder.encode([self._sendable(each) for each in said])
        return HEAD.pack(len(payload), flags) + payload

    def failure(self, error: ModelError, heavy: bool = False) -> bytes:
        """Return the message that says that the whole call failed."""
        payload = self._encoder.encode(_told(error))
        return HEAD.pack(len(payload), FAILED | (HEAVY if heavy else 0)) + payload

    def object(self, value: Any) -> bytes:
        """Return the message with one plain value."""
        payload = self._encoder.encode(value)
        return HEAD.pack(len(payload), 0) + payload

    def sendable(self, row: Row) -> Row | ModelError:
        """Return the row in a form that can be sent, or why there is none."""
        try:
            self._encoder.encode(row)
            return row
        except UnicodeEncodeError:
            return self.sendable(_mended(row))
        except UNSENDABLE as error:
            return ModelError("input_refused", f"this input cannot be sent to the model's process: {error}")

    def _sendable(self, said: Any) -> Any:
        try:
            self._encoder.encode(said)
            return said
        except UNSENDABLE as error:
            return ("bad_output", f"its answer cannot leave its process: {error}", None, None)

    def _lifted(self, row: Row) -> Any:
        """Return the row with large bytes put aside; arrays are met on the way (`_foreign`)."""
        if isinstance(row, bytes):
            return self._bytes(row)
        if isinstance(row, dict) and any(type(value) is bytes for value in row.values()):
            return {key: self._bytes(value) if type(value) is bytes else value for key, value in row.items()}
        return row

    def _bytes(self, data: bytes) -> Any:
        place = self._place(data)
        return data if place is None else Ext(_BYTES, self._forms.encode(place))

    def _place(self, data: bytes | memoryview) -> Place | None:
        if self._arena is None or len(data) < memory.SHARED_FROM:
            return None
        start = self._arena.put(data)
        return None if start is None else Place(start, len(data))

    def _foreign(self, value: Any) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            if isinstance(value, numpy.ndarray):
                return self._array(value)
            if isinstance(value, numpy.generic):
                return value.item()
        if isinstance(value, Mapping):
            return dict(value)
        raise NotImplementedError(f"objects of type {type(value).__name__} are not sent between processes")

    def _array(self, array: Any) -> Ext:
        if array.dtype.hasobject or array.dtype.fields:
            raise NotImplementedError(f"arrays of {array.dtype} are not sent between processes")
        flat = array.reshape(-1).view("u1").data if array.size and array.flags.c_contiguous else None
        data: memoryview | bytes = array.tobytes() if flat is None else flat
        place = self._place(data)
        return Ext(
            _ARRAY, self._forms.encode(ArrayForm(array.dtype.str, array.shape, bytes(data) if place is None else place))
        )


class Reader:
    """Reads rows and replies; what lies in the arena is not copied, except bytes."""

    def __init__(self, arena: Arena | None = None) -> None:
        self._arena = arena
        self._rows = Decoder(list[Any], ext_hook=self._extended)
        self._replies = Decoder(list[Prediction | _Said], ext_hook=self._extended)
        self._failure = Decoder(_Said)
        self._place = Decoder(Place)
        self._form = Decoder(ArrayForm)

    def rows(self, flags: int, payload: bytes | bytearray | memoryview) -> list[Row]:
        """Return the rows of a message."""
        return self._rows.decode(self._at(self._place.decode(payload)) if flags & PLACED else memoryview(payload))

    def replies(self, flags: int, payload: bytes | bytearray | memoryview) -> list[Reply]:
        """Return the replies of a message.

        Raises:
            ModelError: the whole call failed, or what came are no replies.
        """
        try:
            if flags & FAILED:
                raise _error(self._failure.decode(payload))
            return [each if type(each) is Prediction else _error(each) for each in self._replies.decode(payload)]
        except (DecodeError, ValidationError) as error:
            raise ModelError("bad_output", f"expected predictions: {error}") from None

    def _at(self, place: Place) -> memoryview:
        assert self._arena is not None
        return self._arena.view[place.start : place.start + place.length]

    def _extended(self, code: int, data: memoryview) -> Any:
        if code == _BYTES:
            return bytes(self._at(self._place.decode(data)))
        import numpy as np

        form = self._form.decode(data)
        numbers = self._at(form.data) if isinstance(form.data, Place) else form.data
        return np.frombuffer(numbers, form.kind).reshape(form.shape)


def _told(reply: Any) -> Any:
    if isinstance(reply, ModelError):
        return (reply.kind, str(reply), reply.upstream_status, reply.retry_after_s)
    if isinstance(reply, Prediction):
        return reply
    return ("bad_output", f"expected a Prediction, got {type(reply).__name__}", None, None)


def _error(said: Any) -> ModelError:
    kind, message, status, retry_after_s = said
    return ModelError(kind, message, upstream_status=status, retry_after_s=retry_after_s)


def _mended(row: Any) -> Any:
    """Return the row with characters replaced that are none, as every text model does."""
    if isinstance(row, str):
        return well_formed(row)
    if isinstance(row, Mapping):
        return {_mended(key): _mended(value) for key, value in row.items()}
    return [_mended(value) for value in row] if isinstance(row, list | tuple) else row
