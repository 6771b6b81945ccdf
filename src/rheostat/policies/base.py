"""The seam: a policy is a frozen struct with one pure method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct, structs

from rheostat.types import Answer, Call, Context, Decision, Decline, Outcome

History = tuple[Outcome, ...]


@runtime_checkable
class Policy(Protocol):
    """Decides one request. No await, clock, random numbers, logging or I/O: chance is `rheostat.chance`.

    Any frozen `msgspec.Struct` with this method is a policy and decodes from the config by its fields. It may also have
    `models()` and `signals()`, tuples of the names it uses, which are then checked when the config is loaded,
    `steering()`, those of its models whose answers only choose others, and `live()`, what it reads of how busy the models
    are: then every request gets a view of its own, and whoever replays the policy is told that a table has no load.
    """

    def decide(self, ctx: Context, history: History) -> Decision:
        """Say what should happen now; asked again whenever an outcome arrives."""


class Use(Struct, frozen=True):
    """One model, always. In the config it is written as the bare name of the model."""

    model: str

    def decide(self, ctx: Context, history: History) -> Decision:  # noqa: ARG002
        return settle(self.model, history, "the only model named", "use")

    def models(self) -> tuple[str, ...]:
        return (self.model,)


def kind_of(outcome: Outcome) -> str:
    """Say how a model failed, as the end of a reason."""
    return f": {outcome.failure.kind}" if outcome.failure is not None else ""


def settle(model: str, history: History, reason: str, by: str, propensity: float = 1.0) -> Decision:
    """Leave everything to one model: call it, then answer with what it said, or decline when it failed."""
    for outcome in history:
        if outcome.model == model:
            if outcome.ok:
                return Answer({model: 1.0}, reason, by, propensity)
            return Decline(f"{model} failed{kind_of(outcome)}", failed=True)
    return Call((model,), reason, by, propensity)


def left_to(branch: Policy, ctx: Context, history: History, reason: str, by: str) -> Decision:
    """Leave everything to a model or to another policy, whose own reasons then follow `reason`."""
    if isinstance(branch, Use):
        return settle(branch.model, history, reason, by)
    decision = branch.decide(ctx, history)
    if isinstance(decision, Call | Answer) or (isinstance(decision, Decline) and decision.failed):
        return structs.replace(decision, reason=f"{reason}; {decision.reason}")
    return decision  # it does not apply; or a user's policy said something odd, which the journey refuses


def found(history: History, model: str) -> Outcome | None:
    """Return what `model` came back with, or None while it has not."""
    for outcome in history:
        if outcome.model == model:
            return outcome
    return None


def walk(policy: Any) -> Iterator[Any]:
    """Yield `policy` and every policy nested in its fields, outermost first."""
    yield policy
    for name in getattr(policy, "__struct_fields__", ()):
        yield from _nested(getattr(policy, name))


def _nested(value: Any) -> Iterator[Any]:
    if isinstance(value, Policy):
        yield from walk(value)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _nested(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _nested(item)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from _nested(getattr(value, name))


def models_of(policy: Policy) -> tuple[str, ...]:
    """Return every model the policy and its nested policies say they use, in order, each once."""
    return _said(policy, "models")


def signals_of(policy: Policy) -> tuple[str, ...]:
    """Return every signal the policy and its nested policies say they read, in order, each once."""
    return _said(policy, "signals")


def live_of(policy: Policy) -> tuple[str, ...]:
    """Return what the policy and its nested policies say they read of the live load, in order, each once."""
    return _said(policy, "live")


def steering_of(policy: Policy) -> tuple[str, ...]:
    """Return every model whose answers only choose others, by `steering()` of the policy and its nested policies."""
    steering = _said(policy, "steering")
    if not steering:
        return ()
    answering: set[str] = set()
    for part in walk(policy):
        own = part.steering() if callable(getattr(part, "steering", None)) else ()
        if callable(getattr(part, "models", None)):
            answering.update(model for model in part.models() if model not in own)
    return tuple(model for model in steering if model not in answering)


def answering_of(policy: Policy) -> tuple[str, ...]:
    """Return every model that the policy uses to answer, in order, each once."""
    steering = steering_of(policy)
    return tuple(model for model in models_of(policy) if model not in steering)


def _said(policy: Policy, what: str) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for part in walk(policy):
        method = getattr(part, what, None)
        if callable(method):
            names.update(dict.fromkeys(method()))
    return tuple(names)


def require(condition: bool, message: str) -> None:
    """Refuse settings that make no sense; the decoder adds where in the file they stand.

    Raises:
        ValueError: the condition does not hold.
    """
    if not condition:
        raise ValueError(message)


def unit(values: Sequence[float], name: str) -> None:
    """Refuse anything outside [0, 1] (NaN included)."""
    for value in values:
        require(0.0 <= value <= 1.0, f"`{name}` must lie in [0, 1], got {value}")
