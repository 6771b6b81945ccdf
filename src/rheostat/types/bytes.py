"""Sizes of memory as people write them: `512MiB`, `2GiB`, `500MB`."""

from __future__ import annotations

import re

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip
_SHAPE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b)", re.IGNORECASE)


def bytes_of(text: str) -> int:
    """Return the bytes that `text` means.

    Raises:
        ValueError: it is no number with a unit.
    """
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a size such as 512MiB or 2GiB, got {text!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])
