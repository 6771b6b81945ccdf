"""Any number of models: the cheapest that is good enough, or the best quality for the money, again after each answer."""

from __future__ import annotations

from math import isfinite

from msgspec import Struct

from rheostat.policies.base import History, require, unit
from rheostat.types import Answer, Call, Context, Decision, Decline, Outcome


class Cheapest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Choose one `of` several models by their predicted quality, the signals `QUALITY.MODEL`, and their cost.

    With `bar` the cheapest model whose predicted quality is at least that is asked; where none is, the one predicted best.
    It is a number or the name of a signal: with `spend.BUDGET` a budget moves it.
    Otherwise the one with the highest quality - `trade` * cost. Costs are the pool's, or the signals `COST.MODEL` when
    `cost` names them. With `best` and `margin` another model takes the place of `best` only when it is predicted better by
    the margin (below 0: at most so much worse). Models that are not available are looked at last.

    With `asks` above 1 it decides again after each answer: the answer's confidence, or the signal `CONFIDENCE.MODEL` when
    `confidence` names it, takes the place of the prediction. By `bar` an answer at or above it ends the request. By `trade`
    another model is asked while that pays on average; `reveal`, in [0, 1], says how much an answer's confidence tells: 0
    nothing beyond what was predicted, 1 whether it is right. The answer of the highest confidence counts. `carry`, in
    [0, 1], is the part of an answer's surprise (confidence less prediction) that the models not asked yet share. At most
    `asks` answers are looked at.
    Sources: Dekoninck et al., cascade routing (arXiv 2410.10347); Weitzman (1979) for when another one pays.
    """

    of: tuple[str, ...]
    quality: str
    bar: float | str | None = None
    trade: float = 0.0
    cost: str | None = None
    best: str | None = None
    margin: float | None = None
    asks: int = 1
    reveal: float = 0.0
    carry: float = 0.0
    confidence: str | None = None
    name: str = "cheapest"

    def __post_init__(self) -> None:
        require(len(self.of) >= 2, "`of` needs at least two models")
        require(len(set(self.of)) == len(self.of), "`of` names a model twice")
        require(not isinstance(self.bar, float) or isfinite(self.bar), "`bar` must be a number, or a signal's name")
        require(self.bar is None or self.trade == 0.0, "`bar` and `trade` exclude each other: give one of them")
        require(isfinite(self.trade) and self.trade >= 0.0, f"`trade` must be 0 or more, got {self.trade}")
        require((self.best is None) == (self.margin is None), "`best` and `margin` go together")
        require(self.best is None or self.best in self.of, "`best` must be one of the models")
        require(self.margin is None or isfinite(self.margin), "`margin` must be a number")
        require(self.asks >= 1, f"`asks` must be 1 or more, got {self.asks}")
        unit((self.reveal,), "reveal")
        unit((self.carry,), "carry")
        told = self.reveal > 0.0 or self.carry > 0.0 or self.confidence is not None
        require(self.asks > 1 or not told, "`reveal`, `carry` and `confidence` need `asks` above 1")

    def models(self) -> tuple[str, ...]:
        return self.of

    def signals(self) -> tuple[str, ...]:
        kinds = [self.quality, *(kind for kind in (self.cost, self.confidence) if kind is not None)]
        bar = (self.bar,) if isinstance(self.bar, str) else ()
        return (*(f"{kind}.{model}" for kind in kinds for model in self.of), *bar)

    def decide(self, ctx: Context, history: History) -> Decision:
        heard = {outcome.model: outcome for outcome in history if outcome.model in self.of}
        answered = [outcome for outcome in heard.values() if outcome.ok]
        if answered and (len(answered) >= self.asks or len(heard) == len(self.of)):
            return self._answer(ctx, answered, "no further model may be asked" if self.asks > 1 else "asked")
        left = [model for model in self.of if model not in heard]
        if not left:
            return Decline("every model failed", failed=True)
        for outcome in answered:
            if self.confidence is not None and (awaited := f"{self.confidence}.{outcome.model}") in ctx.awaited:
                missing = tuple(model for model in ctx.awaited[awaited] if model in left)
                if missing:
                    return Call(missing, f"the answers give the confidence ({awaited})", self.name)
        told = self._told(ctx, left, answered)
        if not answered:
            model, reason = self._first(ctx, told)
            return Call((model,), reason, self.name)
        return self._again(ctx, told, answered)

    def _told(self, ctx: Context, left: list[str], answered: list[Outcome]) -> dict[str, float]:
        """The quality now expected of each model that is left."""
        shift = 0.0
        if answered and self.carry > 0.0:
            gaps = [self._known(ctx, outcome) - ctx.signals[f"{self.quality}.{outcome.model}"] for outcome in answered]
            shift = self.carry * sum(gaps) / len(gaps)
        open_ = [model for model in left if model not in ctx.pool or ctx.pool[model].available]
        return {model: ctx.signals[f"{self.quality}.{model}"] + shift for model in open_ or left}

    def _known(self, ctx: Context, outcome: Outcome) -> float:
        """How good an answer is taken to be; without a usable confidence as good as was predicted."""
        value = outcome.confidence if self.confidence is None else ctx.signals.get(f"{self.confidence}.{outcome.model}")
        return ctx.signals[f"{self.quality}.{outcome.model}"] if value is None else value

    def _cost(self, ctx: Context, model: str) -> float:
        return ctx.pool[model].cost if self.cost is None else ctx.signals[f"{self.cost}.{model}"]

    def _bar(self, ctx: Context) -> float | None:
        return ctx.signals[self.bar] if isinstance(self.bar, str) else self.bar

    def _first(self, ctx: Context, told: dict[str, float]) -> tuple[str, str]:
        some, guard = told, ""
        if self.best is not None and self.margin is not None and self.best in told:
            need = told[self.best] + self.margin
            some = {model: value for model, value in told.items() if model == self.best or value >= need}
            guard = f"; {self.best} {told[self.best]:.4f} {self.margin:+g}"
        if (bar := self._bar(ctx)) is not None:
            enough = [model for model, value in some.items() if value >= bar]
            if enough:
                model = min(enough, key=lambda one: (self._cost(ctx, one), -some[one]))
                return model, f"cheapest at or above {bar:g}: {model} {some[model]:.4f}{guard}"
            model = min(some, key=lambda one: (-some[one], self._cost(ctx, one)))
            return model, f"none reaches {bar:g}: {model} {some[model]:.4f} is best{guard}"
        worth = {model: self._worth(ctx, model, value) for model, value in some.items()}
        model = min(worth, key=lambda one: (-worth[one], self._cost(ctx, one)))
        return model, f"best for the money: {model} {some[model]:.4f}, worth {worth[model]:.4f}{guard}"

    def _again(self, ctx: Context, told: dict[str, float], answered: list[Outcome]) -> Decision:
        best = max(self._known(ctx, outcome) for outcome in answered)
        if (bar := self._bar(ctx)) is not None:
            if best >= bar:
                return self._answer(ctx, answered, f"{best:.4f} >= {bar:g}")
            model, reason = self._first(ctx, told)
            return Call((model,), f"{best:.4f} < {bar:g}; {reason}", self.name)
        worth = {model: self._worth(ctx, model, value) for model, value in told.items()}
        model = min(worth, key=lambda one: (-worth[one], self._cost(ctx, one)))
        if best >= worth[model]:
            return self._answer(ctx, answered, f"{best:.4f} in hand, asking {model} is worth {worth[model]:.4f}")
        return Call((model,), f"{best:.4f} in hand, asking {model} is worth {worth[model]:.4f}", self.name)

    def _worth(self, ctx: Context, model: str, told: float) -> float:
        """The quality in hand at which asking the model just stops to pay; nothing revealed: its quality less its price."""
        price = self.trade * self._cost(ctx, model)
        return told - price if self.reveal == 0.0 else reservation(told, self.reveal, price)

    def _answer(self, ctx: Context, answered: list[Outcome], reason: str) -> Answer:
        best = max(answered, key=lambda outcome: self._known(ctx, outcome))
        return Answer({best.model: 1.0}, reason, self.name)


def reservation(mean: float, reveal: float, price: float) -> float:
    """Return z with E[max(X - z, 0)] = price: Weitzman's index of a box that holds X and costs `price` to open.

    X is what an answer's confidence will be: mean + reveal * (1 - mean) with chance `mean`, else mean - reveal * mean.
    Opening boxes by falling index, until the best value found is at least the index of every closed one, is optimal when
    values are independent. Source: Weitzman, Optimal Search for the Best Alternative (1979).

    Args:
        mean: taken into [0, 1]. reveal: in [0, 1]. price: 0 or more.
    """
    chance = min(1.0, max(0.0, mean))
    if price > reveal * chance or chance == 0.0:
        return chance - price
    return chance + reveal * (1.0 - chance) - price / chance
