"""A labelled set: files of rows with their right labels, read as examples."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import xxhash
from msgspec import Struct

from rheostat.jobs.lines import DataError, Line, format_of, kind_of, read_lines
from rheostat.jobs.splits import split_of, split_word

_LOOKED_AT: Final = 100  # lines of a file that say which columns it has


class Columns(Struct, frozen=True, kw_only=True):
    """Which column means what. None: `text`, `id` and `split` are found by these names where the file has them.

    Without a text column the input is the column `data` (text, an object of features, or a list of numbers), else all
    columns that have no other meaning, as features. `meta` are columns that rules may read as `meta.NAME`; a column
    `meta` that holds objects is taken as it is.
    """

    text: str | None = None
    label: str = "label"
    id: str | None = None
    split: str | None = None
    meta: tuple[str, ...] = ()


class Example(NamedTuple):
    """One usable row."""

    id: str
    split: str
    label: str
    data: Any
    meta: Mapping[str, Any]


class BadLine(Struct, frozen=True):
    """One line that is no example, and why."""

    file: str
    line: int
    reason: str


class Part(NamedTuple):
    """One file; `split` is the split that all of its rows belong to, None when each row has its own."""

    path: Path
    split: str | None = None


class Survey(Struct, frozen=True, kw_only=True):
    """What one look through the files found, before any model is asked.

    `data_hash` names the files' content together with how they were read. `hashes` are the files' sha256 (hex), in
    order, and `counted` their usable rows by split. `split_by` says in words where the splits came from.
    """

    rows: int
    blank: int
    bad: tuple[BadLine, ...]
    splits: Mapping[str, int]
    labels: Mapping[str, int]
    data_hash: str
    hashes: tuple[str, ...]
    counted: tuple[Mapping[str, int], ...]
    split_by: str


class LabelledSet:
    """Reads files as examples, always in the same order with the same ids.

    A row's id is its column `id`, else a hash of its input and label (a repetition gets `-2`, `-3`, ...), so that rows
    keep their ids when others are added or removed. Blank lines are no rows: they are counted and skipped. Everything
    else that is no example comes out as a BadLine.

    Args:
        parts: the files.
        seed: of the automatic split.
        limit: take only this many usable rows, the first ones (0: all).
    """

    def __init__(self, parts: Sequence[Part], columns: Columns | None = None, *, seed: int = 0, limit: int = 0) -> None:
        self.parts = tuple(parts)
        self.columns = columns or Columns()
        self.seed = seed
        self.limit = limit
        for part in self.parts:
            format_of(part.path)
            if part.split is not None and split_word(part.split) is None:
                raise DataError(f"unknown split {part.split!r} for {part.path}: expected train, dev or test")

    def __iter__(self) -> Iterator[Example | BadLine]:
        for _, item in self._walk():
            if item is not None:
                yield item

    def _walk(self) -> Iterator[tuple[int, Example | BadLine | None]]:
        """Yield (index of the file, what a line is; None: blank)."""
        seen: dict[str, int] = {}
        rows = 0
        for index, part in enumerate(self.parts):
            reading = _Reading(part, self.columns, self.seed, seen)
            for line in read_lines(part.path):
                item = reading.take(line)
                yield index, item
                rows += isinstance(item, Example)
                if self.limit and rows >= self.limit:
                    return

    def survey(self, *, stop_at_first: bool = False) -> Survey:
        """Look through all files once.

        Args:
            stop_at_first: refuse the set at its first bad line.

        Raises:
            DataError: a file or a column cannot be used, there is no usable row, or the first bad line.
        """
        blank, bad = 0, []
        counted: list[Counter[str]] = [Counter() for _ in self.parts]
        labels: Counter[str] = Counter()
        for index, item in self._walk():
            if item is None:
                blank += 1
            elif isinstance(item, BadLine):
                bad.append(item)
                if stop_at_first:
                    raise DataError(f"{item.file} line {item.line}: {item.reason} (stopped there, no model was asked)")
            else:
                counted[index][item.split] += 1
                labels[item.label] += 1
        splits = sum(counted, Counter())
        rows = splits.total()
        if not rows:
            first = f"; the first bad one is line {bad[0].line}: {bad[0].reason}" if bad else ""
            raise DataError(f"no usable row in {', '.join(str(part.path) for part in self.parts)}{first}")
        hashes = tuple(_sha256(part.path) for part in self.parts)
        how = [hashes, [split for _, split in self.parts], msgspec.to_builtins(self.columns), self.seed, self.limit]
        return Survey(
            rows=rows,
            blank=blank,
            bad=tuple(bad),
            splits={name: splits[name] for name in ("train", "dev", "test") if splits[name]},
            labels=dict(labels.most_common()),
            data_hash=f"sha256:{hashlib.sha256(msgspec.json.encode(how)).hexdigest()}",
            hashes=hashes,
            counted=tuple(counted),
            split_by=self._split_by(),
        )

    def _split_by(self) -> str:
        if all(part.split is not None for part in self.parts):
            return "by file"
        column = self.columns.split or "split"
        if any(part.split is None and column not in _names(part.path) for part in self.parts):
            return f"automatically, 70/10/20 by the text itself (seed {self.seed}); equal texts stay together"
        return f"by the column {column!r}"


class _Meaning(NamedTuple):
    """What the columns of one file mean; `data` says that the input stands in a column of this name."""

    text: str | None
    data: bool
    label: str
    id: str | None
    split: str | None
    meta: tuple[str, ...]


class _Reading:
    """One file under way. Every row must have what the file's columns were found to mean."""

    def __init__(self, part: Part, columns: Columns, seed: int, seen: dict[str, int]) -> None:
        self.part, self.seed, self.seen = part, seed, seen
        self.known = _meaning(columns, _names(part.path), part.path)

    def take(self, line: Line) -> Example | BadLine | None:
        values = line.values
        if values is None:
            return self._bad(line, line.problem) if line.problem else None
        try:
            return self._example(values, self.known)
        except ValueError as error:
            return self._bad(line, str(error))

    def _bad(self, line: Line, reason: str) -> BadLine:
        return BadLine(str(self.part.path), line.number, reason)

    def _example(self, values: Mapping[str, Any], known: _Meaning) -> Example:
        label = _label(values, known.label)
        data = _input(values, known)
        split = self.part.split
        if split is None and known.split is not None:
            word = values.get(known.split)
            split = split_word(word) if isinstance(word, str) else None
            if split is None:
                raise ValueError(f"`{known.split}`: expected train, dev or test, got {word!r}")
        meta = {name: values[name] for name in known.meta if values.get(name) not in (None, "")}
        if isinstance(values.get("meta"), dict):
            meta = {**values["meta"], **meta}
        name = self._name(values, known, data, label)
        return Example(name, split_word(split) or "" if split else split_of(data, self.seed), label, data, meta)

    def _name(self, values: Mapping[str, Any], known: _Meaning, data: Any, label: str) -> str:
        if known.id is not None:
            given = values.get(known.id)
            if given is None or given == "" or isinstance(given, dict | list):
                raise ValueError(f"`{known.id}` is missing")
            name = str(given)
            if name in self.seen:
                raise ValueError(f"`{known.id}`: {name!r} occurs twice; ids must be unique")
            self.seen[name] = 1
            return name
        content = xxhash.xxh3_64_hexdigest(msgspec.json.encode([data, label], order="sorted", enc_hook=str))
        count = self.seen[content] = self.seen.get(content, 0) + 1
        return content if count == 1 else f"{content}-{count}"


