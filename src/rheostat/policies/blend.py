"""How much each answer counts: weights over several models, mixed or drawn."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from msgspec import Struct

from rheostat.chance import chance
from rheostat.policies.base import History, found, require, settle, unit
from rheostat.policies.stand_in import DROP, MEAN, Averaged, StandIn
from rheostat.types import Answer, Call, Context, Decision, Decline


class Blend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights over any number of models; their answers are mixed, or one is drawn.

    With `signal` each request has its own: a model's weight is the signal `SIGNAL.MODEL` (below 0 counts as 0) times its
    fixed one. A signal made from answers is waited for: then all models are called first.

    `weights` are non-negative and sum to more than 0; models of weight 0 are never called. `mode: mix` calls all at once
    and mixes their score distributions; `mode: sample` calls one, drawn by weight and sticky by `key`. In a mix, models
    that fail are left out and the rest counts in proportion, as long as they carry at least `min_weight` of the weight.

    `stand_in` says what counts in the place of a model that fails in a mix: nothing (`drop`), its running mean scores
    (`mean`; with `segment`, a field of meta, those of the request's own segment where there are enough), or the answer of
    the model named, which is asked for it unless it has answered. A mean is no answer and does not count for `min_weight`,
    an answer does.
    """

    weights: dict[str, float]
    signal: str | None = None
    mode: str = "mix"
    key: str = "request"
    min_weight: float = 0.5
    stand_in: str = DROP
    segment: str | None = None
    name: str = "blend"

    def __post_init__(self) -> None:
        require(self.mode in ("mix", "sample"), f"`mode` must be mix or sample, got {self.mode!r}")
        require(self.stand_in == DROP or self.mode == "mix", "`stand_in` goes with `mode: mix`; remove one of the two")
        require(self.segment is None or self.stand_in == MEAN, "`segment` goes with `stand_in: mean`")
        for model, weight in self.weights.items():
            require(isfinite(weight) and weight >= 0.0, f"`weights.{model}` must be 0 or more, got {weight}")
        require(sum(self.weights.values()) > 0.0, "`weights` must sum to more than 0")
        unit((self.min_weight,), "min_weight")

    def models(self) -> tuple[str, ...]:
        other = self.stand_in
        return tuple(self.weights) if other in (DROP, MEAN, *self.weights) else (*self.weights, other)

    def averaged(self) -> Averaged:
        """Return the models whose running means it reads, each with the field of meta that names the segment."""
        return tuple((model, self.segment) for model in self.weights) if self.stand_in == MEAN else ()

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
        return mixed(shares, history, self.min_weight, reason, self.name, StandIn(ctx, self.stand_in, self.segment))


class Delegate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A weight per request between a weak and a strong model, with two cuts that save the other call.

    The weight of `strong`, in [0, 1], is the signal `weight` when one is named, else 1 minus the confidence of the weak
    answer (none usable: 1). A signal made from answers is waited for: the models it is made from are called first. Below
    `low` only the weak model answers, above `high` only the strong one, in between both, mixed by the weight (`mode:
    mix`) or one drawn by it (`mode: sample`, sticky by `key`). With `parallel` both start at once, and the strong call
    is cancelled when the weight turns out to be extreme. If one of the two fails, the other answers; with `stand_in: mean`
    the mix goes on with the running mean scores of the one that failed, those of the request's `segment` (a field of meta)
    where there are enough.
    """

    weak: str
    strong: str
    weight: str | None = None
    low: float = 0.0
    high: float = 1.0
    mode: str = "mix"
    key: str = "request"
    parallel: bool = False
    stand_in: str = DROP
    segment: str | None = None
    name: str = "delegate"

    def __post_init__(self) -> None:
        require(self.stand_in in (DROP, MEAN), f"`stand_in` must be {DROP} or {MEAN}, got {self.stand_in!r}")
        require(self.segment is None or self.stand_in == MEAN, "`segment` goes with `stand_in: mean`")
        require(self.weak != self.strong, "`weak` and `strong` are the same model")
        require(self.mode in ("mix", "sample"), f"`mode` must be mix or sample, got {self.mode!r}")
        unit((self.low, self.high), "low` and `high")
        require(self.low <= self.high, "`low` must not be above `high`")

    def models(self) -> tuple[str, ...]:
        return (self.weak, self.strong)

    def averaged(self) -> Averaged:
        """Return the models whose running means it reads, each with the field of meta that names the segment."""
        return tuple((model, self.segment) for model in self.models()) if self.stand_in == MEAN else ()

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
        return self._ruled(ctx, weight, propensity, reason, history)

    def _ruled(self, ctx: Context, weight: float, propensity: float, reason: str, history: History) -> Decision:
        if weight < self.low or weight == 0.0:
            only, other = self.weak, self.strong
        elif weight > self.high or weight == 1.0:
            only, other = self.strong, self.weak
        else:
            stand_in = StandIn(ctx, self.stand_in, self.segment)
            return mixed({self.weak: 1.0 - weight, self.strong: weight}, history, 0.0, reason, self.name, stand_in)
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


def mixed(
    shares: dict[str, float], history: History, min_weight: float, reason: str, by: str, stand_in: StandIn
) -> Decision:
    """Call all of `shares` (which sum to 1), wait for all, then answer with those that came back well.

    The share of one that failed goes to what stands in for it; without that the rest counts in proportion.
    """
    came = {model: found(history, model) for model in shares}
    missing = tuple(model for model, outcome in came.items() if outcome is not None and not outcome.ok)
    extra = stand_in.asks(missing)
    if any(outcome is None for outcome in came.values()) or (extra and found(history, extra) is None):
        names = (*shares, extra) if extra and extra not in shares else tuple(shares)
        return Call(names, f"{extra} for {', '.join(missing)}; {reason}" if extra and missing else reason, by)
    if not missing:
        return Answer(dict(shares), reason, by)
    weights = {model: share for model, share in shares.items() if model not in missing}
    means: dict[str, Mapping[str, float]] = {}
    told = []
    for model in missing:
        stood, said = stand_in.of(model, history)
        told.append(said)
        if stood is None:
            continue
        if extra:
            weights[extra] = weights.get(extra, 0.0) + shares[model]
        means[model] = stood
    total = sum(weights.values())
    if total <= 0.0 or total < min_weight:
        return Decline(f"too much of the blend is missing: {', '.join(missing)}", failed=True)
    if not extra:
        weights |= {model: shares[model] for model in means}
        total = sum(weights.values())
    weights = {model: share / total for model, share in weights.items()}
    return Answer(weights, f"{reason}; {'; '.join(told)}", by, missing=missing, stand_ins=means)
