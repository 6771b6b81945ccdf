"""Weak or strong, by a signal against a threshold."""

from __future__ import annotations

from msgspec import Struct, structs

from rheostat.policies.base import History, Policy, left_to, require
from rheostat.types import Answer, Context, Decision

WEAK, STRONG = "weak", "strong"


class Binary(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Send the request to `strong` when `signal` is at or above `threshold`, else to `weak`.

    `weak` and `strong` are models or policies. `threshold` is a number or the name of a signal that holds it. `bucket`
    rounds the signal down to multiples of itself first, so that a trifling change of the input does not flip the route.
    With `hysteresis: [lower, upper]` a signal in between keeps what
    was last chosen for the same `key`; without a memory the threshold decides.
    """

    signal: str
    threshold: float | str
    weak: Policy
    strong: Policy
    bucket: float = 0.0
    hysteresis: tuple[float, float] | None = None
    key: str = "session"
    name: str = "binary"

    def __post_init__(self) -> None:
        require(self.threshold == self.threshold, "`threshold` must be a number")
        if isinstance(self.threshold, str):
            require(self.hysteresis is None, "a `threshold` that is a signal moves, a `hysteresis` does not; keep one")
        require(self.bucket >= 0.0, "`bucket` must be 0 (off) or more")
        if self.hysteresis is not None:
            require(self.hysteresis[0] <= self.hysteresis[1], "`hysteresis` must be [lower, upper]")

    def signals(self) -> tuple[str, ...]:
        return (self.signal, self.threshold) if isinstance(self.threshold, str) else (self.signal,)

    def decide(self, ctx: Context, history: History) -> Decision:
        value = ctx.signals[self.signal]
        if self.bucket:
            value = value // self.bucket * self.bucket
        side, reason = self._side(ctx, value)
        branch = self.strong if side == STRONG else self.weak
        decision = left_to(branch, ctx, history, reason, self.name)
        if self.hysteresis is not None and isinstance(decision, Answer):
            return structs.replace(decision, hold=(self.name, side))
        return decision

    def _side(self, ctx: Context, value: float) -> tuple[str, str]:
        if self.hysteresis is not None:
            lower, upper = self.hysteresis
            held = ctx.held.get(self.name)
            if lower <= value < upper and held is not None:
                return held, f"{self.signal} {value:.4f} in [{lower:g}, {upper:g}): held {held}"
            if value >= upper or value < lower:
                return (STRONG if value >= upper else WEAK), f"{self.signal} {value:.4f} outside the band"
        cut = ctx.signals[self.threshold] if isinstance(self.threshold, str) else self.threshold
        if value >= cut:
            return STRONG, f"{self.signal} {value:.4f} >= {cut:g}"
        return WEAK, f"{self.signal} {value:.4f} < {cut:g}"