def _names(path: Path) -> dict[str, None]:
    """The columns of a file: those of its first usable lines, as objects of JSON may each have their own."""
    first = (line.values for line in islice(read_lines(path), _LOOKED_AT))
    return {name: None for values in first if values is not None for name in values}


def _meaning(columns: Columns, names: Mapping[str, None], path: Path) -> _Meaning:
    wanted = [("--text-column", columns.text), ("--label-column", columns.label), ("--id-column", columns.id)]
    wanted += [("--split-column", columns.split), *(("--meta-column", name) for name in columns.meta)]
    for option, name in wanted:
        if name is not None and names and name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(map(str, names))}"
            raise DataError(f"{path} has no column {name!r}; {hint} ({option} names it)")
    found = {name: name if name in names and name != columns.label else None for name in ("text", "id", "split")}
    return _Meaning(
        text=columns.text or found["text"],
        data="data" in names,
        label=columns.label,
        id=columns.id or found["id"],
        split=columns.split or found["split"],
        meta=columns.meta,
    )


def _label(values: Mapping[str, Any], column: str) -> str:
    value = values.get(column)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or value == "":
        raise ValueError(f"`{column}` is missing")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"`{column}`: expected a label, got {kind_of(value)}")
    return str(value)


def _input(values: Mapping[str, Any], known: _Meaning) -> Any:
    if known.text is not None:
        text = values.get(known.text)
        if text is None or (isinstance(text, str) and not text.strip()):
            raise ValueError(f"`{known.text}` is missing")
        if not isinstance(text, str):
            raise ValueError(f"`{known.text}`: expected text, got {kind_of(text)}")
        return text
    if known.data:
        data = values.get("data")
        if not data or not isinstance(data, str | dict | list):
            raise ValueError(f"`data`: expected text, an object or a list of numbers, got {kind_of(data)}")
        return data
    taken = {known.label, known.id, known.split, "meta", *known.meta}
    features = {name: _number(value) for name, value in values.items() if name not in taken}
    features = {name: value for name, value in features.items() if value is not None}
    if not features:
        raise ValueError("no input: there is no text and no feature")
    return features


def _number(value: Any) -> Any:
    """A feature that is written as text (CSV) as the number it is; an empty one as absent."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        number = float(value)
    except ValueError:
        return value
    return number if isfinite(number) else value


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
