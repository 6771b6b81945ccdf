"""Files of tensors: a safetensors file, or a model's list in a weight store. Neither can hold code.

Source of the format: https://huggingface.co/docs/safetensors (8 bytes of length, a JSON header, the bytes).
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import IO, Any, NamedTuple

import msgspec

from rheostat.errors import WeightsError
from rheostat.weights.tensor import SIZES, Tensor, copy_bytes, digest_of, expected_size, is_possible, stamp_of

MANIFEST = "rheostat-weights/1"
_HASH = re.compile(r"[0-9a-f]{64}")
_MOST_HEADER = 100_000_000  # the format's own limit


class TensorSet(NamedTuple):
    """A model's tensors by name, and the texts that its file carries beside them."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(each.size for each in self.tensors.values())


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a model's list in a store."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


class _Given(msgspec.Struct, frozen=True):
    """What a safetensors header says of one tensor."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model in a store: its tensors by name, each with the hash that its bytes are stored under; `digest` is over all."""

    format: str
    digest: str
    tensors: dict[str, Entry]
    metadata: dict[str, str] = {}


def read_tensors(path: str | Path) -> TensorSet:
    """Read what a safetensors file, or a model's list in a weight store (`.json`), says about its tensors.

    The bytes themselves stay where they are.

    Raises:
        WeightsError: the file is not there, is neither of the two, or contradicts itself.
    """
    path = Path(path)
    try:
        found = path.stat()
        if not S_ISREG(found.st_mode):
            raise WeightsError(f"{path} is no file")
        read = _read(path.absolute(), stamp_of(found))
        for name, each in read.tensors.items():
            if each.sha256 and os.stat(each.path).st_size != each.size:
                raise WeightsError(f"{path.name}: tensor {name!r} is cut off in the store: {each.path}")
    except FileNotFoundError as error:
        lost = "" if error.filename == str(path) else ": a tensor is not in the store any more"
        raise WeightsError(f"{path} cannot be read{lost}: {error.filename} is not there") from error
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror}") from error
    return read


@lru_cache(maxsize=64)
def _read(path: Path, stamp: tuple[int, int, int]) -> TensorSet:
    """What a file says, read once as long as it does not change: a switch reads the same base again and again."""
    with path.open("rb") as file:
        if stamp_of(os.fstat(file.fileno())) != stamp:
            raise WeightsError(f"{path} was replaced while it was read; read it again")
        return _manifest(path, file.read()) if path.suffix == ".json" else _safetensors(path, file)


def blob_path(store: Path, sha256: str) -> Path:
    """Return where a store keeps the bytes of this hash."""
    return store / "blobs" / sha256[:2] / sha256[2:]


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file; a reader sees the old file or the whole new one, never a part.

    Bytes whose hash is known are held against it on their way.

    Raises:
        WeightsError: a tensor cannot be read, or is damaged; what was at `path` stays.
    """
    # Wide types first, as the format's own writer does, so that every tensor is aligned.
    names = sorted(tensors, key=lambda name: (-SIZES.get(tensors[name].dtype, 1), name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name in names:
        each = tensors[name]
        header[name] = {"dtype": each.dtype, "shape": list(each.shape), "data_offsets": [at, at + each.size]}
        at += each.size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with replacing(Path(path)) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            found = copy_bytes(tensors[name], file)
            if tensors[name].sha256 not in ("", found):
                raise WeightsError(f"tensor {name!r} in {tensors[name].path} is damaged: its bytes have another hash")


@contextmanager
def replacing(path: Path, folder: Path | None = None, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of `path` at once when the block ends well, and leaves no trace otherwise.

    Args:
        folder: where it grows, on the same disk (default: beside `path`).

    Raises:
        WeightsError: the disk is full, or the folder takes no files.
    """
    name = ""
    try:
        number, name = tempfile.mkstemp(dir=folder or path.parent, prefix=f".{path.name[:40]}-", suffix=".part")
        with open(number, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException as error:
        if name:
            Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise WeightsError(f"{path} cannot be written: {error.strerror or error}") from error
        raise


def _safetensors(path: Path, file: IO[bytes]) -> TensorSet:
    whole = os.fstat(file.fileno()).st_size
    stamp = stamp_of(os.fstat(file.fileno()))
    length = int.from_bytes(file.read(8), "little")
    if whole < 8 or not 2 <= length <= min(whole - 8, _MOST_HEADER):
        raise WeightsError(f"{path.name} is no safetensors file; pickled weights (.pt, .bin, .pkl) are never read")
    try:
        header = msgspec.convert(json.loads(file.read(length).decode(), object_pairs_hook=_named_once), dict[str, Any])
        metadata = msgspec.convert(header.pop("__metadata__", None) or {}, dict[str, str])
        "".join((*header, *metadata, *metadata.values())).encode()  # half of a character is no text
        given = {name: msgspec.convert(entry, _Given) for name, entry in header.items()}
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise WeightsError(f"{path.name} is no safetensors file: {error}") from error
    tensors = {
        name: Tensor(
            dtype=each.dtype,
            shape=each.shape,
            path=str(path),
            offset=8 + length + each.data_offsets[0],
            size=each.data_offsets[1] - each.data_offsets[0],
            stamp=stamp,
        )
        for name, each in given.items()
    }
    at = 8 + length
    for name, each in sorted(tensors.items(), key=lambda pair: (pair[1].offset, pair[1].size)):
        wanted = expected_size(each.dtype, each.shape)
        if each.offset != at or each.size < 0 or not is_possible(each.shape) or wanted not in (None, each.size):
            raise WeightsError(f"{path.name} contradicts itself about tensor {name!r}")
        at += each.size
    if at != whole:
        raise WeightsError(f"{path.name} is {'cut off' if whole < at else 'too long'}: {whole} bytes, {at} announced")
    return TensorSet(tensors, metadata)


def _named_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name stands in it twice")
    return made


def _manifest(path: Path, content: bytes) -> TensorSet:
    try:
        read = msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError as error:
        raise WeightsError(f"{path.name} is no model of a weight store: {error}") from error
    if read.format != MANIFEST:
        raise WeightsError(f"{path.name} has the format {read.format!r}, this version reads {MANIFEST!r}")
    tensors = {}
    for name, each in read.tensors.items():
        size = expected_size(each.dtype, each.shape)
        if size is None or not is_possible(each.shape) or not _HASH.fullmatch(each.sha256):
            raise WeightsError(f"{path.name} contradicts itself about tensor {name!r}")
        blob = blob_path(path.parent.parent, each.sha256)
        tensors[name] = Tensor(dtype=each.dtype, shape=each.shape, path=str(blob), offset=0, size=size, sha256=each.sha256)
    if digest_of(tensors) != read.digest:
        raise WeightsError(f"{path.name} contradicts itself: its tensors are not those that its `digest` is over")
    return TensorSet(tensors, read.metadata)
