"""The difference between two sets of weights: only the tensors that changed, and which two sets it lies between."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import structs

from rheostat.errors import WeightsError
from rheostat.weights.file import TensorSet, read_tensors, write_tensors
from rheostat.weights.tensor import Tensor, digest_of, hash_of

FORMAT = "rheostat-delta/1"


class Made(NamedTuple):
    """What a delta holds: tensors that differ of all that the new weights have, and their bytes of all bytes."""

    changed: int
    tensors: int
    changed_bytes: int
    bytes: int


def make_delta(old: str | Path, new: str | Path, out: str | Path) -> Made:
    """Write what has to change in `old` to have `new`.

    Raises:
        WeightsError: a file cannot be read.
    """
    base, target = _hashed(read_tensors(old)), _hashed(read_tensors(new))
    changed = {name: each for name, each in target.tensors.items() if not _same(base.tensors.get(name), each)}
    metadata = {
        "format": FORMAT,
        "base": digest_of(base.tensors),
        "target": digest_of(target.tensors),
        "removed": json.dumps(sorted(set(base.tensors) - set(target.tensors))),
        "sha256": json.dumps({name: each.sha256 for name, each in sorted(changed.items())}),
        "metadata": json.dumps(dict(target.metadata)),
    }
    write_tensors(out, changed, metadata)
    size = TensorSet(changed, {}).size
    return Made(len(changed), len(target.tensors), size, target.size)


def apply_delta(old: str | Path, delta: str | Path, out: str | Path) -> None:
    """Write the weights that `old` and the delta give together; every byte is held against its hash on its way.

    Raises:
        WeightsError: the delta is none, belongs to other weights, or is damaged; what was at `out` stays.
    """
    made = with_delta(_hashed(read_tensors(old)), delta)
    write_tensors(out, made.tensors, made.metadata)


def with_delta(base: TensorSet, delta: str | Path) -> TensorSet:
    """Return the weights that `base` and the delta give together. The changed tensors stay where they are, in the delta's
    file, and carry the hash that their bytes should have.

    Raises:
        WeightsError: the delta is none, or belongs to other weights.
    """
    path = Path(delta)
    read = read_tensors(path)
    if read.metadata.get("format") != FORMAT:
        raise WeightsError(f"{path.name} is no delta; `rheostat delta make OLD NEW -o {path.name}` makes one")
    told = _told(path, read.metadata)
    found = digest_of(base.tensors)
    if found != told.base:
        raise WeightsError(
            f"{path.name} changes other weights: it was made from {told.base[:12]}, these are {found[:12]}; "
            "make it again from the weights that are in use"
        )
    changed = {name: structs.replace(each, sha256=told.hashes.get(name, "-")) for name, each in read.tensors.items()}
    tensors = {name: each for name, each in base.tensors.items() if name not in told.removed} | changed
    if digest_of(tensors) != told.target:
        raise WeightsError(f"{path.name} contradicts itself: it does not lead to the weights it names")
    return TensorSet(tensors, told.metadata)


class _Told(NamedTuple):
    base: str
    target: str
    removed: Sequence[str]
    hashes: Mapping[str, str]
    metadata: Mapping[str, str]


def _told(path: Path, metadata: Mapping[str, str]) -> _Told:
    try:
        removed = msgspec.json.decode(metadata["removed"], type=list[str])
        hashes, kept = (msgspec.json.decode(metadata[key], type=dict[str, str]) for key in ("sha256", "metadata"))
        return _Told(metadata["base"], metadata["target"], removed, hashes, kept)
    except (KeyError, msgspec.DecodeError, RecursionError) as error:
        raise WeightsError(f"{path.name} is a damaged delta: {error}") from error


def _hashed(given: TensorSet) -> TensorSet:
    """The same tensors, each with the hash of its bytes."""
    return given._replace(tensors={name: _known(each) for name, each in given.tensors.items()})


def _known(tensor: Tensor) -> Tensor:
    return tensor if tensor.sha256 else structs.replace(tensor, sha256=hash_of(tensor))


def _same(one: Tensor | None, other: Tensor) -> bool:
    return one is not None and (one.dtype, one.shape, one.sha256) == (other.dtype, other.shape, other.sha256)
