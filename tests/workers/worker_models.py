"""Models that run in worker processes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from rheostat.pool.worker.limits import limited_bytes

HELD: list[Any] = []


def seen(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Say what came and where it came."""
    return [{"label": "seen", "confidence": 0.5, "output": {"pid": os.getpid(), "row": _plain(row)}} for row in rows]


def told(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Do what the row says."""
    for row in rows:
        if row == "exit":
            os._exit(3)
        if row == "hang":
            time.sleep(60)
        if row == "slow":
            time.sleep(0.3)
        if row in ("half", "nearly all"):
            HELD.append(b"x" * (int((0.5 if row == "half" else 0.93) * (256 << 20)) - limited_bytes()))
        if row == "much":
            bytearray(2 << 30)
    return seen(rows)


def limits(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Say what this process may take."""
    here = {"cpus": sorted(os.sched_getaffinity(0)), "nice": os.nice(0), "threads": os.environ["OMP_NUM_THREADS"]}
    return [{"label": "seen", "output": here} for _ in rows]


def broken(rows: Sequence[Any]) -> list[Any]:
    """Break the contract."""
    return [*rows, "one more"]


def _plain(row: Any) -> Any:
    if hasattr(row, "dtype"):
        return [str(row.dtype), list(row.shape), float(row.sum()), bool(row.flags.writeable)]
    return len(row) if isinstance(row, bytes) else row
