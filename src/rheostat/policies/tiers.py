"""Two to five tiers of difficulty, each served by a model or policy of its own."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from msgspec import Struct, structs

from rheostat.policies.base import History, Policy, left_to, require
from rheostat.types import Answer, Context, Decision


class Tiers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Serve the request by the tier that `signal` falls into: `use` names a model or policy per tier, easiest first.

    `cuts` are one to four rising numbers; a signal at a cut belongs to the harder tier. `bucket` rounds the signal down to
    multiples of itself first. With a `hysteresis` above 0 a signal that lies less than that beyond a border keeps the tier
    last chosen for the same `key`; without a memory the cuts decide. More than four tiers seldom pay.
    """

    signal: str
    cuts: tuple[float, ...]
    use: tuple[Policy, ...]
    bucket: float = 0.0
    hysteresis: float | None = None
    key: str = "session"
    name: str = "tiers"

    def __post_init__(self) -> None:
        require(1 <= len(self.cuts) <= 4, f"`cuts` needs 1 to 4 numbers, got {len(self.cuts)}")
        require(all(cut - cut == 0.0 for cut in self.cuts), "`cuts` must be finite numbers")
        require(all(low < high for low, high in pairwise(self.cuts)), "`cuts` must rise, none equal to the one before")
        need = len(self.cuts) + 1
        require(len(self.use) == need, f"`use` needs one entry more than `cuts`: {need}, got {len(self.use)}")
        require(self.bucket >= 0.0, "`bucket` must be 0 (off) or more")
        require(
            self.hysteresis is None or self.hysteresis > 0.0, "`hysteresis` must be above 0; leave it out to switch it off"
        )

    def signals(self) -> tuple[str, ...]:
        return (self.signal,)

    def decide(self, ctx: Context, history: History) -> Decision:
        value = ctx.signals[self.signal]
        if self.bucket:
            value = value // self.bucket * self.bucket
        tier, reason = self._tier(ctx, value)
        branch = self.use[tier]
        decision = left_to(branch, ctx, history, reason, self.name)
        if self.hysteresis is not None and isinstance(decision, Answer):
            return structs.replace(decision, hold=(self.name, str(tier)))
        return decision

    def _tier(self, ctx: Context, value: float) -> tuple[int, str]:
        tier = bisect_right(self.cuts, value)
        said = f"{self.signal} {value:.4f}: tier {tier + 1} of {len(self.use)}"
        held = ctx.held.get(self.name) if self.hysteresis is not None else None
        if held is None or not held.isdecimal() or int(held) == tier or int(held) >= len(self.use):
            return tier, said
        was, margin = int(held), self.hysteresis or 0.0
        border = self.cuts[was] + margin if tier > was else self.cuts[was - 1] - margin
        if (tier > was and value < border) or (tier < was and value >= border):
            return was, f"{self.signal} {value:.4f} within {margin:g} of the border: held tier {was + 1}"
        return tier, said
