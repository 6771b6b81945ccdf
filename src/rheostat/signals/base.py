"""Numbers known before deciding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct

from rheostat.types import Request


@runtime_checkable
class Scorer(Protocol):
    """Makes one or more signals from a request; pure computation, quick enough for the request path."""

    names: tuple[str, ...]

    def score(self, request: Request) -> Mapping[str, float]:
        """Return the signals. Anything raised here is the router's own failure: the request goes to the default model."""


class ScorerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="scorer"):
    """What a learned or hand-made signal may say in the config; each kind of scorer adds its own fields."""

    def open(self, name: str, base: str) -> Scorer:
        """Load the scorer of the signal `name`. `base` is the folder that relative paths start from.

        Raises:
            ConfigError, MissingExtra: it cannot be loaded; the message says what to do.
        """
        raise NotImplementedError(type(self).__name__)
