"""What an unquoted scalar means: the core schema of YAML 1.2 (YAML 1.2.2, 10.3.2), with less guessing.

`no` and `on` are words, `2026-11-01` is a text, and `010` is neither eight nor ten but a text.
"""

from __future__ import annotations

import re
from typing import Any

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?")
_BASED = re.compile(r"0x[0-9a-fA-F]{1,15}|0o[0-7]{1,20}")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


def resolve(text: str) -> Any:
    """Return what an unquoted scalar means: None, a bool, a number, or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return int(text, 0) if _BASED.fullmatch(text) else text
