"""How urgent a request is beside others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Priority = Literal["high", "normal", "low"]

RANKS: Final[Mapping[Priority, int]] = {"high": 0, "normal": 1, "low": 2}
"""Who goes first: the smaller number."""


def lower_of(one: Priority, other: Priority) -> Priority:
    """Return the less urgent of two."""
    return max(one, other, key=RANKS.__getitem__)
