"""Outcomes tables on disk: one Parquet file with wide columns, its header in the file's own metadata."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from rheostat.errors import RheostatError
from rheostat.lab.outcomes import (
    ABSENT,
    FAILURE_KINDS,
    SPLITS,
    ModelColumns,
    ModelInfo,
    OutcomesTable,
    Source,
)

VERSION: Final = 1
KIND: Final = "rheostat-outcomes"
_KEY: Final = b"rheostat"
_FAILURE_WORDS: Final = ("absent", "ok", *FAILURE_KINDS)


class OutcomesFileError(RheostatError):
    """The file is no outcomes table we can read; the message says why and what to do."""

    type = "outcomes_file"


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says about itself."""

    kind: str = KIND
    version: int = VERSION
    labels: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    with_scores: tuple[str, ...] = ()
    model_info: dict[str, ModelInfo] = {}
    data_hash: str = ""
    sources: tuple[Source, ...] = ()


def save(table: OutcomesTable, path: str | os.PathLike[str]) -> None:
    """Write the table; the file appears whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays: dict[str, Any] = {
        "id": pa.array(table.ids, pa.string()),
        "split": _words(table.split, SPLITS),
        "truth": _words(table.truth, table.labels),
    }
    for name in ("inputs", "meta"):
        column = getattr(table, name)
        if column is not None:
            arrays[name] = pa.array(column, pa.string())
    for name, columns in table.columns.items():
        arrays[f"{name}.label"] = _words(columns.label, table.labels)
        for part in ("confidence", "latency_s", "cost"):
            arrays[f"{name}.{part}"] = pa.array(getattr(columns, part), pa.float64())
        arrays[f"{name}.failure"] = _words(columns.failure.astype(np.int32) + 1, _FAILURE_WORDS)
        if columns.scores is not None:
            flat = pa.array(np.ascontiguousarray(columns.scores).reshape(-1), pa.float32())
            arrays[f"{name}.scores"] = pa.FixedSizeListArray.from_arrays(flat, max(len(table.labels), 1))
    header = Header(
        labels=table.labels,
        models=table.models,
        with_scores=tuple(name for name, columns in table.columns.items() if columns.scores is not None),
        model_info=dict(table.model_info),
        data_hash=table.data_hash,
        sources=table.sources,
    )
    whole = pa.table(arrays).replace_schema_metadata({_KEY: msgspec.json.encode(header)})
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            pq.write_table(whole, file, compression="zstd", row_group_size=100_000)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _words(codes: Any, words: tuple[str, ...]) -> Any:
    """Codes as a dictionary column; a negative code becomes null."""
    import pyarrow as pa

    indices = pa.array(np.maximum(codes, 0).astype(np.int32), mask=np.asarray(codes < 0))
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(words), pa.string()))


def load(path: str | os.PathLike[str]) -> OutcomesTable:
    """Read a table written by `save`.

    Raises:
        OutcomesFileError: the file is missing, torn, not an outcomes table, or newer than this program.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        raw = pq.read_schema(path).metadata or {}
        if _KEY not in raw:
            raise OutcomesFileError(f"{path} is Parquet but no outcomes table; make one with `rheostat evaluate`")
        header = _header(raw[_KEY], path)
        whole = pq.read_table(path)
        return _table(whole, header)
    except FileNotFoundError:
        raise OutcomesFileError(f"{path} does not exist; make it with `rheostat evaluate`") from None
    except (pa.ArrowException, OSError) as error:
        raise OutcomesFileError(f"{path} cannot be read as Parquet ({error}); it may be torn: evaluate again") from None
    except (KeyError, ValueError) as error:
        raise OutcomesFileError(f"{path} is damaged: {error}; evaluate again") from None


def _header(raw: bytes, path: str | os.PathLike[str]) -> Header:
    try:
        plain = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise OutcomesFileError(f"{path}: its header is damaged ({error}); evaluate again") from None
    if plain.get("kind") != KIND:
        raise OutcomesFileError(f"{path} is a {plain.get('kind')!r} file, expected {KIND!r}")
    if not isinstance(plain.get("version"), int) or plain["version"] > VERSION:
        raise OutcomesFileError(
            f"{path} has format version {plain.get('version')}; this program reads up to {VERSION}: upgrade rheostat"
        )
    try:
        return msgspec.convert(plain, Header)
    except msgspec.ValidationError as error:
        raise OutcomesFileError(f"{path}: its header is damaged ({error}); evaluate again") from None


def _table(whole: Any, header: Header) -> OutcomesTable:
    columns: dict[str, ModelColumns] = {}
    for name in header.models:
        scores = None
        if name in header.with_scores:
            flat = whole.column(f"{name}.scores").combine_chunks().flatten().to_numpy(zero_copy_only=False)
            scores = flat.astype(np.float32, copy=False).reshape(whole.num_rows, len(header.labels))
        columns[name] = ModelColumns(
            label=_codes(whole, f"{name}.label", header.labels),
            confidence=_numbers(whole, f"{name}.confidence"),
            latency_s=_numbers(whole, f"{name}.latency_s"),
            cost=_numbers(whole, f"{name}.cost"),
            failure=(_codes(whole, f"{name}.failure", _FAILURE_WORDS, unknown=None) + ABSENT).astype(np.int8),
            scores=scores,
        )
    return OutcomesTable(
        ids=whole.column("id").to_numpy(),
        split=_codes(whole, "split", SPLITS, unknown=None).astype(np.int8),
        truth=_codes(whole, "truth", header.labels),
        labels=header.labels,
        columns=columns,
        model_info=header.model_info,
        data_hash=header.data_hash,
        inputs=whole.column("inputs").to_numpy() if "inputs" in whole.column_names else None,
        meta=whole.column("meta").to_numpy() if "meta" in whole.column_names else None,
        sources=header.sources,
    )


def _codes(whole: Any, name: str, words: tuple[str, ...], unknown: int | None = -1) -> Any:
    """A word column as codes; null becomes `unknown`. A word that is not in the header means damage."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = whole.column(name)
    found = pc.index_in(column.cast(pa.string()), value_set=pa.array(list(words), pa.string()))
    strangers = pc.sum(pc.and_(pc.is_null(found), pc.is_valid(column))).as_py() or 0
    if strangers or (unknown is None and found.null_count):
        raise ValueError(f"column {name} holds {strangers or found.null_count} values its header does not know")
    return pc.fill_null(found, -1 if unknown is None else unknown).to_numpy().astype(np.int32)


def _numbers(whole: Any, name: str) -> Any:
    return whole.column(name).to_numpy().astype(np.float64, copy=False)
