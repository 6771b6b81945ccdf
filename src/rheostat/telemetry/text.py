"""Any value becomes text that a log row, a database and a terminal can carry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

MAX_TEXT = 16_384
"""Characters of one text that are kept in a row unless the operator says otherwise."""

_MAX_KEY = 256
_MAX_DEPTH = 64
_MAX_NODES = 100_000
_ROW_FACTOR = 16  # one row keeps at most this many times the limit of one text
_MARGIN = 4_096  # characters beyond the cut that are searched for secrets: longer than any secret
_SHORT = 64  # what is kept of each text once the row is full

_HARD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_HARD_BYTES = re.compile(rb"\xc2[\x80-\x9f]")
_INVISIBLE = re.compile(rb"\xe2(?:\x80[\xa8-\xae]|\x81[\xa6-\xa9])")  # line separators and direction overrides


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def visible(text: str) -> str:
    """Return `text` with NUL, control characters and lone surrogates replaced by visible signs (tab, CR, LF stay)."""
    return _HARD.sub(_picture, text)


def is_plain(data: bytes, max_text: int, *, ascii_only: bool = False) -> bool:
    """Return whether encoded JSON surely holds no hard character and no text over `max_text` characters.

    A False may be a false alarm (with `ascii_only`, any letter beyond ASCII is one); it only costs a closer look.
    """
    if len(data) > max_text or b"\x7f" in data or (b"\\" in data and b"\\u00" in data):
        return False
    return data.isascii() or (not ascii_only and _HARD_BYTES.search(data) is None)


def escape_invisible(data: bytes) -> bytes:
    """Write Unicode line separators and direction overrides as JSON escapes: the same text, harmless in a viewer."""
    if data.isascii():
        return data
    return _INVISIBLE.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), data)


def plain(value: Any) -> Any:
    """Return a JSON form of an object the encoder does not know: its plain value where it has one, else its type's name."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    for method in ("item", "tolist"):
        convert = getattr(value, method, None)
        if callable(convert):
            try:
                found = convert()
            except Exception:  # an array with more than one item, or any stranger's method
                continue
            if isinstance(found, str | int | float | list):
                return found
    return f"<{type(value).__name__}>"


class Tamer:
    """Rebuilds one value from JSON types only; `changed` says whether a character, a text or a part had to go.

    `mask` is applied to every text first. Text over `max_text` characters is cut with a mark that names its full length.
    What is nested deeper than 64 levels, or beyond 100,000 parts, is replaced by a mark.
    """

    def __init__(self, max_text: int = MAX_TEXT, mask: Callable[[str], str] | None = None) -> None:
        self.changed = False
        self._max_text = max_text
        self._mask = mask
        self._room = max_text * _ROW_FACTOR
        self._nodes = _MAX_NODES

    def text(self, text: str) -> str:
        """Return `text` masked, visible, and cut to what the row still has room for."""
        limit = self._max_text if self._room > 0 else _SHORT
        tamed = self._tamed(text, limit)
        self._room -= len(tamed)
        return tamed

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return `value` rebuilt from None, bool, int, float, str, list and dict."""
        self._nodes -= 1
        if value is None or type(value) in (bool, int, float):
            return value
        if isinstance(value, str):
            return self.text(value)
        if depth >= _MAX_DEPTH or self._nodes <= 0:
            self.changed = True
            return "…[cut: too deep or too many parts]"
        if isinstance(value, Struct):
            return {name: self.value(getattr(value, name), depth + 1) for name in value.__struct_fields__}
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, list | tuple | set | frozenset):
            return self._items(list(value), depth)
        return self.value(plain(value), depth + 1)

    def _items(self, items: list[Any], depth: int) -> list[Any]:
        done = []
        for item in items:
            if self._nodes <= 0:
                self.changed = True
                break
            done.append(self.value(item, depth + 1))
        return done

    def _mapping(self, mapping: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        done: dict[str, Any] = {}
        for key, item in mapping.items():
            if self._nodes <= 0:
                self.changed = True
                break
            name = self._tamed(key if isinstance(key, str) else str(plain(key)), _MAX_KEY)
            while name in done:  # two keys may look alike once they are tamed; neither is lost
                name += "~"
            done[name] = self.value(item, depth + 1)
        return done

    def _tamed(self, text: str, limit: int) -> str:
        text = str(text)
        length = len(text)
        shown = text if length <= limit + _MARGIN else text[: limit + _MARGIN]
        if self._mask is not None:
            shown = self._mask(shown)
        if length > limit + _MARGIN:
            shown = shown[:-_MARGIN]  # it may end in half a secret
        kept = shown[:limit]
        seen = visible(kept)
        if len(shown) > limit or length > limit + _MARGIN:
            self.changed = True
            return f"{seen}…[cut: {length} characters in all]"
        if seen != kept:
            self.changed = True
        return seen
