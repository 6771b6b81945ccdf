"""The time limits of a streamed answer. Pure: which limit is the next to fire, and when."""

from __future__ import annotations

from msgspec import Struct

from rheostat.types.duration import Duration


class StreamLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a model may take over a streamed answer: `first` until its first text, `gap` from one text to the next,
    `total` for the whole. Only the time that the model is waited for counts, not that of a slow client; 0: no limit."""

    first: Duration = Duration(10.0)
    gap: Duration = Duration(10.0)
    total: Duration = Duration(300.0)


def next_limit(limits: StreamLimits, waited_s: float, since_s: float, pieces: int, left_s: float) -> tuple[float, str]:
    """Return the seconds until the next limit fires (at least 0; infinity: none will) and its name.

    Args:
        waited_s: how long the model has been waited for in all.
        since_s: how long since its last text.
        pieces: texts that have come; before the first one the request's deadline, `left_s` away, holds too.
    """
    if pieces:
        nearest, name = (limits.gap - since_s if limits.gap else float("inf")), "gap"
    else:
        nearest, name = (limits.first - waited_s if limits.first else float("inf")), "first"
        if left_s < nearest:
            nearest, name = left_s, "deadline"
    if limits.total and limits.total - waited_s < nearest:
        nearest, name = limits.total - waited_s, "total"
    return max(0.0, nearest), name


def told(limits: StreamLimits, name: str, left_s: float) -> str:
    """Say which limit fired."""
    if name == "gap":
        return f"stream limit gap: no text for {limits.gap:g} s"
    if name == "first":
        return f"stream limit first: no text within {limits.first:g} s"
    if name == "total":
        return f"stream limit total: not complete within {limits.total:g} s"
    return f"the deadline passed before the first text: {max(0.0, left_s):.3g} s were left"
