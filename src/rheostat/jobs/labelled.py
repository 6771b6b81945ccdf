"""A labelled set: files of rows with their right labels, read as examples."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rheostat.jobs.example import BadLine, Columns, Example, Part, Reading, names_in
from rheostat.jobs.lines import DataError, format_of, read_lines
from rheostat.jobs.splits import split_word


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
            reading = Reading(part, self.columns, self.seed, seen)
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
        images = hashlib.sha256()
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
                if self.columns.image is not None:
                    images.update(item.data["image"].encode())
        splits = sum(counted, Counter())
        rows = splits.total()
        if not rows:
            first = f"; the first bad one is line {bad[0].line}: {bad[0].reason}" if bad else ""
            raise DataError(f"no usable row in {', '.join(str(part.path) for part in self.parts)}{first}")
        hashes = tuple(_sha256(part.path) for part in self.parts)
        columns: dict[str, Any] = msgspec.to_builtins(self.columns)
        if columns.pop("image") is not None:
            columns["image"] = [self.columns.image, images.hexdigest()]
        how = [hashes, [split for _, split in self.parts], columns, self.seed, self.limit]
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
        if any(part.split is None and column not in names_in(part.path) for part in self.parts):
            return f"automatically, 70/10/20 by the text itself (seed {self.seed}); equal texts stay together"
        return f"by the column {column!r}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
