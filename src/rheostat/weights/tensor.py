"""One tensor of a model: its type, its shape, and where its bytes lie. Nothing is read until somebody wants the bytes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import IO

from msgspec import Struct

from rheostat.errors import WeightsError

SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
"""Bytes of one number, by the names of the safetensors format."""
_CHUNK = 1 << 18


class Tensor(Struct, frozen=True, kw_only=True):
    """A tensor in a file: `dtype` as safetensors names it, `size` bytes from `offset` of the file at `path`, little-endian
    and in row-major order. `sha256` is what its bytes should have, where the file that names it says so."""

    dtype: str
    shape: tuple[int, ...]
    path: str
    offset: int
    size: int
    sha256: str = ""

    @property
    def identity(self) -> tuple[str, int, int, int, int]:
        """What stays the same as long as the same bytes lie there: path, inode, time of change, place and size.

        Raises:
            WeightsError: the file is gone.
        """
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise WeightsError(f"{self.path} cannot be read: {error.strerror}") from error
        return (self.path, found.st_ino, found.st_mtime_ns, self.offset, self.size)


def hash_of(tensor: Tensor) -> str:
    """Return the SHA-256 of the tensor's bytes, read once for a file that does not change.

    Raises:
        WeightsError: the bytes are not there.
    """
    return _hashed(*tensor.identity)


def checked(name: str, tensor: Tensor) -> Tensor:
    """Return the tensor when its bytes have the hash that it should have.

    Raises:
        WeightsError: they have another one.
    """
    if tensor.sha256 and hash_of(tensor) != tensor.sha256:
        raise WeightsError(f"tensor {name!r} in {tensor.path} is damaged: its bytes have another hash than they should")
    return tensor


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """Return one hash over names, types, shapes and bytes of a model's tensors; bytes whose hash is known are not read."""
    lines = [[name, each.dtype, list(each.shape), each.sha256 or hash_of(each)] for name, each in sorted(tensors.items())]
    return hashlib.sha256(json.dumps(lines, separators=(",", ":")).encode()).hexdigest()


def copy_bytes(tensor: Tensor, out: IO[bytes] | None) -> str:
    """Write the tensor's bytes to `out`; return their SHA-256.

    Raises:
        WeightsError: there are fewer bytes than there should be.
    """
    found = hashlib.sha256()
    left = tensor.size
    room = memoryview(bytearray(min(left, _CHUNK)))
    try:
        with open(tensor.path, "rb", buffering=0) as file:
            file.seek(tensor.offset)
            while left:
                got = file.readinto(room[:left])
                if not got:
                    raise WeightsError(f"{tensor.path} is cut off: {left} bytes of a tensor are missing")
                left -= got
                found.update(room[:got])
                if out is not None:
                    out.write(room[:got])
    except OSError as error:
        raise WeightsError(f"{tensor.path} cannot be read: {error.strerror}") from error
    return found.hexdigest()


def expected_size(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return the bytes of such a tensor; None for a type that is not known."""
    return SIZES[dtype] * prod(shape) if dtype in SIZES else None


@lru_cache(maxsize=65_536)
def _hashed(path: str, inode: int, changed: int, offset: int, size: int) -> str:  # noqa: ARG001
    return copy_bytes(Tensor(dtype="U8", shape=(size,), path=path, offset=offset, size=size), None)
