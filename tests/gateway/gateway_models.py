"""Models for the gateway's tests: plain functions that a config names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any


def fast(row: Any) -> dict[str, Any]:
    """Sure of everything but texts with a question mark; hands the row back."""
    text = row if isinstance(row, str) else str(row.get("text", ""))
    return {"label": "yes", "confidence": 0.5 if "?" in text else 0.95, "output": row}


def large(row: Any) -> dict[str, Any]:
    """Always sure."""
    return {"label": "no", "scores": {"yes": 0.25, "no": 0.75}, "output": row}


def odd(row: Any) -> dict[str, Any]:
    """Breaks in the way the row asks for."""
    text = row if isinstance(row, str) else ""
    if text == "secret":
        raise RuntimeError("host db.internal:5432 password=hunter2")
    if text == "half":
        return {"label": "yes", "output": "half \ud800 and \x00"}
    if text == "huge":
        return {"label": "yes", "output": 10**40}
    if text == "endless":
        ring: dict[str, Any] = {}
        ring["again"] = ring
        return {"label": "yes", "output": ring}
    if text == "exits":
        raise SystemExit(3)
    if text == "deep":
        value: Any = 1
        for _ in range(300):
            value = [value]
        return {"label": "yes", "output": value}
    return {"label": "yes", "confidence": 1.0}


async def sleepy(row: Any) -> tuple[str, float]:
    """Sleeps as long as the row says, and notes in the file it names how that ended."""
    if isinstance(row, str):
        return "slept", 1.0
    log = Path(row["log"]) if "log" in row else None
    try:
        await asyncio.sleep(float(row.get("s", 0.0)))
    except asyncio.CancelledError:
        if log is not None:
            log.write_text("cancelled")
        raise
    if log is not None:
        log.write_text("done")
    return "slept", 1.0
