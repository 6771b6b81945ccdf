"""The difficulty that a case gives its requests, in place of a scorer."""

from __future__ import annotations

from rheostat.types import Request

FIELD = "difficulty"


def difficulty(request: Request) -> float:
    """Return what the request's meta says, 0 where it says nothing."""
    return float(request.meta.get(FIELD, 0.0))
