"""The outcomes table: request x model results of one labelled set, held column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isnan
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from rheostat.errors import FAILURES
from rheostat.types import Attempt, Failure, Outcome, Prediction, Request, text_of

SPLITS: Final = ("train", "dev", "test")
OK: Final = 0
ABSENT: Final = -1
FAILURE_KINDS: Final = tuple(FAILURES)
"""Code k > 0 in a failure column means FAILURE_KINDS[k - 1]; 0 means ok, -1 that no outcome was recorded at all."""

Ints = npt.NDArray[np.int32]
Codes = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float64]
Scores = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


class TrainingCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a model's trainer says about its training; every field is optional. Accuracies in [0, 1].

    `data_hash` is the content hash (sha256, hex) of the file it was trained on.
    """

    train_accuracy: float | None = None
    dev_accuracy: float | None = None
    converged: bool | None = None
    iterations: int | None = None
    max_iterations: int | None = None
    data_hash: str | None = None


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the table keeps about one model: the part of its settings that a replay or a report needs.

    `calibrated` says that its confidences went through a calibrator. `digest` names what answered (its settings and
    files), so that results of another file under the same version are not taken for its own.
    """

    version: str = "1"
    cost: float = 1.0
    tier: int = 0
    tags: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    lighter: str | None = None
    card: TrainingCard | None = None
    calibrated: bool = False
    digest: str = ""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One labelled file the rows came from: its name, the sha256 (hex) of its content, its split and its rows."""

    name: str
    hash: str
    split: str
    rows: int = 0


@dataclass(frozen=True, slots=True)
class ModelColumns:
    """One model's results, a value per row.

    Args:
        label: code into the table's labels, -1 where there is no prediction.
        confidence: in [0, 1], NaN where missing. Kept in full precision, so that a threshold chosen from the table
            accepts exactly the same rows when served.
        latency_s: seconds from call to result.
        cost: in the pool's unit of cost.
        failure: 0 ok, -1 no outcome recorded, else 1 + index into FAILURE_KINDS.
        scores: rows x labels distribution, a row of NaN where missing; None when the model has none at all.
    """

    label: Ints
    confidence: Floats
    latency_s: Floats
    cost: Floats
    failure: Codes
    scores: Scores | None = None

    def take(self, rows: npt.NDArray[Any]) -> ModelColumns:
        """Return the columns of the given rows (indices or a boolean mask)."""
        scores = None if self.scores is None else self.scores[rows]
        return ModelColumns(
            self.label[rows], self.confidence[rows], self.latency_s[rows], self.cost[rows], self.failure[rows], scores
        )


