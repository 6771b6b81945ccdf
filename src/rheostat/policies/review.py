"""Too uncertain even at the top: a person is asked."""

from __future__ import annotations

from msgspec import Struct, structs

from rheostat.policies.base import History, Policy, require
from rheostat.types import Context, Decision, Decline, Floor


class Review(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mark the answer of `policy` for a person to review when its confidence is under `below`, in (0, 1], or missing.

    What counts is the final answer: after every escalation, of the whole blend, and also of a rung of the fallback ladder.
    Without `label` the best guess is said, marked; with it `label` (for example `unsure`) is said, and the guess stays in
    `route_info.guess` and in the record. Of two reviews inside one another the inner one counts.
    """

    policy: Policy
    below: float
    label: str | None = None

    def __post_init__(self) -> None:
        require(0.0 < self.below <= 1.0, f"`below` must lie in (0, 1], got {self.below}")
        require(self.label != "", "`label` is empty; leave it out to say the best guess, marked")

    def decide(self, ctx: Context, history: History) -> Decision:
        decision = self.policy.decide(ctx, history)
        if decision.floor is not None or (isinstance(decision, Decline) and not decision.failed):
            return decision
        return structs.replace(decision, floor=Floor(self.below, self.label))
