"""One line of a labelled file as an example: its columns and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import xxhash
from msgspec import Struct

from rheostat.jobs.image_file import image_row
from rheostat.jobs.lines import DataError, Line, kind_of, read_lines
from rheostat.jobs.splits import split_of, split_word

_LOOKED_AT: Final = 100  # lines of a file that say which columns it has


class Columns(Struct, frozen=True, kw_only=True):
    """Which column means what. None: `text`, `id` and `split` are found by these names where the file has them.

    Without a text column the input is the column `data` (text, an object of features, or a list of numbers), else all
    columns that have no other meaning, as features. `image` names a column with the names of image files, in the folder of
    the data file or below it, and the input is the file: `{"image": <base64>}`. `meta` are columns that rules may read as
    `meta.NAME`; a column `meta` that holds objects is taken as it is.
    """

    text: str | None = None
    label: str = "label"
    id: str | None = None
    split: str | None = None
    meta: tuple[str, ...] = ()
    image: str | None = None


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


class _Meaning(NamedTuple):
    """What the columns of one file mean; `data` says that the input stands in a column of this name."""

    text: str | None
    data: bool
    label: str
    id: str | None
    split: str | None
    meta: tuple[str, ...]
    image: str | None


class Reading:
    """One file under way. Every row must have what the file's columns were found to mean.

    `seen` counts ids over all files of a set.
    """

    def __init__(self, part: Part, columns: Columns, seed: int, seen: dict[str, int]) -> None:
        self.part, self.seed, self.seen = part, seed, seen
        self.known = _meaning(columns, names_in(part.path), part.path)

    def take(self, line: Line) -> Example | BadLine | None:
        """Return what the line is; None when it is blank."""
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
        data = _input(values, known) if known.image is None else image_row(self.part.path, values.get(known.image))
        split = self._split(values, known) or split_of(data, self.seed)
        meta = {name: values[name] for name in known.meta if values.get(name) not in (None, "")}
        if isinstance(values.get("meta"), dict):
            meta = {**values["meta"], **meta}
        name = self._name(values, known, data, label)
        return Example(name, split, label, data, meta)

    def _split(self, values: Mapping[str, Any], known: _Meaning) -> str | None:
        """The split that the file or the row names, or None."""
        if self.part.split is not None:
            return split_word(self.part.split)
        if known.split is None:
            return None
        word = values.get(known.split)
        split = split_word(word) if isinstance(word, str) else None
        if split is None:
            raise ValueError(f"`{known.split}`: expected train, dev or test, got {word!r}")
        return split

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


def names_in(path: Path) -> dict[str, None]:
    """Return the columns of a file: those of its first usable lines, as objects of JSON may each have their own."""
    first = (line.values for line in islice(read_lines(path), _LOOKED_AT))
    return {name: None for values in first if values is not None for name in values}


def _meaning(columns: Columns, names: Mapping[str, None], path: Path) -> _Meaning:
    wanted = [("--text-column", columns.text), ("--label-column", columns.label), ("--id-column", columns.id)]
    wanted += [("--split-column", columns.split), ("--image-column", columns.image)]
    wanted += [("--meta-column", name) for name in columns.meta]
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
        image=columns.image,
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
