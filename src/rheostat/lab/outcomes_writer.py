"""Writes an outcomes table bit by bit, so that a killed run goes on where it was."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import xxhash

from rheostat.errors import RheostatError
from rheostat.lab.outcomes import (
    ABSENT,
    FAILURE_KINDS,
    OK,
    SPLITS,
    ModelColumns,
    ModelInfo,
    OutcomesTable,
    Source,
)
from rheostat.lab.outcomes_file import save
from rheostat.types import Outcome

_FRAME: Final = struct.Struct("<IQ")  # length of the payload, its xxh3-64
_NO_FRAME: Final = 1 << 31  # a length beyond this is not a frame but rubbish


class ResumeError(RheostatError):
    """An unfinished run in the same folder cannot be continued; the message says why and what to do."""

    type = "resume_error"


class _Head(msgspec.Struct, frozen=True):
    """What must be the same for a run to be continued."""

    models: dict[str, ModelInfo]
    data_hash: str
    keep_inputs: bool
    keep_scores: bool
    format: int = 1


class _Cell(msgspec.Struct, frozen=True, array_like=True):
    label: str | None
    confidence: float | None
    latency_s: float
    cost: float
    failure: str | None
    scores: dict[str, float] | None


class _Row(msgspec.Struct, frozen=True, array_like=True):
    id: str
    split: int
    truth: str | None
    cells: dict[str, _Cell]
    input: str | None
    meta: str | None


class OutcomesWriter:
    """Appends rows to a journal in `folder`; `finish` turns it into a table.

    Rows go to the journal in checksummed frames of `batch` rows. What a kill tore off at the end is recognised when
    the folder is opened again and its rows are not in `done_ids`, so the caller does them again.

    Args:
        folder: made when absent; one writer at a time.
        models: name -> info, in the order the table is to have.
        data_hash: names the labelled set; a run over another set is refused. May be empty.
        sources: the labelled files.
        keep_inputs: also store each row's input and meta (needed to replay policies that read the request).
        keep_scores: also store score distributions (needed to replay blends).
        batch: rows per frame; at most this many are lost to a kill.

    Raises:
        ResumeError: the folder holds an unfinished run with other models, versions or data, or is in use.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        models: Mapping[str, ModelInfo],
        *,
        data_hash: str = "",
        sources: Sequence[Source] = (),
        keep_inputs: bool = True,
        keep_scores: bool = True,
        batch: int = 256,
    ) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._head = _Head(dict(models), data_hash, keep_inputs, keep_scores)
        self._sources = tuple(sources)
        self._batch = batch
        self._rows: list[_Row] = []
        self._done: set[str] = set()
        self._encoder, self._json = msgspec.msgpack.Encoder(), msgspec.json.Encoder(enc_hook=str)
        self._journal: BinaryIO = (self._folder / "journal.bin").open("a+b")
        try:
            self._lock()
            self._resume()
        except BaseException:
            self._journal.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ResumeError(f"{self._folder} is in use by another run; wait or name another folder") from None

    def _resume(self) -> None:
        self._journal.seek(0)
        head = _read_frame(self._journal)
        if head is None:  # new, or torn before anything was stored
            self._journal.truncate(0)
            self._put(self._encoder.encode(self._head))
            return
        try:
            found = msgspec.msgpack.decode(head, type=_Head)
        except msgspec.MsgspecError:
            raise ResumeError(f"{self._folder}/journal.bin is not ours or newer; choose another folder") from None
        if found != self._head or list(found.models) != list(self._head.models):
            if _read_frame(self._journal) is None:  # a run that never got to its first row: nothing is lost
                self._journal.seek(0)
                self._journal.truncate(0)
                self._put(self._encoder.encode(self._head))
                return
            raise ResumeError(
                f"{self._folder} holds an unfinished run with {_difference(found, self._head)}; "
                "delete the folder to begin anew, or name another one"
            )
        end = self._journal.tell()
        while (payload := _read_frame(self._journal)) is not None:
            self._done.update(row.id for row in _rows(payload))
            end = self._journal.tell()
        self._journal.truncate(end)

    def done_ids(self) -> frozenset[str]:
        """Return the ids of the rows that need not be done again."""
        return frozenset(self._done)

    def append(
        self,
        id: str,
        split: str,
        truth: str | None,
        outcomes: Mapping[str, Outcome],
        *,
        input: Any = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Add one row.

        Args:
            id: unique in the table.
            split: train, dev or test.
            truth: the right label, None when it is not known.
            outcomes: by model; a model that is left out counts as "no outcome recorded".
            input, meta: stored as JSON when inputs are kept.

        Raises:
            ValueError: the id is there already, the split is unknown, or an outcome's model is not in the table.
        """
        id = _storable(id)
        if id in self._done:
            raise ValueError(f"id {id!r} is in the table already; ids must be unique")
        if split not in SPLITS:
            raise ValueError(f"split: expected one of {', '.join(SPLITS)}, got {split!r}")
        if strangers := outcomes.keys() - self._head.models.keys():
            raise ValueError(f"outcomes of {', '.join(sorted(strangers))}, which the writer was not told of")
        keep = self._head.keep_inputs
        self._rows.append(
            _Row(
                id,
                SPLITS.index(split),
                None if truth is None else _storable(truth),
                {name: self._cell(outcome) for name, outcome in outcomes.items()},
                self._as_json(input) if keep and input is not None else None,
                self._as_json(meta) if keep and meta else None,
            )
        )
        self._done.add(id)
        if len(self._rows) >= self._batch:
            self.flush()

    def _cell(self, outcome: Outcome) -> _Cell:
        found = outcome.prediction
        kind = outcome.failure.kind if outcome.failure is not None else None
        if found is None:
            return _Cell(None, None, outcome.elapsed_s, outcome.cost, kind or "bad_output", None)
        scores = dict(found.scores) if found.scores is not None and self._head.keep_scores else None
        return _Cell(_storable(found.label), found.confidence, outcome.elapsed_s, outcome.cost, None, scores)

    def _as_json(self, value: Any) -> str:
        try:
            return self._json.encode(value).decode()
        except UnicodeEncodeError:  # lone surrogates: kept readable rather than lost
            return self._json.encode(_storable(str(value))).decode()

    def flush(self) -> None:
        """Put what was appended into the journal; it survives a kill of this process from here on."""
        if self._rows:
            self._put(self._encoder.encode(self._rows))
            self._rows = []

    def _put(self, payload: bytes) -> None:
        self._journal.write(_FRAME.pack(len(payload), xxhash.xxh3_64_intdigest(payload)) + payload)
        self._journal.flush()

    def close(self) -> None:
        """Flush and let go of the folder; the run can be continued later."""
        self.flush()
        os.fsync(self._journal.fileno())
        self._journal.close()

    def finish(self, path: str | os.PathLike[str] | None = None) -> OutcomesTable:
        """Merge the journal into a table, in the order the rows were appended.

        Args:
            path: where to save it; the folder is removed once it is saved. Without a path nothing is removed.

        Raises:
            OSError: the table cannot be written; the journal is still there.
        """
        self.flush()
        table = self._merge()
        if path is not None:
            save(table, path)
        os.fsync(self._journal.fileno())
        self._journal.close()
        if path is not None:
            (self._folder / "journal.bin").unlink()
            if not any(self._folder.iterdir()):
                self._folder.rmdir()
        return table

    def _batches(self) -> Iterator[list[_Row]]:
        self._journal.seek(0)
        _read_frame(self._journal)
        while (payload := _read_frame(self._journal)) is not None:
            yield _rows(payload)

    def _merge(self) -> OutcomesTable:
        names: set[str] = set()
        scored: set[str] = set()
        for rows in self._batches():
            for row in rows:
                if row.truth is not None:
                    names.add(row.truth)
                for model, cell in row.cells.items():
                    if cell.label is not None:
                        names.add(cell.label)
                    if cell.scores:
                        names.update(cell.scores)
                        scored.add(model)
        labels = tuple(sorted(names))
        code = {label: index for index, label in enumerate(labels)}
        chunks: dict[str, list[ModelColumns]] = {name: [] for name in self._head.models}
        ids: list[str] = []
        splits: list[int] = []
        truths: list[int] = []
        inputs: list[str | None] = []
        metas: list[str | None] = []
        for rows in self._batches():
            ids += [row.id for row in rows]
            splits += [row.split for row in rows]
            truths += [-1 if row.truth is None else code[row.truth] for row in rows]
            inputs += [row.input for row in rows]
            metas += [row.meta for row in rows]
            for name, parts in chunks.items():
                parts.append(_columns([row.cells.get(name) for row in rows], code, name in scored))
        return OutcomesTable(
            ids=np.array(ids, dtype=object),
            split=np.array(splits, dtype=np.int8),
            truth=np.array(truths, dtype=np.int32),
            labels=labels,
            columns={name: _joined(parts or [_columns([], code, False)]) for name, parts in chunks.items()},
            model_info=self._head.models,
            data_hash=self._head.data_hash,
            inputs=_kept(inputs),
            meta=_kept(metas),
            sources=self._sources,
        )


def _kept(values: list[str | None]) -> Any:
    return np.array(values, dtype=object) if any(value is not None for value in values) else None


def _storable(text: str) -> str:
    """Text as it can be stored: lone surrogates, which no file format takes, become question marks."""
    return text.encode("utf-8", "replace").decode()


def _difference(found: _Head, wanted: _Head) -> str:
    if list(found.models) != list(wanted.models):
        return f"models {', '.join(found.models)} instead of {', '.join(wanted.models)}"
    if found.data_hash != wanted.data_hash:
        return "another labelled file"
    changed = [name for name, info in found.models.items() if info != wanted.models[name]]
    return f"other settings or versions of {', '.join(changed)}" if changed else "other settings"


def _read_frame(file: BinaryIO) -> bytes | None:
    """The next whole frame, or None at the end or where a kill tore the file."""
    head = file.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    length, digest = _FRAME.unpack(head)
    payload = file.read(length) if length < _NO_FRAME else b""
    whole = len(payload) == length and xxhash.xxh3_64_intdigest(payload) == digest
    return payload if whole else None


def _rows(payload: bytes) -> list[_Row]:
    return msgspec.msgpack.decode(payload, type=list[_Row])


def _columns(cells: Sequence[_Cell | None], code: Mapping[str, int], scored: bool) -> ModelColumns:
    n = len(cells)
    label, failure = np.full(n, -1, np.int32), np.full(n, ABSENT, np.int8)
    confidence, latency, cost = np.full(n, np.nan), np.zeros(n), np.zeros(n)
    scores = np.full((n, len(code)), np.nan, np.float32) if scored else None
    for row, cell in enumerate(cells):
        if cell is None:
            continue
        latency[row], cost[row] = cell.latency_s, cell.cost
        failure[row] = OK if cell.failure is None else 1 + FAILURE_KINDS.index(cell.failure)
        if cell.label is not None:
            label[row] = code[cell.label]
        if cell.confidence is not None:
            confidence[row] = cell.confidence
        if scores is not None and cell.scores:
            scores[row] = 0.0
            scores[row, [code[name] for name in cell.scores]] = list(cell.scores.values())
    return ModelColumns(label, confidence, latency, cost, failure, scores)


def _joined(parts: list[ModelColumns]) -> ModelColumns:
    scores = [part.scores for part in parts if part.scores is not None]
    return ModelColumns(
        np.concatenate([part.label for part in parts]),
        np.concatenate([part.confidence for part in parts]),
        np.concatenate([part.latency_s for part in parts]),
        np.concatenate([part.cost for part in parts]),
        np.concatenate([part.failure for part in parts]),
        np.concatenate(scores) if scores else None,
    )
