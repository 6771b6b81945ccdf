"""Models that are equally right for a request: the one with the most room, and the same one for a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite, log
from typing import Literal

from msgspec import Struct, field

from rheostat.chance import chance
from rheostat.policies.base import History, kind_of, require
from rheostat.resilience.ramp import among
from rheostat.types import Answer, Call, Context, Decision, Decline, ModelView, Request

FLOOR = 0.02
"""The part of its plain share that a model keeps however badly it does, so that it is seen when it does well again."""
CLOSE = 0.9
"""A wait is shorter than another when it is less than this part of it: what is measured is never quite equal, and of two
servers that are alike one would get nearly all requests while there is no load."""
DEFAULT_TAG = "default"
Views = Mapping[str, ModelView]
Choice = tuple[str, float, str]
"""A model, how likely it was, and why it."""


class Balance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Spread requests over `models` that can answer the same, by how busy they are: `{a: 2, b: 1}` gives each a base score.

    `choose: shortest_wait` (the default) takes the smallest (running + waiting + 1) * latency / (score * share of recent
    calls that went well), `two_choices` the smaller one of two models drawn; of both, 2 requests of 100 go to one drawn
    regardless, so that a model that was slow is seen when it is quick again, and waits within a tenth count as equal.
    `least_loaded` takes the smallest (running + waiting) / score. Ties are drawn by score. `weighted` draws in proportion to
    score * share that went well / (latency * (1 + running + waiting)); each model keeps at least 2 % of its share by score.
    A latency not known yet counts as the mean of the known ones.

    `sticky`, one of session, tenant or a meta field, gives each of its values to one model, in proportion to the scores and
    whatever the load, while that is available: a model that is out, or gone from the list, moves only its own sessions, and
    they come back once. Requests without the field are chosen as without `sticky`.

    `tags` names a meta field, or else a header: a request that has it goes only to models with that tag. Without one, or
    with one that no model here has, it goes to the models tagged `default`; to all, when none is.

    A model on its ramp takes part in the share of the requests (of the sessions, if they have one) that the ramp gives it.
    A model that fails makes place for the next best, each asked once. Those that are out, or have score 0, come last.
    Sources: Mitzenmacher (2001), the power of two choices; Thaler and Ravishankar (1998), rendezvous hashing.
    """

    of: tuple[str, ...] | dict[str, float] = field(name="models")
    choose: Literal["shortest_wait", "least_loaded", "two_choices", "weighted"] = "shortest_wait"
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

    def live(self) -> tuple[str, ...]:
        """Return what the choice reads of every model's load."""
        counts = ("in_flight", "queued")
        return (*counts, "ramp") if self.choose == "least_loaded" else (*counts, "latency_s", "error_rate", "ramp")

    def decide(self, ctx: Context, history: History) -> Decision:
        heard = {outcome.model: outcome for outcome in history}
        made: list[Choice] = ctx.memo.setdefault(f"balance:{id(self)}", [])
        for number in range(len(self.of)):
            if number == len(made):
                choice = self._choice(ctx, [model for model, _, _ in made])
                if choice is None:
                    break
                told = "".join([f"{each} failed{kind_of(heard[each])}; " for each, _, _ in made])
                made.append((choice[0], choice[1], told + choice[2]))
            model, propensity, reason = made[number]
            outcome = heard.get(model)
            if outcome is None:
                return Call((model,), reason, self.name, propensity)
            if outcome.ok:
                return Answer({model: 1.0}, reason, self.name, propensity)
        last = made[-1][0]
        who = f"every model failed, {last} last" if len(made) > 1 else f"{last}, the only model, failed"
        return Decline(f"{who}{kind_of(heard[last])}", failed=True)

    def _choice(self, ctx: Context, failed: Sequence[str]) -> Choice | None:
        """Return the next model, how likely that was given who failed before and who is on a ramp, and why."""
        request = ctx.request
        left: Views = {model: ctx.pool.get(model) or ModelView(model) for model in self.of}
        if self.tags is not None:
            left = _tagged(left, _tag(request, self.tags))
        if failed:
            left = {model: view for model, view in left.items() if model not in failed}
        if not left:
            return None
        scores = self._best(request, left)
        if len(scores) == 1:
            model = next(iter(scores))
            return model, 1.0, f"{model} is the only one left" if failed else f"{model} is the only one that may be asked"
        key = None if self.sticky is None else _value(request, self.sticky)
        if key is not None:
            model = first(scores, f"balance/{self.name}", key)
            return model, scores[model] / sum(scores.values()), f"{model} has this {self.sticky}"
        return _WAYS[self.choose](scores, left, f"balance/{self.name}/{len(failed)}", request.id)

    def _best(self, request: Request, left: Views) -> dict[str, float]:
        """Return the scores of those that may be chosen now: available, not spared by their ramp, above 0, if any is."""
        scores, key = self.scores(), request.key("session")
        able = {
            model: scores[model]
            for model, view in left.items()
            if view.available and (view.ramp >= 1.0 or among(view.ramp, model, key)) and scores[model]
        }
        if able:
            return able
        ranks = {
            model: (not view.available, not among(view.ramp, model, key), scores[model] == 0.0)
            for model, view in left.items()
        }
        best = min(ranks.values())
        return {model: scores[model] or 1.0 for model, rank in ranks.items() if rank == best}


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


