"""One tensor of a model: its type, its shape, and where its bytes lie. Nothing is read until somebody wants the bytes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
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
_MOST_SIDES = 64  # more than any library takes


class Tensor(Struct, frozen=True, kw_only=True):
    """A tensor in a file: `dtype` as safetensors names it, `size` bytes from `offset` of the file at `path`, little-endian
    and in row-major order. `sha256` is what its bytes should have, where the file that names it says so; `stamp` the inode,
    time of change and size of the file whose header says so, as what a header says holds for that file only."""

    dtype: str
    shape: tuple[int, ...]
    path: str
    offset: int
    size: int
    sha256: str = ""
    stamp: tuple[int, int, int] | None = None

    @property
    def identity(self) -> tuple[str, int, int, int, int]:
        """What stays the same as long as the same bytes lie there: path, inode, time of change, place and size.

        Raises:
            WeightsError: the file is gone, or is another one than its header was read from.
        """
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise WeightsError(f"{self.path} cannot be read: {error.strerror}") from error
        if self.stamp not in (None, stamp_of(found)):
            raise WeightsError(f"{self.path} was replaced while it was read; read it again")
        return (self.path, found.st_ino, found.st_mtime_ns, self.offset, self.size)


def stamp_of(found: os.stat_result) -> tuple[int, int, int]:
    """Return what tells that a file is still the same: inode, time of change, size."""
    return (found.st_ino, found.st_mtime_ns, found.st_size)


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
        OSError: `out` takes no more.
    """
    found = hashlib.sha256()
    for part in _parts(tensor):
        found.update(part)
        if out is not None:
            out.write(part)
    return found.hexdigest()


def _parts(tensor: Tensor) -> Iterator[memoryview]:
    """Yield the bytes of a tensor in parts, each of which holds until the next is asked for."""
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
                yield room[:got]
    except OSError as error:
        raise WeightsError(f"{tensor.path} cannot be read: {error.strerror}") from error


def is_possible(shape: tuple[int, ...]) -> bool:
    """Return whether there can be such a tensor: at most 64 sides, none below 0, and numbers that 64 bits can count."""
    return len(shape) <= _MOST_SIDES and min(shape, default=0) >= 0 and prod(side or 1 for side in shape) < 2**60


def expected_size(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return the bytes of such a tensor; None for a type that is not known."""
    return SIZES[dtype] * prod(shape) if dtype in SIZES else None


@lru_cache(maxsize=65_536)
def _hashed(path: str, inode: int, changed: int, offset: int, size: int) -> str:  # noqa: ARG001
    return copy_bytes(Tensor(dtype="U8", shape=(size,), path=path, offset=offset, size=size), None)
