"""Models that are equally right for a request: the one with the most room, and the same one for a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite, log
from typing import Literal

from msgspec import Struct, field

from rheostat.chance import chance
from rheostat.policies.base import History, Policy, require
from rheostat.resilience.ramp import among
from rheostat.types import Answer, Call, Context, Decision, Decline, ModelView, Request

FLOOR = 0.02
"""The part of its plain share that a model keeps however badly it does, so that it is seen when it does well again."""
DEFAULT_TAG = "default"
Views = Mapping[str, ModelView]


class Balance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Spread requests over `models` that can answer the same, by how busy they are: `{a: 2, b: 1}` gives each a base score.

    `choose: two_choices` (the default) draws two models and takes the one with the smaller (running + waiting + 1) *
    latency / (score * share of recent calls that went well); 2 requests of 100 go to the first of the two regardless, so
    that a model that was slow is seen when it is quick again. `least_loaded` takes the smallest (running + waiting) /
    score; ties are drawn by score. `weighted` draws in proportion to score * share that went well / (latency * (1 + running
    + waiting)); each model keeps at least 2 % of its share by score. A latency not known yet counts as the mean of the known
    ones.

    `sticky`, one of session, tenant or a meta field, gives each of its values to one model, in proportion to the scores and
    whatever the load, while that is available: a model that is out, or gone from the list, moves only its own sessions, and
    they come back once. Requests without the field are chosen as without `sticky`.

    `tags` names a meta field, or else a header: a request that has it goes only to models with that tag. Without one, or
    with one that no model here has, it goes to the models tagged `default`; to all, when none is.

    A model on its ramp takes part in the share of the requests (of the sessions, if they have one) that the ramp gives it.
    A model that fails makes place for the next best, each asked once. Those that are out, or have score 0, come last.
    Sources: Mitzenmacher (2001), the power of two choices; Thaler and Ravishankar (1998), rendezvous hashing.
    """

    live = True

    of: tuple[str, ...] | dict[str, float] = field(name="models")
    choose: Literal["weighted", "least_loaded", "two_choices"] = "two_choices"
    sticky: str | None = None
    tags: str | None = None
    name: str = "balance"

    def __post_init__(self) -> None:
        require(len(self.of) > 0, "`models` is empty")
        require(len(self.scores()) == len(self.of), "`models` names a model twice")
        for model, score in self.scores().items():
            require(isfinite(score) and score >= 0.0, f"`models.{model}` must be a number of 0 or more, got {score}")
        require(any(self.scores().values()), "`models` has no score above 0")
        require(self.sticky != "", "`sticky` is empty; it is session, tenant or the name of a meta field")
        require(self.tags != "", "`tags` is empty; it is the name of a meta field or of a header")

    def scores(self) -> dict[str, float]:
        """Return the base score of every model."""
        return self.of if isinstance(self.of, dict) else dict.fromkeys(self.of, 1.0)

    def models(self) -> tuple[str, ...]:
        return tuple(self.of)

    def decide(self, ctx: Context, history: History) -> Decision:
        heard = {outcome.model: outcome for outcome in history}
        left = {model: ctx.pool.get(model) or ModelView(model) for model in self.of}
        if self.tags is not None:
            left = _tagged(left, _tag(ctx.request, self.tags))
        count = len(left)
        while left:
            model, propensity, reason = self._choice(ctx.request, left, count - len(left))
            outcome = heard.get(model)
            if outcome is None:
                return Call((model,), reason, self.name, propensity)
            if outcome.ok:
                return Answer({model: 1.0}, reason, self.name, propensity)
            del left[model]
        return Decline("every model failed" if count > 1 else "the only model failed", failed=True)

    def _choice(self, request: Request, left: Views, failed: int) -> tuple[str, float, str]:
        """Return the next model, how likely that was given who failed before, and why."""
        scores = self._best(request, left)
        if len(scores) == 1:
            model = next(iter(scores))
            return model, 1.0, f"{model} is the only one left" if failed else f"{model} is the only one that may be asked"
        key = None if self.sticky is None else _value(request, self.sticky)
        if key is not None:
            model = first(scores, f"balance/{self.name}", key)
            return model, scores[model] / sum(scores.values()), f"{model} has this {self.sticky}"
        salt = f"balance/{self.name}/{failed}"
        if self.choose == "least_loaded":
            return _least(scores, left, salt, request.id)
        if self.choose == "two_choices":
            return _of_two(scores, left, salt, request.id)
        shares = weights(scores, left)
        model = first(shares, salt, request.id)
        return model, shares[model], f"{model} drawn with weight {shares[model]:.4f}"

    def _best(self, request: Request, left: Views) -> dict[str, float]:
        """Return the scores of those that may be chosen now: available, not spared by their ramp, above 0, if any is."""
        scores = self.scores()
        key = request.key("session")
        ranks = {
            model: (not view.available, not among(view.ramp, model, key), scores[model] == 0.0)
            for model, view in left.items()
        }
        best = min(ranks.values())
        return {model: scores[model] or 1.0 for model, rank in ranks.items() if rank == best}


