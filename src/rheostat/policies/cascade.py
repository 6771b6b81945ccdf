"""Cheap first; pass on when it is not sure enough."""

from __future__ import annotations

from msgspec import Struct

from rheostat.policies.base import History, found, kind_of, require, unit
from rheostat.types import Answer, Call, Context, Decision, Decline, Outcome

KEPT, DEFERRED = "kept", "deferred"


class Cascade(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask `stages` in order; a stage whose confidence is at or above `threshold` answers, else the next is asked.

    A stage that fails or has no usable confidence defers. At most `max_escalations` answers are passed over; after that,
    and at the last stage, whatever was said is the answer. `threshold` is one number in [0, 1], one per stage but the
    last, or the name of a signal that holds it, such as the `spend.NAME` of a budget. With `hysteresis: [lower, upper]`
    the first stage answers at or above `upper`, defers below `lower`, and in between does what it last did for the same
    `key` (`session`, `tenant`, `request` or a meta field); without a memory the threshold decides. `blend` is the
    weight, in [0, 1), that the deferring answer keeps beside the later one. `parallel` starts every stage at once and
    cancels the rest when an early one is sure. With `confidence: NAME` a stage's confidence is the signal `NAME.STAGE`
    instead, as a learned rule for deferring makes it from the answer.
    """

    stages: tuple[str, ...]
    threshold: float | str | tuple[float, ...]
    hysteresis: tuple[float, float] | None = None
    key: str = "session"
    confidence: str | None = None
    max_escalations: int = 1
    blend: float = 0.0
    parallel: bool = False
    name: str = "cascade"

    def __post_init__(self) -> None:
        require(len(self.stages) >= 2, "`stages` needs at least two models")
        require(len(set(self.stages)) == len(self.stages), "`stages` names a model twice")
        if isinstance(self.threshold, str):
            require(self.hysteresis is None, "a `threshold` that is a signal moves, a `hysteresis` does not; keep one")
        elif isinstance(self.threshold, tuple):
            count = len(self.stages) - 1
            require(len(self.threshold) == count, "`threshold` needs one number, or one per stage but the last")
            unit(self.threshold, "threshold")
        else:
            unit((self.threshold,), "threshold")
        require(0.0 <= self.blend < 1.0, f"`blend` must lie in [0, 1), got {self.blend}")
        require(self.max_escalations >= 0, "`max_escalations` must be 0 or more")
        if self.hysteresis is not None:
            unit(self.hysteresis, "hysteresis")
            require(self.hysteresis[0] <= self.hysteresis[1], "`hysteresis` must be [lower, upper]")

    def models(self) -> tuple[str, ...]:
        return self.stages

    def signals(self) -> tuple[str, ...]:
        cut = (self.threshold,) if isinstance(self.threshold, str) else ()
        learned = (f"{self.confidence}.{stage}" for stage in self.stages[:-1] if self.confidence is not None)
        return (*cut, *learned)

    def _cut(self, ctx: Context, index: int) -> float:
        if isinstance(self.threshold, tuple):
            return self.threshold[index]
        return ctx.signals[self.threshold] if isinstance(self.threshold, str) else self.threshold

    def decide(self, ctx: Context, history: History) -> Decision:
        passed: Outcome | None = None  # the answer that was passed over last
        escalations = 0
        reason, kind = "cheapest first", ""
        last = len(self.stages) - 1
        for index, stage in enumerate(self.stages):
            outcome = found(history, stage)
            if outcome is None:
                names = self.stages[: last + 1] if self.parallel else (stage,)
                return Call(names, reason, self.name)
            if outcome.prediction is None:
                reason, kind = f"{stage} failed", kind_of(outcome)
                continue
            if index == last or escalations == self.max_escalations:
                return self._escalated(outcome, passed, reason)
            if self.confidence is not None and (name := f"{self.confidence}.{stage}") in ctx.awaited:
                return Call(ctx.awaited[name], f"the answers give the confidence ({name})", self.name)
            keep, reason = self._keeps(ctx, index, outcome)
            if keep:
                hold = (self.name, KEPT) if self.hysteresis is not None and index == 0 else None
                return Answer({stage: 1.0}, reason, self.name, hold=hold)
            passed = outcome
            escalations += 1
        return Decline(f"the last stage failed{kind}", failed=True)

    def _keeps(self, ctx: Context, index: int, outcome: Outcome) -> tuple[bool, str]:
        name = outcome.model
        confidence = outcome.confidence if self.confidence is None else ctx.signals[f"{self.confidence}.{name}"]
        if confidence is None:
            return False, f"{name}: invalid_confidence"
        if self.hysteresis is not None and index == 0:
            lower, upper = self.hysteresis
            if lower <= confidence < upper and (held := ctx.held.get(self.name)) is not None:
                return held == KEPT, f"{name} {confidence:.4f} in [{lower:g}, {upper:g}): held {held}"
            if confidence >= upper or confidence < lower:
                sign = ">=" if confidence >= upper else "<"
                return confidence >= upper, f"{name} {confidence:.4f} {sign} {upper if sign == '>=' else lower:g}"
        cut = self._cut(ctx, index)
        if confidence >= cut:
            return True, f"{name} {confidence:.4f} >= {cut:g}"
        return False, f"{name} {confidence:.4f} < {cut:g}"

    def _escalated(self, outcome: Outcome, passed: Outcome | None, reason: str) -> Answer:
        hold = (self.name, DEFERRED) if self.hysteresis is not None and passed is not None else None
        if passed is not None and self.blend > 0.0:
            weights = {passed.model: self.blend, outcome.model: 1.0 - self.blend}
            return Answer(weights, reason, self.name, hold=hold)
        return Answer({outcome.model: 1.0}, reason, self.name, hold=hold)
