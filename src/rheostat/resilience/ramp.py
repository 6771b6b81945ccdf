"""The ramp: a model that has come back gets its traffic little by little. Pure, `(state, event, now) -> state`.

Source: Envoy's slow start; the cut after a failure, once per round of calls, is that of TCP's congestion control.
"""

from __future__ import annotations

from msgspec import Struct

from rheostat.chance import chance
from rheostat.types.duration import Duration


class RampSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model comes back after its breaker closes or its health checks are good again: it gets the share `start` of its
    traffic, and t seconds later max(start, (t / `seconds`)^(1 / `aggression`)), up to all of it. `seconds: 0`: no ramp.
    A failure halves the share, never below `floor`, and the climb goes on from there. With `on_switch` a model whose
    `version` changed in a reload begins in the same way; what it is spared goes to the others of its route."""

    start: float = 0.05
    seconds: Duration = Duration(60.0)
    aggression: float = 1.0
    floor: float = 0.05
    on_switch: bool = False

    def __post_init__(self) -> None:
        for name in ("start", "floor"):
            value = getattr(self, name)
            if not 0.0 < value <= 1.0:
                raise ValueError(f"`{name}` must lie in (0, 1], got {value:g}")
        if not 0.0 < self.aggression <= 100.0:
            raise ValueError(f"`aggression` must be more than 0 and at most 100, got {self.aggression:g}")


class RampState(Struct, frozen=True, gc=False):
    """`since` is when the climb would have begun from nothing; the share is never under `lowest`; `cut` is when a failure
    last halved it."""

    since: float
    lowest: float
    cut: float


def begun(settings: RampSettings, now: float, kept: float = 0.0) -> RampState | None:
    """Return the ramp of a model that comes back now; None when it gets everything at once. Where the share `kept` of it had
    not been away, the climb goes on from there."""
    lowest = max(settings.start, settings.floor, kept)
    since = now - settings.seconds * kept**settings.aggression
    return RampState(since, lowest, now) if settings.seconds > 0.0 and lowest < 1.0 else None


def share(state: RampState, settings: RampSettings, now: float) -> float:
    """Return the share of its traffic that the model may have, in [floor, 1]; it never falls by itself."""
    gone = (now - state.since) / settings.seconds
    if gone >= 1.0:
        return 1.0
    return max(state.lowest, gone ** (1.0 / settings.aggression)) if gone > 0.0 else state.lowest


def among(part: float, model: str, key: str) -> bool:
    """Return whether the requests of `key` are among the share `part` that the model may have; a growing share only adds
    keys."""
    return part >= 1.0 or chance(f"ramp/{model}", key) < part


def failed(state: RampState, settings: RampSettings, began: float, now: float) -> RampState:
    """Halve the share because a call failed; one that started before the last cut is of the same trouble, so it does not
    cut again."""
    if began < state.cut:
        return state
    half = max(settings.floor, share(state, settings, now) / 2.0)
    return RampState(now - settings.seconds * half**settings.aggression, half, now)
