"""A retry budget: retries are a share of the calls, so that a model that is dying is not hit by a storm.

A pure token bucket, as in Finagle's `RetryBudget`: each call brings `share` of a token, each second `least`, a retry takes
one, and what is not used fades within `WINDOW_S`.
"""

from __future__ import annotations

from math import exp, isfinite
from typing import NamedTuple

from msgspec import Struct

WINDOW_S = 10.0
"""How long a call may pay for a retry, in seconds."""


class RetryBudgetSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `share` (0 to 1) retries a call, and `least` (0 or more) a second besides, over the last ten seconds."""

    share: float = 0.2
    least: float = 10.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"`share` must lie between 0 and 1, got {self.share}")
        if not (isfinite(self.least) and self.least >= 0.0):
            raise ValueError(f"`least` must be a finite number of 0 or more, got {self.least}")


class RetryTokens(NamedTuple):
    """`tokens` were there at `at`, in monotonic seconds."""

    tokens: float
    at: float


def full(settings: RetryBudgetSettings, now: float) -> RetryTokens:
    """Return the state of a model that has had no calls yet."""
    return RetryTokens(settings.least * WINDOW_S, now)


def called(state: RetryTokens, settings: RetryBudgetSettings, calls: int, now: float) -> RetryTokens:
    """Take in that `calls` first tries have begun since `state.at`."""
    rest = exp(-max(0.0, now - state.at) / WINDOW_S)
    floor = settings.least * WINDOW_S
    return RetryTokens(floor + (state.tokens - floor) * rest + settings.share * calls, max(now, state.at))


def taken(state: RetryTokens) -> RetryTokens | None:
    """Take one retry; None when the budget is used up."""
    return RetryTokens(state.tokens - 1.0, state.at) if state.tokens >= 1.0 else None
