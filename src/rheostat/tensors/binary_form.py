"""A tensor as bytes: little-endian, row-major, without gaps; each text behind its length in four bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from rheostat.tensors.tensor import Tensor, TensorError, count, shown

_CODES = {
    "BOOL": "?", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I",
    "UINT64": "Q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
_LENGTH = struct.Struct("<I")


def from_bytes(name: str, datatype: str, shape: Sequence[int], raw: bytes | memoryview) -> Tensor:
    """Read a tensor of this datatype and shape; no more is made than there are bytes for.

    Raises:
        TensorError: the bytes are fewer or more than the shape says, or a text is not UTF-8.
    """
    number = count(shape)
    if datatype == "BYTES":
        return Tensor(name, datatype, shape, _texts(name, number, raw))
    code = _CODES[datatype]
    size = struct.calcsize(f"<{code}")
    if number * size != len(raw):
        raise TensorError(f"{name!r} in the shape {shown(list(shape))} takes {number * size} bytes, got {len(raw)}")
    return Tensor(name, datatype, shape, struct.unpack(f"<{number}{code}", raw))


def to_bytes(tensor: Tensor) -> bytes:
    """Return the values as bytes.

    Raises:
        TensorError: a number does not fit its datatype.
    """
    values: Sequence[Any] = tensor.values
    if tensor.datatype == "BYTES":
        parts: list[bytes] = []
        for value in values:
            encoded = value.encode()
            parts += (_LENGTH.pack(len(encoded)), encoded)
        return b"".join(parts)
    try:
        return struct.pack(f"<{len(values)}{_CODES[tensor.datatype]}", *values)
    except (struct.error, OverflowError) as error:
        raise TensorError(f"a value of {tensor.name!r} is no {tensor.datatype}: {error}") from None


def text_of(name: str, raw: bytes | memoryview) -> str:
    """Return the text in some bytes.

    Raises:
        TensorError: they are not UTF-8.
    """
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise TensorError(f"a text in {name!r} is not UTF-8 (its byte {error.start})") from None


def _texts(name: str, number: int, raw: bytes | memoryview) -> list[str]:
    if number * _LENGTH.size > len(raw):
        raise TensorError(f"{name!r} holds {number} texts by its shape, and {len(raw)} bytes are too few for them")
    texts: list[str] = []
    at = 0
    for _ in range(number):
        start = at + _LENGTH.size
        end = start + _LENGTH.unpack_from(raw, at)[0] if start <= len(raw) else start
        if end > len(raw):
            raise TensorError(f"text {len(texts)} of {name!r} ends behind its {len(raw)} bytes")
        texts.append(text_of(name, raw[start:end]))
        at = end
    if at != len(raw):
        raise TensorError(f"{name!r} has {len(raw)} bytes, its {number} texts take {at}")
    return texts
