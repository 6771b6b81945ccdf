"""How exactly times are meant."""

from __future__ import annotations

SHARE = 0.1
LEAST_S = 0.05
"""A time may be missed by SHARE of it, and by at least LEAST_S: the machine that runs the cases has other work too."""


def late(seconds: float) -> float:
    """Return the longest time that still counts as `seconds`."""
    return seconds + max(SHARE * seconds, LEAST_S)


def early(seconds: float) -> float:
    """Return the shortest time that still counts as `seconds`."""
    return seconds - max(SHARE * seconds, LEAST_S)
