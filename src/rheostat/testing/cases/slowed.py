"""The same case at a fraction of its speed, for a machine that has other work: every time in it grows by one factor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TIMES = frozenset((
    "at", "every", "cancel_after", "delay", "delay_random", "gap", "close_after", "elapsed_max", "elapsed_min",
    "aborted_within", "calls_between",
))  # fmt: skip
_HEADERS = frozenset(("retry-after", "x-rheostat-timeout-ms"))
_SETTINGS = frozenset((
    "timeout", "deadline", "seconds", "timeoutSeconds", "slowSeconds", "window", "interval", "first", "gap", "total",
    "max_wait", "target", "max_age", "keep", "idle", "header_timeout", "body_timeout",
))  # fmt: skip
"""Words that are times below `rheostat:`, where the config's own words stand."""
_DURATION = re.compile(r"([0-9.]+)\s*([a-z]*)")


def slowed(case: Any, factor: float) -> Any:
    """Return a case, as it stands in its file, with all its times multiplied by `factor`."""
    return case if factor == 1.0 else _words(case, factor, _TIMES)


def _words(part: Any, factor: float, times: frozenset[str]) -> Any:
    if isinstance(part, list):
        return [_words(each, factor, times) for each in part]
    if not isinstance(part, Mapping):
        return part
    found = {}
    for word, value in part.items():
        if word == "rheostat":
            found[word] = _words(value, factor, _SETTINGS)
        elif word in times or (times is _TIMES and str(word).endswith(("_s", "_ms"))) or _is_percentile(word, part):
            found[word] = _longer(value, factor)
        elif word in _HEADERS and str(value).isdecimal():
            found[word] = str(round(int(value) * factor))
        else:
            found[word] = _words(value, factor, times)
    return found


def _is_percentile(word: Any, part: Mapping[Any, Any]) -> bool:
    """`max` is a time where it bounds a percentile of times."""
    return word == "max" and "elapsed_p" in part


def _longer(value: Any, factor: float) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value * factor
    if isinstance(value, list):
        return [_longer(each, factor) for each in value]
    written = _DURATION.fullmatch(value) if isinstance(value, str) else None
    return value if written is None else f"{float(written[1]) * factor:g}{written[2]}"
