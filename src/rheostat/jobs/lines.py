"""The lines of a data file, one mapping each; a bad line is told, never raised and never dropped."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

import msgspec

from rheostat.errors import RheostatError

MAX_LINE = 1_048_576
"""Characters (JSON: bytes) of one line that are read; the gateway's own default limit for a body."""
FORMATS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_DELIMITERS = ",;\t|"
_KINDS: Final[dict[type, str]] = {str: "text", dict: "an object", list: "a list"}


class DataError(RheostatError):
    """A data file cannot be used at all; the message says why and what to do."""

    type = "data_error"


class Line(NamedTuple):
    """One line: its number (from 1, as an editor counts; in Parquet the row), its values, or what is wrong with it.

    A blank line has neither.
    """

    number: int
    values: Mapping[str, Any] | None
    problem: str = ""


def read_lines(path: Path) -> Iterator[Line]:
    """Yield every line of a CSV, TSV, JSON-lines or Parquet file (the text formats also as `.gz`), in order.

    The first line of CSV names the columns; it is not yielded. A line of JSON must be an object. Text is UTF-8. Lines
    with nothing but white space are yielded as blank.

    Raises:
        DataError: the file is missing, torn, of another kind, or its header cannot be used.
    """
    kind = format_of(path)
    try:
        if kind == ".parquet":
            yield from _parquet(path)
            return
        with _opened(path) as file:
            yield from (_csv(file, path, kind) if kind in (".csv", ".tsv") else _json(file))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is torn or no gzip file ({error}); copy it again") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def format_of(path: Path) -> str:
    """Return the format by the file's name, one of FORMATS.

    Raises:
        DataError: the name ends otherwise.
    """
    name = path.name.lower().removesuffix(".gz")
    for suffix in FORMATS:
        if name.endswith(suffix):
            return suffix
    raise DataError(f"{path}: the name must end with one of {', '.join(FORMATS)} (the text formats may have .gz after it)")


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as raw:
        if path.name.lower().endswith(".gz"):
            with gzip.open(raw) as unpacked:
                yield cast("IO[bytes]", unpacked)
        else:
            yield raw


def _json(file: IO[bytes]) -> Iterator[Line]:
    number = 0
    while raw := file.readline(MAX_LINE + 1):
        number += 1
        if len(raw) > MAX_LINE and not raw.endswith(b"\n"):
            while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                pass
            yield Line(number, None, f"longer than {MAX_LINE} bytes")
            continue
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        yield Line(number, None) if raw.isspace() else _object(number, raw)


def _object(number: int, raw: bytes) -> Line:
    try:
        value = msgspec.json.decode(raw)
    except UnicodeDecodeError:
        return Line(number, None, "not UTF-8 text")
    except (msgspec.DecodeError, RecursionError) as error:
        return Line(number, None, f"not JSON: {error}")
    if not isinstance(value, dict):
        return Line(number, None, f"expected an object {{...}}, got {kind_of(value)}")
    return Line(number, value)


def _csv(file: IO[bytes], path: Path, kind: str) -> Iterator[Line]:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    head = text.readline(MAX_LINE)
    if not head.strip():
        raise DataError(f"{path}: its first line is empty; it must name the columns, such as `text,label`")
    delimiter = "\t" if kind == ".tsv" else max(_DELIMITERS, key=head.count)
    names = _header(head, delimiter, path)
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    before = csv.field_size_limit(MAX_LINE)
    try:
        while True:
            number = reader.line_num + 2  # the header was read by itself
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield Line(number, None, f"not CSV: {error}")
                continue
            yield _fields(number, names, fields)
    finally:
        csv.field_size_limit(before)


def _header(head: str, delimiter: str, path: Path) -> list[str]:
    try:
        names = [name.strip() for name in next(csv.reader([head], delimiter=delimiter, strict=True))]
        head.encode()
    except csv.Error as error:
        raise DataError(f"{path}: its first line must name the columns and is not CSV: {error}") from error
    except UnicodeEncodeError:
        raise DataError(f"{path}: not UTF-8 text; save it as UTF-8 (spreadsheets call it `CSV UTF-8`)") from None
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}: its first line names the column {twice[0]!r} twice")
    return names


def _fields(number: int, names: list[str], fields: list[str]) -> Line:
    if not any(field.strip() for field in fields):
        return Line(number, None)
    if len(fields) != len(names):
        return Line(number, None, f"expected {len(names)} fields ({', '.join(names)}), got {len(fields)}")
    if sum(map(len, fields)) > MAX_LINE:
        return Line(number, None, f"longer than {MAX_LINE} characters")
    try:
        for field in fields:
            if not field.isascii():
                field.encode()
    except UnicodeEncodeError:
        return Line(number, None, "not UTF-8 text")
    return Line(number, dict(zip(names, fields, strict=True)))


def _parquet(path: Path) -> Iterator[Line]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for values in batch.to_pylist():
                    number += 1
                    yield Line(number, values)
    except pa.ArrowException as error:
        raise DataError(f"{path} cannot be read as Parquet ({error})") from error


def kind_of(value: Any) -> str:
    """Name a value's kind for people."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"{str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {value:g}"
    return _KINDS.get(type(value), type(value).__name__)
