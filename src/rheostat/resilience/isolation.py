"""Which rows of a call that failed as a whole are to blame: parts are asked again until every good row has its answer. Pure.

Halves, in blocks of four rows, then one by one: for n rows at most 1.5 n + 2 further calls, and about 2 log2(n) for one
bad row. After four single rows in vain the rest is asked only in large parts until one of them answers, so that a model
that answers nothing at all is soon left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

Row = TypeVar("Row")
Answer = TypeVar("Answer")
_SINGLY = 4
GIVE_UP = 4
"""Rows asked alone and in vain, with no good answer so far, after which the model rather than a row seems to be at fault."""


class Isolation(Generic[Row, Answer]):
    """What is known after a call over `rows` failed with `answers`, one for each row. While `part` is not None, ask for
    `rows[part]` and tell what came of it."""

    def __init__(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        self.rows = rows
        self.answers = list(answers)
        self._open = _parts(0, len(rows)) if len(rows) > 1 else []
        self._doubted: list[slice] = []
        self._good = False
        self._in_vain = 0

    @property
    def part(self) -> slice | None:
        """What to ask next."""
        return self._open[-1] if self._open else None

    def told(self, answers: Sequence[Answer], failed: bool) -> None:
        """The call over `part` gave these answers; `failed` as a whole, when it raised."""
        part = self._open.pop()
        self.answers[part] = answers
        if not failed:
            self._good = True
            self._open += self._doubted
            self._doubted.clear()
        elif part.stop - part.start == 1:
            self._in_vain += 1
        elif self._good or self._in_vain < GIVE_UP:
            self._open += _parts(part.start, part.stop)
        else:
            self._doubted.append(part)


def _parts(start: int, stop: int) -> list[slice]:
    """Return the parts of a stretch, the first one last, as it is taken next."""
    size = stop - start
    blocks = -(-size // _SINGLY)
    step = 1 if blocks == 1 else (blocks + 1) // 2 * _SINGLY
    return [slice(at, min(at + step, stop)) for at in range(start, stop, step)][::-1]
