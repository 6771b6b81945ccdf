"""Durations as people write them: `300ms`, `2s`, `5m`, or a bare number of seconds."""

from __future__ import annotations

import math
import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SHAPE = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")


class Duration(float):
    """Seconds, >= 0, finite. Written `300ms`, `2s`, `5m`, `1h` or as a bare number of seconds."""

    @classmethod
    def parse(cls, value: object) -> Duration:
        """Read a duration.

        Raises:
            ValueError: the value is neither a non-negative number nor a number with a unit.
        """
        if isinstance(value, int | float) and not isinstance(value, bool):
            if math.isfinite(value) and value >= 0:
                return cls(value)
        elif isinstance(value, str) and (match := _SHAPE.fullmatch(value.strip())):
            return cls(float(match[1]) * _UNITS[match[2]])
        raise ValueError(f"expected a duration such as 300ms, 2s or 5m (or a number of seconds), got {value!r}")
