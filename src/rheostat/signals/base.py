"""Numbers known before deciding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from rheostat.types import Request


@runtime_checkable
class Scorer(Protocol):
    """Makes one or more signals from a request; pure computation, quick enough for the request path."""

    names: tuple[str, ...]

    def score(self, request: Request) -> Mapping[str, float]:
        """Return the signals. Anything raised here is the router's own failure: the request goes to the default model."""
