"""A small outcomes table for the tests of this room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from rheostat.lab.outcomes import ModelColumns, OutcomesTable


def column(label: Any) -> ModelColumns:
    n = len(label)
    plain = np.zeros(n)
    return ModelColumns(
        np.asarray(label, dtype=np.int32), plain + 0.9, plain + 0.01, plain + 1.0, np.zeros(n, dtype=np.int8)
    )


def table(inputs: Sequence[Any] | None, wrong: Any = None, split: Any = None, n: int = 8) -> OutcomesTable:
    """`fast` errs on every second row, or where `wrong`; `large` never does."""
    count = n if inputs is None else len(inputs)
    errs = np.arange(count) % 2 if wrong is None else np.asarray(wrong, dtype=np.int32)
    return OutcomesTable(
        ids=np.array([str(i) for i in range(count)], dtype=object),
        split=np.zeros(count, dtype=np.int8) if split is None else np.asarray(split, dtype=np.int8),
        truth=np.zeros(count, dtype=np.int32),
        labels=("yes", "no"),
        columns={"fast": column(errs), "large": column(np.zeros(count))},
        inputs=None if inputs is None else np.array([msgspec.json.encode(each).decode() for each in inputs], dtype=object),
    )
