"""A limit on calls at a time that finds itself: it grows while answers stay quick, and shrinks when they do not.

A pure state machine, `(state, event, now) -> state`. Sources: `aimd` is additive increase, multiplicative decrease (Chiu and
Jain 1989), `gradient` the Gradient2 limit of Netflix's concurrency-limits (2018).
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Literal, NamedTuple

from msgspec import Struct

BACK_OFF = 0.9
_SHORT, _LONG = 0.1, 0.005  # weights of one answer in the recent and in the long mean
_TOLERANCE = 1.5  # how much slower than in the long run is still well


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limit begins at 20 and moves between `least` (1 or more) and `most`. `gradient` follows the time that answers
    take, `aimd` only calls that timed out or were refused for load; both grow only while the limit is used."""

    kind: Literal["gradient", "aimd"] = "gradient"
    least: int = 1
    most: int = 200

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError(f"`least` must be 1 or more and at most `most`, got {self.least} and {self.most}")


class LimitState(NamedTuple):
    """`limit` calls at a time (rounded down); recent and long mean time of an answer in seconds; `shrunk_at` is when it last
    shrank for a dropped call."""

    limit: float
    short_s: float = 0.0
    long_s: float = 0.0
    shrunk_at: float = -inf


def begin(settings: LimitSettings) -> LimitState:
    """Return the state before the first call."""
    return LimitState(float(min(settings.most, max(settings.least, 20))))


def answered(state: LimitState, settings: LimitSettings, elapsed_s: float, in_flight: int) -> LimitState:
    """A call was answered after `elapsed_s` seconds, while `in_flight` ran; a limit that is not used does not grow."""
    short = state.short_s + _SHORT * (elapsed_s - state.short_s) if state.short_s else elapsed_s
    long = state.long_s + _LONG * (elapsed_s - state.long_s) if state.long_s else elapsed_s
    if long > 2.0 * short:
        long *= 0.95  # it was slow for long: come back to what is normal now
    limit = state.limit
    if 2 * in_flight >= limit:
        if settings.kind == "aimd":
            limit += 1.0 / limit
        else:
            gradient = max(0.5, min(1.0, _TOLERANCE * long / short)) if short > 0.0 else 1.0
            limit += (limit * gradient + sqrt(limit) - limit) * 0.2 / limit
    return LimitState(_within(limit, settings), short, long, state.shrunk_at)


def dropped(state: LimitState, settings: LimitSettings, began: float, now: float) -> LimitState:
    """A call that `began` then timed out or was refused for load; of those that ran together the first one counts."""
    if began < state.shrunk_at:
        return state
    return LimitState(_within(state.limit * BACK_OFF, settings), state.short_s, state.long_s, now)


def _within(limit: float, settings: LimitSettings) -> float:
    return min(float(settings.most), max(float(settings.least), limit))
