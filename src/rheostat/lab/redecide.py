"""One recorded request decided again: the same journey, on the signals and answers that its record holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from rheostat.engine.journey import Journey, Route
from rheostat.policies import Policy, Rules, answering_of, live_of, steering_of, walk
from rheostat.resilience.ladder import FallbackSettings, Link
from rheostat.signals.base import AnswerScorer, Scorer
from rheostat.types import Context, ModelView, Outcome, Request, RouteRecord, Step, text_of

_INPUT: Final = ("text", "data")


class Way(Struct, frozen=True, kw_only=True):
    """How one route decides: its policy with the policy's version, its ladder, its models and its signals' scorers."""

    policy: Policy
    fallback: FallbackSettings
    links: Mapping[str, Link]
    views: Mapping[str, ModelView] = {}
    scorers: tuple[Scorer | AnswerScorer, ...] = ()
    version: str = ""

    @property
    def default(self) -> str:
        """The model that answers when the policy fails."""
        named = [model for model in answering_of(self.policy) if model in self.links]
        return self.fallback.default or (named[0] if named else next(iter(self.links)))

    def request(self, record: RouteRecord) -> Request:
        """Return the request as far as the record holds it."""
        kept = record.input
        data: Any = None
        if kept is not None and kept.text is not None:
            data = kept.text if kept.kind == "text" else msgspec.json.decode(kept.text)
        forced = record.steps[0].models[0] if record.route_type == "forced" and record.steps else None
        return Request(
            id=record.id,
            data=data,
            text=text_of(data),
            meta=record.meta,
            route=record.route,
            session=record.session,
            tenant=record.tenant,
            priority=record.priority,
            force_model=forced,
            skip_route=record.route_type == "skipped",
        )


class Again(Struct, frozen=True, kw_only=True):
    """What the second decision said. `stuck` says why it came to no end, `trouble` how the policy itself failed."""

    asked: frozenset[str]
    weights: Mapping[str, float] = {}
    label: str | None = None
    stuck: str = ""
    trouble: str = ""


def redecide(record: RouteRecord, way: Way) -> Again:
    """Let the route's policy decide again, its models answering what they answered, in the recorded order.

    Retries and peers are not tried again: the recorded outcome of a model is that after all of its attempts.
    """
    late = {name for scorer in way.scorers if isinstance(scorer, AnswerScorer) for name in scorer.names}
    signals = {name: value for name, value in record.signals.items() if name not in late}
    route = Route(
        policy=way.policy,
        fallback=structs.replace(way.fallback, retry=0, peer=False),
        links=way.links,
        default=way.default,
        answer_scorers=tuple(_recorded(one, record) for one in way.scorers if isinstance(one, AnswerScorer)),
        steering=steering_of(way.policy),
    )
    journey = Journey(route, Context(way.request(record), signals, _with_means(way.views, record), record.held))
    left = [one for one in record.outcomes if one.failure is None or one.failure.kind != "cancelled"]  # never heard
    journey.start(0.0)
    while journey.ending is None:
        outcome = next((one for one in left if one.model in journey.in_flight), None)
        if outcome is None:
            waiting = ", ".join(sorted(journey.in_flight)) or "nothing"
            return Again(
                asked=asked_of(journey.steps, record), stuck=f"it now asks {waiting}, whose answer the record does not hold"
            )
        left.remove(outcome)
        journey.started.update(attempt.model for attempt in outcome.attempts)  # peers that stood in are used up
        journey.arrived(outcome, outcome.elapsed_s)
    ending = journey.ending
    label = ending.prediction.label if ending.prediction is not None else None
    asked = asked_of(journey.steps, record)
    return Again(asked=asked, weights=ending.weights, label=label, trouble=journey.trouble or "")


def asked_of(steps: Sequence[Step], record: RouteRecord) -> frozenset[str]:
    """Return the models that the policy or the ladder named in `steps`, without those the request could not pay for.

    A peer that stood in counts as the model it stood for.
    """
    named = {model for step in steps if _is_call(step.kind, step.reason) for model in step.models}
    return frozenset(named - unpaid(record))


def _is_call(kind: str, reason: str) -> bool:
    return kind == "call" or (kind == "fallback" and reason.startswith("L3") and ", asking " in reason)


def unpaid(record: RouteRecord) -> set[str]:
    """Return the models that were named and not asked, because the request could not pay for them."""
    return {one.model for one in record.outcomes if one.failure is not None and one.failure.kind == "over_budget"}


class _Recorded(Struct):
    """Gives the signals that the record holds, when the answers they were made from are in."""

    names: tuple[str, ...]
    needs: tuple[str, ...]
    values: Mapping[str, float]

    def score(self, request: Request, signals: Mapping[str, float], outcomes: Mapping[str, Outcome]) -> Mapping[str, float]:  # noqa: ARG002
        return self.values


def _with_means(views: Mapping[str, ModelView], record: RouteRecord) -> Mapping[str, ModelView]:
    """Return the views with the means that stood in for models."""
    told = dict(views)
    for model, scores in record.stood_in.items():
        told[model] = structs.replace(told.get(model) or ModelView(model), means={"": scores})
    return told


def _recorded(scorer: AnswerScorer, record: RouteRecord) -> AnswerScorer:
    values = {name: record.signals[name] for name in scorer.names if name in record.signals}
    return _Recorded(scorer.names, scorer.needs, values)


def unrecorded(policy: Policy, record: RouteRecord) -> str:
    """Return what the policy reads and this record does not hold (headers, the pool's state, the input); or empty."""
    read: set[str] = set()
    for part in walk(policy):
        if isinstance(part, Rules):
            read |= {root for root, _ in part.__dict__["roots"]}
            read |= {"text"} if part.__dict__["reads_text"] else set()
    read |= {"pool"} if live_of(policy) else set()
    kept = record.input is not None and record.input.text is not None and not record.input.changed
    lacking = [name for name in ("headers", "pool", "text", "data") if name in read and not (kept and name in _INPUT)]
    return " and ".join("the pool's state" if name == "pool" else f"the {name}" for name in lacking)
