"""The fallback ladder: what answers when the policy's models cannot. Pure, no I/O.

L1 the same model again · L2 a peer of equal quality · L3 a lighter model, an answer already in hand first ·
L4 a cached answer, and completion later · L5 a preset.
L1 is spent inside a model's attempts, L2 stands in for a model without the policy noticing, L3 to L5 take over from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import NamedTuple

from msgspec import Struct

from rheostat.types import Outcome, Prediction


class Preset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer when nothing else is left. `confidence`, in [0, 1], should stay low enough that nobody trusts it."""

    label: str
    confidence: float = 0.0

    def prediction(self) -> Prediction:
        return Prediction(self.label, self.confidence)


class FallbackSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rungs of one route. `retry` is the number of extra tries at one model (0: none), `max_attempts` bounds all calls
    of a request together, retries included (0: no bound); `peer` and `lighter` switch L2 and L3. L3 takes an
    answer in hand, else the `lighter` of a model that failed, else the dearest of the route's `models` not asked yet (where
    the input was too large for one, the one that takes the largest comes first); L4
    is `cached`, the last good answer to the same question, and `later`, which completes the request after the client has
    got what there was; `preset` is L5. `default` names the model that answers when the router itself fails (a policy
    error or a missing signal); without it the policy's first model does."""

    retry: int = 1
    max_attempts: int = 0
    peer: bool = True
    lighter: bool = True
    cached: bool = False
    later: bool = False
    preset: Preset | None = None
    default: str | None = None

    def __post_init__(self) -> None:
        if self.retry < 0:
            raise ValueError("`retry` must be 0 or more")
        if self.max_attempts < 0:
            raise ValueError("`max_attempts` must be 0 or more; 0 means no bound")


class Link(Struct, frozen=True):
    """Who may stand in for a model: peers of equal quality, one lighter model; `cost` orders those not named. `max_input`
    is the largest input it can take, in tokens (0: any), `can` what else it can take of what a request may need (None: all),
    `kinds` what a language model may be asked for (None: whatever the task is)."""

    peers: tuple[str, ...] = ()
    lighter: str | None = None
    cost: float = 0.0
    max_input: int = 0
    can: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None


class Rung(NamedTuple):
    """The next thing to try: an answer `in_hand`, a model to `call`, or nothing on L3 (both empty)."""

    in_hand: str | None = None
    call: str | None = None


NOTHING = Rung()


def peer_of(model: str, links: Mapping[str, Link], started: Collection[str]) -> str | None:
    """Return the first peer of `model` among `links` that this request has not tried, or None."""
    link = links.get(model)
    if link is not None:
        for peer in link.peers:
            if peer not in started and peer in links:  # a route may not use every model
                return peer
    return None


def next_rung(
    settings: FallbackSettings,
    links: Mapping[str, Link],
    outcomes: Sequence[Outcome],
    started: Collection[str],
    *,
    may_call: bool = True,
    steering: Collection[str] = (),
) -> Rung:
    """Say what is next on L3 once the policy has given up.

    `outcomes` is everything that came back, `started` every model tried; each model is tried once at most, so that two
    models that name each other cannot alternate. `may_call` is False when no time is left for another call. What the models
    in `steering` say only chooses others, so it is no answer.
    """
    if settings.lighter:
        best: Outcome | None = None
        for outcome in outcomes:
            if (
                outcome.ok
                and outcome.model not in steering
                and (best is None or _cost(links, outcome) >= _cost(links, best))
            ):
                best = outcome
        if best is not None:
            return Rung(in_hand=best.model)
        if may_call:
            lighter = _lighter(links, outcomes, started, steering)
            if lighter is not None:
                return Rung(call=lighter)
    return NOTHING


def _lighter(
    links: Mapping[str, Link], outcomes: Sequence[Outcome], started: Collection[str], steering: Collection[str]
) -> str | None:
    too_large = any(outcome.failure is not None and outcome.failure.kind == "input_too_large" for outcome in outcomes)
    for outcome in () if too_large else reversed(outcomes):
        link = links.get(outcome.model)
        lighter = link.lighter if link is not None else None
        if lighter is not None and lighter not in started and lighter in links:
            return lighter
    rest = [
        ((link.max_input or inf) if too_large else 0.0, link.cost, name)
        for name, link in links.items()
        if name not in started and name not in steering
    ]
    return max(rest)[2] if rest else None


def _cost(links: Mapping[str, Link], outcome: Outcome) -> float:
    link = links.get(outcome.model)
    return link.cost if link is not None else 0.0
