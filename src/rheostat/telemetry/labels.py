"""Label values that clients cannot multiply."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rheostat.telemetry.text import visible

OTHER: Final = "other"
MAX_LABEL = 64


def label(value: str) -> str:
    """Return `value` as a label: visible characters only, at most 64 of them."""
    return visible(value[:MAX_LABEL])


class Labels:
    """The values one label may take: those allowed beforehand, then the first `spare` others seen; the rest is `other`.

    Looking up costs one dictionary access, and memory does not grow with values that are refused.
    """

    def __init__(self, allowed: Iterable[str] = (), *, spare: int = 0) -> None:
        self._known = {value: label(value) for value in allowed}
        self._spare = spare

    def allow(self, values: Iterable[str]) -> None:
        """Allow more values; those known stay."""
        for value in values:
            self._known.setdefault(value, label(value))

    def knows(self, value: str) -> bool:
        """Return whether the value has (or may now get) a label of its own."""
        return self.of(value) is not OTHER

    def of(self, value: str) -> str:
        """Return the label for a value."""
        found = self._known.get(value)
        if found is not None:
            return found
        if self._spare <= 0 or len(value) > MAX_LABEL:
            return OTHER
        self._spare -= 1
        self._known[value] = found = label(value)
        return found
