"""A store of tensors by what they contain: equal tensors of a family lie there once, whatever model brought them.

    DIR/models/NAME.json    a model: its tensors by name, with type, shape and hash
    DIR/blobs/ab/cdef...    the bytes of one tensor, under their SHA-256

A model's list is what a config names as `weights`. Every model and process that uses a tensor maps the same file, so that
the system keeps its pages once.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from rheostat.errors import WeightsError
from rheostat.weights.file import MANIFEST, Entry, Manifest, TensorSet, blob_path, read_tensors, replacing
from rheostat.weights.tensor import Tensor, copy_bytes, digest_of, expected_size, hash_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Added(NamedTuple):
    """What became of a model that was added: its tensors and bytes, and how many bytes the store did not have yet."""

    path: Path
    tensors: int
    bytes: int
    new_bytes: int


class Freed(NamedTuple):
    """What a collection freed: tensors that no model names any more, and leftovers of broken writes."""

    blobs: int
    leftovers: int
    bytes: int


class WeightStore:
    """A weight store in the folder `path`, which the first `add` makes. Several processes may use it at once."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def add(self, source: str | Path, name: str, replace: bool = False) -> Added:
        """Put the tensors of a file in the store, each under the hash of its bytes; one that is there already is checked,
        and written anew if it is damaged.

        Raises:
            WeightsError: the file cannot be read, the name cannot be one, it names other weights and not `replace`, or the
                disk is full; what the store had before stays.
        """
        if not _NAME.fullmatch(name):
            raise WeightsError(f"{name!r} cannot be a name in the store: letters, digits, `.`, `_` and `-`")
        given = read_tensors(source)
        self._made()
        entries = {key: _entry(key, tensor) for key, tensor in given.tensors.items()}
        digest = digest_of({key: _placed(self.path, entry) for key, entry in entries.items()})
        self._may_name(name, digest, replace)
        manifest = Manifest(format=MANIFEST, digest=digest, tensors=entries, metadata=dict(given.metadata))
        new = 0
        with self._locked(fcntl.LOCK_SH):
            for key, tensor in given.tensors.items():
                if not self._holds(entries[key].sha256, tensor.size):
                    self._write(tensor, entries[key].sha256)
                    new += tensor.size
            with self._locked(fcntl.LOCK_EX, "names"):  # or another may take the name between the look and the write
                self._may_name(name, digest, replace)
                with replacing(self._model(name), self.path / "parts") as file:
                    file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        return Added(self._model(name), len(entries), given.size, new)

    def models(self) -> dict[str, TensorSet]:
        """Return the models by name.

        Raises:
            WeightsError: there is no store, or a model's list or a tensor it names cannot be used.
        """
        self._found()
        return {path.stem: read_tensors(path) for path in sorted((self.path / "models").glob("*.json"))}

    def remove(self, name: str) -> None:
        """Take a model out; its tensors stay until `collect`.

        Raises:
            WeightsError: there is no such model.
        """
        path = self._model(name)
        if not _NAME.fullmatch(name) or not path.is_file():
            there = ", ".join(each.stem for each in sorted((self.path / "models").glob("*.json"))) or "none"
            raise WeightsError(f"there is no model {name!r} in {self.path}; there are: {there}")
        path.unlink()

    def collect(self) -> Freed:
        """Delete tensors that no model names, and what broken writes left. Models in service keep what they have mapped.

        Raises:
            WeightsError: there is no store, or a model's list cannot be read, so that what it needs is not known; nothing is
                deleted.
        """
        self._found()
        with self._locked(fcntl.LOCK_EX):
            wanted = {each.sha256 for path in (self.path / "models").glob("*.json") for each in _entries(path)}
            leftovers = [path for path in (self.path / "parts").glob(".*") if path.is_file()]
            blobs = [path for path in self._blobs() if f"{path.parent.name}{path.name}" not in wanted]
            freed = sum(path.stat().st_size for path in (*blobs, *leftovers))
            for path in (*blobs, *leftovers):
                path.unlink()
        return Freed(len(blobs), len(leftovers), freed)

    def verify(self) -> list[str]:
        """Read every tensor and hold it against its hash; return what is wrong, model by model.

        Raises:
            WeightsError: there is no store.
        """
        self._found()
        found = []
        for path in sorted((self.path / "models").glob("*.json")):
            try:
                entries = _entries(path)
            except WeightsError as error:
                found.append(f"{path.stem}: {error}")
                continue
            bad = [each for each in entries if not self._holds(each.sha256, expected_size(each.dtype, each.shape) or 0)]
            found += [f"{path.stem}: the tensor with hash {each.sha256[:12]} is missing or damaged" for each in bad]
        return found

    def _found(self) -> None:
        if not (self.path / "models").is_dir():
            raise WeightsError(f"there is no weight store at {self.path}")

    def _write(self, tensor: Tensor, sha256: str) -> None:
        target = blob_path(self.path, sha256)
        target.parent.mkdir(exist_ok=True)
        with replacing(target, self.path / "parts", 0o444) as file:
            if copy_bytes(tensor, file) != sha256:
                raise WeightsError(f"{tensor.path} changed while it was added; add it again")

    def _holds(self, sha256: str, size: int) -> bool:
        path = blob_path(self.path, sha256)
        if not path.is_file() or path.stat().st_size != size:
            return False
        return hash_of(Tensor(dtype="U8", shape=(size,), path=str(path.absolute()), offset=0, size=size)) == sha256

    def _blobs(self) -> list[Path]:
        return [path for path in (self.path / "blobs").glob("*/*") if path.is_file()]

    def _model(self, name: str) -> Path:
        return self.path / "models" / f"{name}.json"

    def _made(self) -> None:
        try:
            for folder in ("blobs", "models", "parts"):
                (self.path / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WeightsError(f"there can be no weight store at {self.path}: {error.strerror}") from error

    def _may_name(self, name: str, digest: str, replace: bool) -> None:
        try:
            known = msgspec.json.decode(self._model(name).read_bytes(), type=Manifest).digest
        except FileNotFoundError:
            return
        except msgspec.DecodeError:
            known = ""
        if not replace and known != digest:
            raise WeightsError(f"{name} names other weights in this store already; choose another name, or replace it")

    @contextmanager
    def _locked(self, kind: int, name: str = "lock") -> Iterator[None]:
        """Adding may go on side by side; a collection waits until nobody adds, so that it takes nothing away from them."""
        try:
            file = (self.path / name).open("a")
        except OSError as error:
            raise WeightsError(f"{self.path} cannot be written: {error.strerror}") from error
        with file:
            fcntl.flock(file, kind)
            yield


def _entries(path: Path) -> list[Entry]:
    try:
        return list(msgspec.json.decode(path.read_bytes(), type=Manifest).tensors.values())
    except msgspec.DecodeError as error:
        raise WeightsError(f"{path} is no model of a weight store: {error}") from error


def _entry(name: str, tensor: Tensor) -> Entry:
    if expected_size(tensor.dtype, tensor.shape) is None:
        raise WeightsError(f"tensor {name!r} has the type {tensor.dtype}, which the store does not know")
    return Entry(tensor.dtype, tensor.shape, hash_of(tensor))


def _placed(store: Path, entry: Entry) -> Tensor:
    path, size = str(blob_path(store.absolute(), entry.sha256)), expected_size(entry.dtype, entry.shape) or 0
    return Tensor(dtype=entry.dtype, shape=entry.shape, path=path, offset=0, size=size, sha256=entry.sha256)
