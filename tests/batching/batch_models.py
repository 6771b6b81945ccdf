"""Models that take all rows of a call at once, as they are written by people who think of speed."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

CALLS: list[list[Any]] = []
"""Every call that any of them got."""
GATE = threading.Event()
GATE.set()


def _began(rows: Sequence[Any]) -> None:
    CALLS.append(list(rows))
    time.sleep(0.002)
    assert GATE.wait(10.0)


def summed(rows: Sequence[Any]) -> list[Any]:
    """Stacks its vectors, which have to be of one length."""
    _began(rows)
    table = np.stack([np.asarray(row["vector"], dtype=np.float32) for row in rows])
    return [{"label": "sum", "output": {"y": float(value)}} for value in table.sum(axis=1)]


def ranked(rows: Sequence[Any]) -> list[Any]:
    """Each row says what it wants: how many labels, and whether with their probabilities."""
    _began(rows)
    names, shares = ("a", "b", "c"), (0.5, 0.3, 0.2)
    return [
        {"label": "a", "output": {"top": dict(zip(names[: row["top_k"]], shares, strict=False)) if row["probabilities"]
                                  else list(names[: row["top_k"]])}}
        for row in rows
    ]  # fmt: skip


def echo(rows: Sequence[Any]) -> list[Any]:
    """Answers with the text. A text `boom` makes the whole call fail, `mute` has no answer, `short` loses one."""
    _began(rows)
    if "boom" in rows:
        raise ValueError("boom cannot be read")
    answers: list[Any] = [None if row == "mute" else (row, 0.75) for row in rows]
    return answers[1:] if "short" in rows else answers


async def aecho(rows: Sequence[Any]) -> list[Any]:
    """As `echo`, for a model elsewhere."""
    CALLS.append(list(rows))
    return [(row, 0.75) for row in rows]
