"""Percentages that stick: A/B and blue/green."""

from __future__ import annotations

from math import isfinite

from msgspec import Struct, structs

from rheostat.chance import chance
from rheostat.policies.base import History, Policy, Use, require, settle
from rheostat.types import Context, Decision, Decline


class Arm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One side of a split: `use` is a model or a policy, `share` any non-negative weight."""

    use: Policy
    share: float
    name: str = ""


class Split(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Give each key (`session`, `tenant`, `request` or a meta field) to one arm for good, in proportion to the shares.

    The same key gets the same arm in every process. Moving shares between neighbouring arms moves only as many keys as it
    must. `coverage`, in [0, 1], is the share of keys that take part at all (the rest goes on along the chain); lowering it
    and raising it again gives every key its old arm. Splits of different `name` are independent.
    """

    arms: tuple[Arm, ...]
    key: str = "session"
    coverage: float = 1.0
    name: str = "split"

    def __post_init__(self) -> None:
        require(len(self.arms) > 0, "`arms` is empty")
        for index, arm in enumerate(self.arms):
            require(isfinite(arm.share) and arm.share >= 0.0, f"`arms[{index}].share` must be 0 or more")
        require(sum(arm.share for arm in self.arms) > 0.0, "the shares sum to 0")
        require(0.0 <= self.coverage <= 1.0, "`coverage` must lie in [0, 1]")

    def decide(self, ctx: Context, history: History) -> Decision:
        key = ctx.request.key(self.key)
        if self.coverage < 1.0 and chance(f"{self.name}/coverage", key) >= self.coverage:
            return Decline(f"not covered by {self.name}")
        arm, share = self._arm(chance(self.name, key))
        label = arm.name or (arm.use.model if isinstance(arm.use, Use) else "policy")
        if isinstance(arm.use, Use):
            return settle(arm.use.model, history, f"arm {label}", self.name, share)
        decision = arm.use.decide(ctx, history)
        if isinstance(decision, Decline):
            return decision
        return structs.replace(decision, reason=f"arm {label}: {decision.reason}", propensity=decision.propensity * share)

    def _arm(self, point: float) -> tuple[Arm, float]:
        total = sum(arm.share for arm in self.arms)
        edge = 0.0
        arm = self.arms[-1]
        for arm in self.arms:
            edge += arm.share / total
            if point < edge and arm.share > 0.0:
                break
        return arm, arm.share / total