def reads_load(policies: Iterable[Policy]) -> bool:
    """Return whether one of the policies decides by how busy the models are at the moment."""
    return any(getattr(policy, "live", False) for policy in policies)


def first(weights: Mapping[str, float], salt: str, key: str) -> str:
    """Return one of the models, each in proportion to its weight, always the same for the same `key`.

    A model that leaves or comes, or whose weight changes, moves only the keys that it loses or wins.
    Source: weighted rendezvous hashing; the smallest of exponential draws.
    """
    return min(weights, key=lambda model: -log(1.0 - chance(f"{salt}/{model}", key)) / weights[model])


def weights(scores: Mapping[str, float], views: Views) -> dict[str, float]:
    """Return each model's share of the requests by its score and how it does; they sum to 1."""
    latency = _latencies(scores, views)
    found = {model: score * (1.0 - views[model].error_rate) / (latency[model] * (1 + _busy(views[model])))
             for model, score in scores.items()}  # fmt: skip
    total, base = sum(found.values()), sum(scores.values())
    if total <= 0.0:
        return {model: score / base for model, score in scores.items()}
    floored = {model: max(found[model] / total, FLOOR * score / base) for model, score in scores.items()}
    whole = sum(floored.values())
    return {model: share / whole for model, share in floored.items()}


def _least(scores: Mapping[str, float], views: Views, salt: str, key: str) -> tuple[str, float, str]:
    load = {model: _busy(views[model]) / score for model, score in scores.items()}
    least = min(load.values())
    tied = {model: score for model, score in scores.items() if load[model] == least}
    model = first(tied, salt, key) if len(tied) > 1 else next(iter(tied))
    drawn = f", drawn of {len(tied)}" if len(tied) > 1 else ""
    return model, tied[model] / sum(tied.values()), f"{model} is the least loaded ({_busy(views[model])} in hand{drawn})"


def _of_two(scores: Mapping[str, float], views: Views, salt: str, key: str) -> tuple[str, float, str]:
    latency = _latencies(scores, views)
    wait = {
        model: (_busy(views[model]) + 1) * latency[model] / (score * max(FLOOR, 1.0 - views[model].error_rate))
        for model, score in scores.items()
    }
    models = list(scores)
    count = len(models)
    at = int(chance(f"{salt}/one", key) * count)
    other = int(chance(f"{salt}/two", key) * (count - 1))
    one, two = models[at], models[other + (other >= at)]
    model = two if wait[two] < wait[one] and chance(f"{salt}/again", key) >= FLOOR else one
    beaten = sum([1.0 if wait[each] > wait[model] else 0.5 for each in models if wait[each] >= wait[model]]) - 0.5
    likely = (1.0 - FLOOR) * 2.0 * beaten / (count * (count - 1)) + FLOOR / count
    return model, likely, f"{model} ({_busy(views[model])} in hand) of the two drawn, {one} and {two}"


def _busy(view: ModelView) -> int:
    return view.in_flight + view.queued


def _latencies(models: Iterable[str], views: Views) -> dict[str, float]:
    """Return every model's latency in seconds, the mean of the known ones where there is none, 1 where there are none."""
    known = {model: views[model].latency_s for model in models}
    told = [latency for latency in known.values() if latency > 0.0]
    mean = sum(told) / len(told) if told else 1.0
    return {model: latency if latency > 0.0 else mean for model, latency in known.items()}


def _value(request: Request, kind: str) -> str | None:
    """Return what the request carries of this kind, or None."""
    own = {"session": request.session, "tenant": request.tenant}
    value = own[kind] if kind in own else request.meta.get(kind)
    return None if value is None or value == "" else str(value)


def _tag(request: Request, name: str) -> str | None:
    value = request.meta.get(name)
    return str(value) if value is not None and value != "" else request.headers.get(name.lower()) or None


def _tagged(views: Views, tag: str | None) -> dict[str, ModelView]:
    """Return the models for a tag; for none, or one that nobody has, the default ones."""
    sought: Sequence[str] = (tag, DEFAULT_TAG) if tag is not None else (DEFAULT_TAG,)
    for each in sought:
        found = {model: view for model, view in views.items() if each in view.tags}
        if found:
            return found
    return dict(views)
