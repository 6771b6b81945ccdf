"""Rows given to a model a few at a time, of like size; a row that it cannot take fails alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rheostat.errors import ModelError
from rheostat.pool.backend import Reply, Row
from rheostat.pool.preparing import Ready

if TYPE_CHECKING:
    from rheostat.backends.onnx_inputs import Input

Run = Callable[[Sequence[Any]], Sequence[Reply]]


def answered(rows: Sequence[Row], source: Input, most: int, run: Run) -> list[Reply]:
    """Return a reply for every row, in order: prepared by `source` unless they were before, run up to `most` at a time.

    When `run` fails for several, each of them is run alone, so that the neighbours of a bad one are answered.
    """
    replies: dict[int, Reply] = {}
    prepared: list[tuple[int, Any]] = []
    for index, row in enumerate(rows):
        try:
            prepared.append((index, row.value if type(row) is Ready else source.prepare(row)))
        except ModelError as error:
            replies[index] = error
    if len(prepared) > most:
        prepared.sort(key=lambda pair: source.size(pair[1]))
    for start in range(0, len(prepared), most):
        batch = prepared[start : start + most]
        replies.update(zip((index for index, _ in batch), _isolated([item for _, item in batch], run), strict=True))
    return [replies[index] for index in range(len(rows))]


def _isolated(items: Sequence[Any], run: Run) -> Sequence[Reply]:
    try:
        return run(items)
    except Exception as error:  # a runtime has a class of its own for every reason
        if len(items) > 1:
            return [reply for item in items for reply in _isolated([item], run)]
        if isinstance(error, ModelError):
            return [error]
        told = str(error).splitlines()[0][:300] if str(error) else ""
        return [ModelError("crashed", f"{type(error).__name__}: {told}")]
