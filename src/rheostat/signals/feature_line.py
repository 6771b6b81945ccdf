"""The numbers a small model reads of a request, in the order it was trained with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rheostat.errors import ConfigError, Problem
from rheostat.signals.text import FEATURES, TextFeatures, unknown_feature
from rheostat.signals.text.bag import WordBag, is_bag
from rheostat.types import Request


class FeatureLine:
    """Reads named numbers off a request.

    Args:
        names: text features (keys of FEATURES), `bagSIZE.BUCKET` (how many words have that hash), `meta.FIELD` or
            `data.FIELD` (truth values are 0 and 1, what is missing or no number is NaN), and `meta.FIELD=VALUE` or
            `data.FIELD=VALUE` (1 where the field is that value, else 0).

    Raises:
        ConfigError: a name is none of these; the nearest text feature is given.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        fields = {name: _reader(name) for name in names if name.startswith(("meta.", "data."))}
        self._bag = WordBag(filter(is_bag, names))
        unknown = [name for name in names if name not in fields and name not in FEATURES and not is_bag(name)]
        if unknown:
            raise ConfigError([Problem("features", None, f"{unknown_feature(each)}, or meta.{each}") for each in unknown])
        self._fields = fields
        self._text = TextFeatures(name for name in names if name in FEATURES)

    def read(self, request: Request) -> list[float]:
        """Return the numbers, one a name."""
        found = self._text.measure(request.text) if self._text.names else {}
        if self._bag.names:
            found |= self._bag.measure(request.text)
        if not self._fields:
            return list(map(found.__getitem__, self.names))
        return [found[name] if name in found else self._fields[name](request) for name in self.names]


def shown_value(value: Any) -> str:
    """Return a field's value as it is written in a feature's name, `meta.FIELD=VALUE`; truth values are true and false."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reader(name: str) -> Callable[[Request], float]:
    place, _, field = name.partition(".")
    key, wants_value, wanted = field.partition("=")

    def read(request: Request) -> float:
        source = request.meta if place == "meta" else request.data
        value = source.get(key) if isinstance(source, Mapping) else None
        if wants_value:
            return float(value is not None and shown_value(value) == wanted)
        return float(value) if isinstance(value, int | float) and abs(value) < 1e38 else math.nan

    return read