@dataclass(frozen=True)
class OutcomesTable:
    """Every model's result on every row of one labelled set.

    Args:
        ids: one string per row, unique.
        split: codes into SPLITS.
        truth: codes into `labels`, -1 where the right label is unknown.
        labels: every label that occurs, as truth or as prediction.
        columns: model name -> its results; the order of the models is the order given here (cheapest first by custom).
        model_info: model name -> version, cost, ...
        data_hash: names the labelled set; worked out from ids, splits and truth when empty.
        inputs: JSON of each row's input, None when inputs were not kept.
        meta: JSON of each row's meta, None when there is none.
        sources: the files the rows came from.

    Raises:
        ValueError: columns differ in length or a code is out of range; the message names the column.
    """

    ids: npt.NDArray[np.object_]
    split: Codes
    truth: Ints
    labels: tuple[str, ...]
    columns: Mapping[str, ModelColumns]
    model_info: Mapping[str, ModelInfo] = field(default_factory=dict)
    data_hash: str = ""
    inputs: npt.NDArray[np.object_] | None = None
    meta: npt.NDArray[np.object_] | None = None
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "labels", tuple(map(str, self.labels)))  # numpy's strings are no JSON
        missing = {name: ModelInfo() for name in self.columns if name not in self.model_info}
        if missing:
            object.__setattr__(self, "model_info", {**self.model_info, **missing})
        if not self.data_hash:
            object.__setattr__(self, "data_hash", content_hash(self))

    def _check(self) -> None:
        n, labels = len(self.ids), len(self.labels)
        arrays: dict[str, npt.NDArray[Any] | None] = {
            "split": self.split, "truth": self.truth, "inputs": self.inputs, "meta": self.meta
        }  # fmt: skip
        for name, columns in self.columns.items():
            for part in ("label", "confidence", "latency_s", "cost", "failure", "scores"):
                arrays[f"{name}.{part}"] = getattr(columns, part)
            if columns.scores is not None and columns.scores.shape[1:] != (labels,):
                raise ValueError(f"{name}.scores has shape {columns.scores.shape}, expected ({n}, {labels})")
        for name, array in arrays.items():
            if array is not None and len(array) != n:
                raise ValueError(f"column {name} has {len(array)} rows, the table has {n}")
            if array is not None and (name == "truth" or name.endswith(".label")) and n:
                low, high = int(array.min()), int(array.max())
                if low < -1 or high >= labels:
                    raise ValueError(f"column {name} holds code {high if high >= labels else low}: labels: {labels}")
        if n and not (self.split.min() >= 0 and self.split.max() < len(SPLITS)):
            raise ValueError(f"column split holds a code outside 0..{len(SPLITS) - 1} (train, dev, test)")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def models(self) -> tuple[str, ...]:
        """The models, in the table's order."""
        return tuple(self.columns)

    def model(self, name: str) -> ModelColumns:
        """Return one model's columns.

        Raises:
            KeyError: no such model; the message lists those there are.
        """
        try:
            return self.columns[name]
        except KeyError:
            raise KeyError(f"no model {name!r} in this outcomes table; it has: {', '.join(self.models)}") from None

    @cached_property
    def known(self) -> Bools:
        """Rows whose right label is known."""
        return self.truth >= 0

    def answered(self, name: str) -> Bools:
        """Return the rows on which the model gave a prediction."""
        columns = self.model(name)
        good: Bools = (columns.failure == OK) & (columns.label >= 0)
        return good

    def correct(self, name: str) -> Bools:
        """Return the rows on which the model's label is the right one; read it only where `known` and `answered`."""
        right: Bools = self.answered(name) & self.known & (self.model(name).label == self.truth)
        return right

    def complete(self, names: Sequence[str]) -> Bools:
        """Return the rows that figures over these models may use: truth known, and a prediction from each of them."""
        mask = self.known.copy()
        for name in names:
            mask &= self.answered(name)
        return mask

    def left_out(self, names: Sequence[str]) -> dict[str, int]:
        """Count, by reason, the rows that `complete` leaves out; a row counts once, under its first reason."""
        counts: dict[str, int] = {}
        rest = np.ones(len(self), dtype=bool)

        def count(reason: str, mask: Bools) -> None:
            nonlocal rest
            hit = rest & mask
            if hit.any():
                counts[reason] = int(hit.sum())
            rest = rest & ~mask

        count("no right label given", ~self.known)
        for name in names:
            failure = self.model(name).failure
            count(f"no outcome of {name} recorded", failure == ABSENT)
            for code in np.unique(failure[failure > 0]):
                count(f"{name} failed: {FAILURE_KINDS[code - 1]}", failure == code)
            count(f"{name} gave no label", ~self.answered(name))
        return counts

    def select(self, *, split: str) -> OutcomesTable:
        """Return the rows of one split.

        Raises:
            ValueError: the split is not train, dev or test.
        """
        if split not in SPLITS:
            raise ValueError(f"split: expected one of {', '.join(SPLITS)}, got {split!r}")
        return self.subset(self.split == SPLITS.index(split))

    def subset(self, rows: npt.NDArray[Any]) -> OutcomesTable:
        """Return the given rows (a boolean mask or indices); the data hash stays that of the whole set."""
        return replace(
            self,
            ids=self.ids[rows],
            split=self.split[rows],
            truth=self.truth[rows],
            columns={name: columns.take(rows) for name, columns in self.columns.items()},
            inputs=None if self.inputs is None else self.inputs[rows],
            meta=None if self.meta is None else self.meta[rows],
        )

    def request(self, row: int) -> Request:
        """Return the row as the request it was; without kept inputs its data is None and its text empty."""
        meta = _decoded(self.meta, row) or {}
        data = _decoded(self.inputs, row)
        session, tenant = meta.get("session"), meta.get("tenant")
        return Request(
            id=self.ids[row],
            data=data,
            text=text_of(data),
            meta=meta,
            session=session if isinstance(session, str) else None,
            tenant=tenant if isinstance(tenant, str) else None,
        )

    def outcome(self, name: str, row: int) -> Outcome | None:
        """Return one model's outcome on one row, None when none was recorded."""
        columns = self.model(name)
        code = int(columns.failure[row])
        if code == ABSENT:
            return None
        latency, cost = float(columns.latency_s[row]), float(columns.cost[row])
        failure = Failure(FAILURE_KINDS[code - 1]) if code > 0 else None
        prediction = None
        if failure is None and columns.label[row] >= 0:
            confidence = float(columns.confidence[row])
            prediction = Prediction(
                self.labels[columns.label[row]],
                None if isnan(confidence) else confidence,
                self._scores(columns, row),
            )
        elif failure is None:
            failure = Failure("bad_output", "no label")
        return Outcome(
            model=name,
            prediction=prediction,
            failure=failure,
            attempts=(Attempt(name, 0.0, latency, failure),),
            served_by=name,
            version=self.model_info[name].version,
            elapsed_s=latency,
            cost=cost,
        )

    def _scores(self, columns: ModelColumns, row: int) -> dict[str, float] | None:
        if columns.scores is None:
            return None
        values = columns.scores[row].tolist()
        return None if values and isnan(values[0]) else dict(zip(self.labels, values, strict=True))

    def row_outcomes(self, row: int) -> dict[str, Outcome]:
        """Return every recorded outcome of one row, by model."""
        found = ((name, self.outcome(name, row)) for name in self.columns)
        return {name: outcome for name, outcome in found if outcome is not None}


def _decoded(column: npt.NDArray[np.object_] | None, row: int) -> Any:
    if column is None or column[row] is None:
        return None
    return msgspec.json.decode(column[row])


def content_hash(table: OutcomesTable) -> str:
    """Return a hash of which rows with which right labels these are (not of what the models said)."""
    digest = xxhash.xxh3_128()
    used = np.unique(table.truth[table.truth >= 0])  # the models' own extra labels must not change the hash
    for code in used:
        digest.update(table.labels[code].encode("utf-8", "surrogatepass") + b"\x1f")
    digest.update("\x1f".join(map(str, table.ids)).encode("utf-8", "surrogatepass"))
    digest.update(np.ascontiguousarray(table.split).tobytes())
    truth = np.where(table.truth >= 0, np.searchsorted(used, table.truth), -1).astype(np.int32)
    digest.update(truth.tobytes())
    return f"xxh3:{digest.hexdigest()}"
