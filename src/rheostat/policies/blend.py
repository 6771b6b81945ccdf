"""How much each answer counts: weights over several models, mixed or drawn."""

from __future__ import annotations

from math import isfinite

from msgspec import Struct

from rheostat.chance import chance
from rheostat.policies.base import History, found, require, settle, unit
from rheostat.types import Answer, Call, Context, Decision, Decline


class Blend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights over any number of models; their answers are mixed, or one is drawn.

    With `signal` each request has its own: a model's weight is the signal `SIGNAL.MODEL` (below 0 counts as 0) times its
    fixed one. A signal made from answers is waited for: then all models are called first.

    `weights` are non-negative and sum to more than 0; models of weight 0 are never called. `mode: mix` calls all at once
    and mixes their score distributions; `mode: sample` calls one, drawn by weight and sticky by `key`. In a mix, models
    that fail are left out and the rest counts in proportion, as long as they carry at least `min_weight` of the weight.
    """

    weights: dict[str, float]
    signal: str | None = None
    mode: str = "mix"
    key: str = "request"
    min_weight: float = 0.5
    name: str = "blend"

    def __post_init__(self) -> None:
        require(self.mode in ("mix", "sample"), f"`mode` must be mix or sample, got {self.mode!r}")
        for model, weight in self.weights.items():
            require(isfinite(weight) and weight >= 0.0, f"`weights.{model}` must be 0 or more, got {weight}")
        require(sum(self.weights.values()) > 0.0, "`weights` must sum to more than 0")
        unit((self.min_weight,), "min_weight")

    def models(self) -> tuple[str, ...]:
        return tuple(self.weights)

    def signals(self) -> tuple[str, ...]:
        return tuple(f"{self.signal}.{model}" for model in self.weights) if self.signal is not None else ()

    def decide(self, ctx: Context, history: History) -> Decision:
        weights, reason = self.weights, "fixed weights"
        if self.signal is not None:
            awaited = [ctx.awaited[name] for name in self.signals() if name in ctx.awaited]
            if awaited:
                models = dict.fromkeys((*self.weights, *(model for models in awaited for model in models)))
                return Call(tuple(models), f"the answers give the weights ({self.signal})", self.name)
            told = {model: max(0.0, ctx.signals[f"{self.signal}.{model}"]) for model in weights}
            weights = {model: weights[model] * weight for model, weight in told.items()}
            reason = "weights " + ", ".join(f"{model} {weight:.4f}" for model, weight in told.items())
        total = sum(weights.values())
        require(total > 0.0, f"the weights of {self.signal} sum to 0")
        shares = {model: weight / total for model, weight in weights.items() if weight > 0.0}
        if self.mode == "sample":
            model = draw(shares, chance(self.name, ctx.request.key(self.key)))
            return settle(model, history, f"drawn with weight {shares[model]:.4f}", self.name, shares[model])
        return mixed(shares, history, self.min_weight, reason, self.name)


class Delegate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A weight per request between a weak and a strong model, with two cuts that save the other call.

    The weight of `strong`, in [0, 1], is the signal `weight` when one is named, else 1 minus the confidence of the weak
    answer (none usable: 1). A signal made from answers is waited for: the models it is made from are called first. Below
    `low` only the weak model answers, above `high` only the strong one, in between both, mixed by the weight (`mode:
    mix`) or one drawn by it (`mode: sample`, sticky by `key`). With `parallel` both start at once, and the strong call
    is cancelled when the weight turns out to be extreme. If one of the two fails, the other answers.
    """

    weak: str
    strong: str
    weight: str | None = None
    low: float = 0.0
    high: float = 1.0
    mode: str = "mix"
    key: str = "request"
    parallel: bool = False
    name: str = "delegate"

    def __post_init__(self) -> None:
        require(self.weak != self.strong, "`weak` and `strong` are the same model")
        require(self.mode in ("mix", "sample"), f"`mode` must be mix or sample, got {self.mode!r}")
        unit((self.low, self.high), "low` and `high")
        require(self.low <= self.high, "`low` must not be above `high`")

    def models(self) -> tuple[str, ...]:
        return (self.weak, self.strong)

    def signals(self) -> tuple[str, ...]:
        return (self.weight,) if self.weight is not None else ()

    def decide(self, ctx: Context, history: History) -> Decision:
        both = (self.weak, self.strong)
        weak, strong = found(history, self.weak), found(history, self.strong)
        if weak is not None and not weak.ok and strong is not None and not strong.ok:
            return Decline("both models failed", failed=True)
        if self.weight is not None and self.weight in ctx.awaited:
            first = both if self.parallel else ctx.awaited[self.weight]
            names = tuple(dict.fromkeys((*first, *ctx.awaited[self.weight])))
            return Call(names, f"the answers give the weight ({self.weight})", self.name)
        if self.weight is not None:
            weight = min(1.0, max(0.0, ctx.signals[self.weight]))
            source = self.weight
        elif weak is None:
            return Call(both if self.parallel else (self.weak,), "the weak answer gives the weight", self.name)
        else:
            confidence = weak.confidence
            weight = 1.0 if confidence is None else 1.0 - confidence
            source = f"1 - confidence of {self.weak}"
        reason = f"weight of {self.strong} {weight:.4f} ({source})"
        propensity = 1.0
        if self.mode == "sample" and self.low <= weight <= self.high:
            strong_drawn = chance(self.name, ctx.request.key(self.key)) < weight
            propensity = weight if strong_drawn else 1.0 - weight
            weight = 1.0 if strong_drawn else 0.0
            reason += f", drawn {self.strong if strong_drawn else self.weak}"
        return self._ruled(weight, propensity, reason, history)

    def _ruled(self, weight: float, propensity: float, reason: str, history: History) -> Decision:
        if weight < self.low or weight == 0.0:
            only, other = self.weak, self.strong
        elif weight > self.high or weight == 1.0:
            only, other = self.strong, self.weak
        else:
            return mixed({self.weak: 1.0 - weight, self.strong: weight}, history, 0.0, reason, self.name)
        decision = settle(only, history, reason, self.name, propensity)
        if isinstance(decision, Decline):
            decision = settle(other, history, f"{only} failed; {reason}", self.name, propensity)
        return decision


def draw(shares: dict[str, float], point: float) -> str:
    """Return the model whose interval of the unit line holds `point`; `shares` sum to 1, in order."""
    edge = 0.0
    model = ""
    for model, share in shares.items():
        edge += share
        if point < edge:
            return model
    return model


def mixed(shares: dict[str, float], history: History, min_weight: float, reason: str, by: str) -> Decision:
    """Call all of `shares` (which sum to 1), wait for all, then answer with those that came back well."""
    present: dict[str, float] = {}
    missing: list[str] = []
    for model, share in shares.items():
        outcome = found(history, model)
        if outcome is None:
            return Call(tuple(shares), reason, by)
        if outcome.ok:
            present[model] = share
        else:
            missing.append(model)
    total = sum(present.values())
    if total <= 0.0 or total < min_weight:
        return Decline(f"too much of the blend is missing: {', '.join(missing)}", failed=True)
    if missing:
        reason += f"; without {', '.join(missing)}"
    weights = {model: share / total for model, share in present.items()}
    return Answer(weights, reason, by, missing=tuple(missing))
