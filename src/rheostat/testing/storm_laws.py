"""The laws of a storm: what must hold for one serving of a request, and for a model when all is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rheostat.engine.engine import Plan, Served
from rheostat.pool import Model
from rheostat.resilience.retry import WINDOW_S
from rheostat.testing.storm_config import CACHE, TOTAL_S, TTL_S
from rheostat.testing.weathered import Here, Weathered
from rheostat.types import Request, RouteRecord

EPSILON_S = 0.001


class Serving(NamedTuple):
    """One request served once: by which `plan`, under which name it called models (`asking`), its `record`, what came
    back (None: it was cancelled), how many `pieces` were streamed, and how long its reader let the model wait."""

    request: Request
    plan: Plan
    asking: str
    record: RouteRecord
    served: Served | None
    ended: float
    pieces: int
    idled_s: float


def broken_by(one: Serving, earlier: Sequence[str]) -> Iterator[str]:
    """Tell every law that a serving broke. `earlier` are the good answers that there were to the same question."""
    request, record = one.request, one.record
    limit = request.deadline + (one.idled_s + TOTAL_S if one.pieces else 0.0)
    if one.ended > limit + EPSILON_S:
        yield f"it ended {one.ended - limit} s late"
    if record.config_version != one.plan.version:
        yield f"it began under {one.plan.version} and ended under {record.config_version}"
    yield from _calls(one)
    yield from _answer(one, earlier)


def _calls(one: Serving) -> Iterator[str]:
    record, request, lane = one.record, one.request, one.plan.lanes[one.request.route]
    told = Counter(attempt.model for outcome in record.outcomes for attempt in outcome.attempts)
    once = request.force_model is not None or request.max_cost != float("inf")
    most = 1 if once else 1 + lane.route.fallback.retry
    total = 0
    effects = set()
    for name, model in one.plan.pool.models.items():
        backend = weather(model)
        calls = backend.calls[one.asking]
        total += calls
        if calls > (1 if name in lane.route.steering else most):
            yield f"{name} was called {calls} times"
        waits_in_line = isinstance(backend, Here)  # a thread may not have begun when its time was over
        if told[name] < calls or (told[name] > calls and not waits_in_line):
            yield f"{name} had {calls} calls, {told[name]} are told"
        if model.settings.side_effects and calls:
            effects.add(name)
    for attempt in (attempt for outcome in record.outcomes for attempt in outcome.attempts):
        if attempt.elapsed_s < 0.0 or attempt.started_s + attempt.elapsed_s > record.elapsed_s + EPSILON_S:
            yield f"a try at {attempt.model} of {attempt.elapsed_s} s from {attempt.started_s} on, in {record.elapsed_s} s"
    cost = sum(one.plan.pool[name].settings.cost * count for name, count in told.items())
    if abs(cost - record.cost) > 1e-9:
        yield f"its calls cost {cost}, its record says {record.cost}"
    if record.cost > request.max_cost:
        yield f"it cost {record.cost} and could pay {request.max_cost}"
    bound = lane.route.fallback.max_attempts
    if bound and total > bound and not one.request.force_model:
        yield f"it made {total} calls, {bound} are allowed"
    unsure = {o.served_by for o in record.outcomes if o.failure is not None and o.failure.kind == "uncertain"}
    if len(unsure) > max(1, len(effects)):
        yield "it went on after an uncertain call"


def _answer(one: Serving, earlier: Sequence[str]) -> Iterator[str]:
    record, served = one.record, one.served
    if record.status == "cancelled" and served is not None:
        yield "its client left, and it came back with something"
    if served is None:
        return
    if (served.prediction is None) is (served.error is None):
        yield f"it ended with {served.prediction} and {served.error}"
    if served.prediction is None:
        return
    said = served.prediction.label
    good = {outcome.model for outcome in record.outcomes if outcome.ok}
    heavy = {model for model, weight in record.weights.items() if weight > 0.0}
    if not heavy <= good:
        yield f"weight on {heavy - good}, which gave no answer"
    if record.cache == "hit":
        if record.level or record.outcomes or record.age_s is None or record.age_s > TTL_S or said not in earlier:
            yield f"a hit: {said!r}, {record.age_s} s old, which nobody had said well"
    elif record.cache == "shared":
        if record.outcomes or (record.level != 5 and said not in {f"said by {name}" for name in "abcd"}):
            yield f"{said!r}, which an equal request had not got"
    elif record.age_s is not None:
        if record.level != 4 or record.age_s > float(CACHE.max_age) or said not in earlier:
            yield f"level {record.level}: {said!r}, {record.age_s} s old, which nobody had said"
    elif record.level == 5:
        if said != "preset":
            yield f"{said!r} for the preset"
    elif said not in {o.prediction.label for o in record.outcomes if o.prediction is not None}:
        yield f"nobody said {said!r}"
    if one.request.completing and record.level >= 4:
        yield "a promise was kept without a model"


def text_is_wrong(pieces: Sequence[str], served: Served | None) -> bool:
    """Return whether a streamed text is not that of the answer, or not of one model alone."""
    text = "".join(pieces)
    if served is not None and served.prediction is not None:
        return text != served.prediction.label
    return bool(text) and not any(f"said by {name}".startswith(text) for name in "abcd")


def broken_at_the_end(models: Mapping[str, Model], elapsed_s: float) -> Iterator[str]:
    """Tell every law that one of these models broke over the whole storm, `elapsed_s` seconds long."""
    for name, model in models.items():
        backend, settings = weather(model), model.settings
        if model.in_flight or model.waiting:
            yield f"{name} keeps {model.in_flight} places, {len(model.waiting)} wait"
        if backend.running:
            yield f"{name} is still running"
        most = settings.adaptive.most if settings.adaptive is not None else settings.max_concurrency
        if most and not model.inline and backend.most_running > most:
            yield f"{name} had {backend.most_running} calls at a time"
        budget = settings.retry_budget
        firsts = backend.calls.total() - backend.again
        allowed = budget.least * (WINDOW_S + elapsed_s) + budget.share * firsts
        if backend.again > allowed + 1e-6:
            yield f"{name} was tried again {backend.again} times, its budget is {allowed}"
        if backend.called_closed:
            yield f"{name} was called after it was closed"
        if backend.closed != 1:
            yield f"{name} was closed {backend.closed} times"


def weather(model: Model) -> Weathered:
    """Return the model's backend."""
    assert isinstance(model.backend, Weathered)
    return model.backend
