"""Tensors of torch whose bytes stay in their files: mapped once in a process, and their pages shared by all processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from rheostat.errors import WeightsError
from rheostat.weights.tensor import Tensor, checked, stamp_of

_TYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "U16": "uint16", "I16": "int16", "F16": "float16", "BF16": "bfloat16", "U32": "uint32",
    "I32": "int32", "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64", "C64": "complex64",
}  # fmt: skip
_LOCK = Lock()


class MappedFile:
    """A file in memory, copy on write: code that changes its tensors gets pages of its own and never changes the file."""

    def __init__(self, path: str, size: int) -> None:
        import torch

        self.storage = torch.UntypedStorage.from_file(path, False, size)


_MAPPED: WeakValueDictionary[tuple[str, int, int, int], MappedFile] = WeakValueDictionary()
"""What this process has mapped, by path, inode, time of change and size: models that share a file share its mapping."""


def mapped(tensors: Mapping[str, Tensor], verify: bool) -> tuple[dict[str, Any], dict[str, MappedFile]]:
    """Return `torch.Tensor`s over the files' own bytes, and the file of each, to be held as long as the tensor is used.

    Args:
        verify: hold the bytes against the hashes that are known; files that did not change are read once in a process.

    Raises:
        WeightsError: a file is gone or damaged, or has a type that this torch does not know.
    """
    opened: dict[str, MappedFile] = {}
    files, made = {}, {}
    for name, tensor in tensors.items():
        if verify:
            checked(name, tensor)
        if tensor.size:
            if tensor.path not in opened:
                opened[tensor.path] = _file(tensor.path, tensor.stamp)
            files[name] = opened[tensor.path]
        made[name] = _tensor(name, tensor, files.get(name))
    return made, files


def _file(path: str, wanted: tuple[int, int, int] | None) -> MappedFile:
    """The file, mapped; `wanted` is the stamp of the one whose header was read."""
    try:
        stamp = stamp_of(Path(path).stat())
        key = (path, *stamp)
        with _LOCK:
            file = _MAPPED.get(key)
            if file is None:
                file = MappedFile(path, stamp[2])
                if stamp_of(Path(path).stat()) == stamp:
                    _MAPPED[key] = file
        if stamp_of(Path(path).stat()) != stamp or wanted not in (None, stamp):
            raise WeightsError(f"{path} was replaced while it was read; read it again")
        return file
    except (OSError, RuntimeError) as error:
        raise WeightsError(f"{path} cannot be mapped: {error}") from error


def _tensor(name: str, tensor: Tensor, file: MappedFile | None) -> Any:
    import torch

    dtype = getattr(torch, _TYPES.get(tensor.dtype, ""), None)
    if dtype is None:
        raise WeightsError(f"tensor {name!r} has the type {tensor.dtype}, which torch {torch.__version__} does not have")
    if file is None:
        return torch.empty(tensor.shape, dtype=dtype)
    if tensor.offset + tensor.size > file.storage.nbytes():
        raise WeightsError(f"{tensor.path} became shorter while it was read")
    if tensor.offset % dtype.itemsize == 0:
        empty = torch.empty(0, dtype=dtype)
        return empty.set_(file.storage, tensor.offset // dtype.itemsize, torch.Size(tensor.shape))
    whole = torch.empty(0, dtype=torch.uint8).set_(file.storage, tensor.offset, (tensor.size,))
    return whole.clone().view(dtype).reshape(tensor.shape)  # written without alignment: this one cannot be shared
