"""Policies one after another."""

from __future__ import annotations

from msgspec import Struct

from rheostat.policies.base import History, Policy, require
from rheostat.types import Context, Decision, Decline


class Chain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask the policies in order; the first that does not pass decides.

    A policy that applied but could not be answered (`Decline.failed`) ends the chain: the fallback ladder takes over.
    """

    policies: tuple[Policy, ...]

    def __post_init__(self) -> None:
        require(len(self.policies) > 0, "`chain` is empty")

    def decide(self, ctx: Context, history: History) -> Decision:
        decision: Decision = Decline("empty chain")
        for policy in self.policies:
            decision = policy.decide(ctx, history)
            if not isinstance(decision, Decline) or decision.failed:
                return decision
        return decision