def _weighted(scores: Mapping[str, float], views: Views, salt: str, key: str) -> Choice:
    shares = weights(scores, views)
    model = first(shares, salt, key)
    return model, shares[model], f"{model} drawn with weight {shares[model]:.4f}"


def _least_loaded(scores: Mapping[str, float], views: Views, salt: str, key: str) -> Choice:
    tied = _tied({model: _busy(views[model]) / score for model, score in scores.items()}, scores)
    model = first(tied, salt, key)
    told = f"{model} is the least loaded ({_busy(views[model])} in hand{_drawn(tied)})"
    return model, tied[model] / sum(tied.values()), told


def _shortest_wait(scores: Mapping[str, float], views: Views, salt: str, key: str) -> Choice:
    tied = _tied(_waits(scores, views), scores, CLOSE)
    if chance(f"{salt}/again", key) >= FLOOR:
        model = first(tied, salt, key)
        told = f"{model} has the shortest wait ({_busy(views[model])} in hand{_drawn(tied)})"
    else:
        model = first(scores, f"{salt}/other", key)
        told = f"{model} drawn whatever its wait, to see how it does"
    likely = FLOOR * scores[model] / sum(scores.values())
    return model, likely + (1.0 - FLOOR) * tied.get(model, 0.0) / sum(tied.values()), told


def _two_choices(scores: Mapping[str, float], views: Views, salt: str, key: str) -> Choice:
    waits = _waits(scores, views)
    models = list(scores)
    count = len(models)
    at = int(chance(f"{salt}/one", key) * count)
    other = int(chance(f"{salt}/two", key) * (count - 1))
    one, two = models[at], models[other + (other >= at)]
    model = two if waits[two] < CLOSE * waits[one] and chance(f"{salt}/again", key) >= FLOOR else one
    wait = waits[model]
    beaten = sum([(CLOSE * wait <= waits[each]) + (wait < CLOSE * waits[each]) for each in models if each != model])
    likely = (1.0 - FLOOR) * beaten / (count * (count - 1)) + FLOOR / count
    return model, likely, f"{model} ({_busy(views[model])} in hand) of the two drawn, {one} and {two}"


_WAYS: dict[str, Callable[[Mapping[str, float], Views, str, str], Choice]] = {
    "shortest_wait": _shortest_wait,
    "least_loaded": _least_loaded,
    "two_choices": _two_choices,
    "weighted": _weighted,
}


def _tied(loads: Mapping[str, float], scores: Mapping[str, float], close: float = 1.0) -> dict[str, float]:
    """Return the scores of the models with the smallest load, and of those whose load is `close` to it."""
    least = min(loads.values())
    return {model: scores[model] for model, load in loads.items() if close * load <= least}


def _drawn(tied: Mapping[str, float]) -> str:
    return f", drawn of {len(tied)}" if len(tied) > 1 else ""


def _waits(scores: Mapping[str, float], views: Views) -> dict[str, float]:
    """Return how long a request would take at each model, longer the smaller its score and the more calls fail."""
    latency = _latencies(scores, views)
    return {
        model: (_busy(views[model]) + 1) * latency[model] / (score * max(FLOOR, 1.0 - views[model].error_rate))
        for model, score in scores.items()
    }


def _busy(view: ModelView) -> int:
    return view.in_flight + view.queued


def _latencies(models: Iterable[str], views: Views) -> dict[str, float]:
    """Return every model's latency in seconds, the mean of the known ones where there is none, 1 where there are none."""
    known = {model: views[model].latency_s for model in models}
    if 0.0 not in known.values():
        return known
    told = [latency for latency in known.values() if latency]
    mean = sum(told) / len(told) if told else 1.0
    return {model: latency or mean for model, latency in known.items()}


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
