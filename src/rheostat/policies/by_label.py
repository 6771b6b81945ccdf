"""One model's label says who answers."""

from __future__ import annotations

from msgspec import Struct, structs

from rheostat.policies.base import History, Policy, found, left_to, require
from rheostat.types import Answer, Call, Context, Decision, Decline

SHOWN = 40
"""Characters of a label that a reason shows."""


class ByLabel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask `model` first; `map` says by its label which model or policy answers, `default` for every other label.

    The label only chooses: it is asked for once (no retry), has no weight and is never the request's answer, also not
    on the fallback ladder. A label that is not in `map` is noted as `unknown_label`; without `default` no model is chosen:
    what is left is a cached answer, the preset, or an error. When `model` fails or cannot be asked, `on_error`, a model or
    a policy, decides, which counts as the router's own trouble (`router_unavailable`); without it the ladder takes over.
    """

    model: str
    map: dict[str, Policy]
    default: Policy | None = None
    on_error: Policy | None = None
    name: str = "by_label"

    def __post_init__(self) -> None:
        require(bool(self.map), "`map` needs one label or more")

    def models(self) -> tuple[str, ...]:
        return (self.model,)

    def steering(self) -> tuple[str, ...]:
        """Return the models whose answers only choose others."""
        return (self.model,)

    def decide(self, ctx: Context, history: History) -> Decision:
        outcome = found(history, self.model)
        if outcome is None:
            return Call((self.model,), f"the label of {self.model} chooses", self.name)
        if outcome.prediction is None:
            why = f"{self.model} {outcome.failure.kind if outcome.failure is not None else 'failed'}"
            if self.on_error is None:
                return Decline(f"{why}, and no label means no choice", failed=True)
            decision = left_to(self.on_error, ctx, history, why, self.name)
            return structs.replace(decision, trouble=why) if isinstance(decision, Call | Answer | Decline) else decision
        label = outcome.prediction.label
        shown = repr(label[:SHOWN])
        branch = self.map.get(label)
        if branch is not None:
            return left_to(branch, ctx, history, f"{self.model} says {shown}", self.name)
        if self.default is None:
            return Decline(f"unknown_label {shown} of {self.model}, and there is no `default`", failed=True, alone=True)
        return left_to(self.default, ctx, history, f"unknown_label {shown} of {self.model}", self.name)
