"""One request explained: the stations of its path with their times, for pictures and programs, and the same in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from rheostat.telemetry.telling import tell
from rheostat.types import Attempt, Failure, Feedback, Outcome, RouteRecord, Step

_EARLY_S = 1e-6  # clocks are read one after the other
_WAIT_S = 1e-3  # shorter is no wait that somebody wants to see
State = Literal["good", "failed", "cut", "plain"]


class Station(Struct, frozen=True, kw_only=True):
    """One thing on a request's path. Times are seconds from its arrival; `end_s` is None where something took no time.

    `kind` is arrived, cache, signals, decided (the policy named models, answered or passed on), fallback (the ladder did),
    waited (for a place at a model), call (one try at a model), ended or judged (later, at a time of its own in `facts`).
    `state` is good, failed, cut (ended before its time) or plain. `after` names the stations that led here.
    """

    id: str
    kind: Literal["arrived", "cache", "signals", "decided", "fallback", "waited", "call", "ended", "judged"]
    title: str
    at_s: float
    end_s: float | None = None
    state: State = "plain"
    model: str = ""
    facts: Mapping[str, Any] = {}
    after: tuple[str, ...] = ()


class Explanation(Struct, frozen=True, kw_only=True):
    """A record explained. `stations` are in the order in which they came, `text` tells the same in lines."""

    id: str
    wall: float
    route: str
    status: str
    label: str | None
    elapsed_s: float
    stations: tuple[Station, ...]
    text: tuple[str, ...]


def explain(record: RouteRecord, feedback: Sequence[Feedback] = ()) -> Explanation:
    """Explain a record; `feedback` are the later judgements on it."""
    return Explanation(
        id=record.id, wall=record.wall, route=record.route, status=record.status, label=record.label,
        elapsed_s=record.elapsed_s, stations=tuple(_stations(record, feedback)), text=tuple(tell(record, feedback)),
    )  # fmt: skip


def _stations(record: RouteRecord, feedback: Sequence[Feedback]) -> Iterator[Station]:
    last = "arrived"
    yield Station(id=last, kind="arrived", title=f"arrived on the route {record.route}", at_s=0.0, facts=_came(record))
    if record.cache:
        yield Station(
            id="cache", kind="cache", title=f"cache: {record.cache}", at_s=0.0, after=(last,),
            state="plain" if record.cache in ("miss", "bypass") else "good",
            facts=_given(age_s=record.age_s, similarity=record.similarity),
        )  # fmt: skip
        last = "cache"
    if record.signals or record.held:
        facts = {**record.signals, **record.held}
        yield Station(id="signals", kind="signals", title="signals", at_s=0.0, facts=facts, after=(last,))
        last = "signals"
    tries = [list(_calls(record, number, outcome)) for number, outcome in enumerate(record.outcomes)]
    calls = [call for one in tries for call in one]
    unheard = [one for one in tries if one and one[-1].state != "cut"]
    stations, begun = list(calls), {"arrived"}
    for number, step in enumerate(record.steps):
        heard = [one for one in unheard if one[0].after[0] in begun and (one[-1].end_s or 0.0) <= step.at_s + _EARLY_S]
        unheard = [one for one in unheard if one not in heard]
        stations.append(_decided(number, step, tuple(one[-1].id for one in heard) or (last,)))
        last = _name(number)
        begun.add(last)
    yield from sorted(stations, key=lambda each: (each.at_s, each.kind in ("waited", "call")))
    yield _ended(record, (last, *(each.id for each in calls if each.state == "cut")))
    for number, judgement in enumerate(sorted(feedback, key=lambda each: each.wall)):
        yield _judged(record, judgement, number)


def _name(number: int) -> str:
    return f"step-{number + 1}"


def _came(record: RouteRecord) -> dict[str, Any]:
    kept = record.input
    size = {} if kept is None else _given(kind=kept.kind, length=kept.length, hash=kept.hash, text=kept.text)
    urgent = record.priority if record.priority != "normal" else None
    return {**size, **_given(session=record.session, tenant=record.tenant, priority=urgent), **record.meta}


def _decided(number: int, step: Step, after: tuple[str, ...]) -> Station:
    models = " and ".join(step.models)
    title = {"call": f"call {models}", "answer": f"answer with {models}", "fallback": f"fall back on {models}"}.get(
        step.kind, f"pass on to {models}"
    )
    chance = step.propensity if step.propensity < 1.0 else None
    return Station(
        id=_name(number), kind="fallback" if step.kind == "fallback" else "decided", title=title if models else step.kind,
        at_s=step.at_s, state="failed" if step.kind == "fallback" else "plain", after=after,
        facts={"reason": step.reason, **_given(weights=step.weights or None, chance=chance)},
    )  # fmt: skip


def _calls(record: RouteRecord, number: int, outcome: Outcome) -> Iterator[Station]:
    """The waits for a place and the tries of one model, each after the one before."""
    named = [at for at, step in enumerate(record.steps) if outcome.model in step.models and step.kind != "answer"]
    first_s = outcome.attempts[0].started_s if outcome.attempts else None
    begun = [at for at in named if first_s is None or record.steps[at].at_s <= first_s + _EARLY_S]
    step = max(begun, default=None)
    last, free_s = (_name(step), record.steps[step].at_s) if step is not None else ("arrived", 0.0)
    for turn, attempt in enumerate(outcome.attempts, 1):
        if turn == 1 and attempt.started_s - free_s > _WAIT_S:
            wait = f"wait-{number + 1}"
            yield Station(
                id=wait, kind="waited", title=f"waited for a place at {attempt.model}", at_s=free_s,
                end_s=attempt.started_s, model=attempt.model, after=(last,),
            )  # fmt: skip
            last = wait
        call = _call(f"call-{number + 1}-{turn}", outcome, attempt, attempt is outcome.attempts[-1], last)
        yield call
        last = call.id
    failure = outcome.failure
    if failure is not None and (not outcome.attempts or outcome.attempts[-1].failure is None):
        at_s = outcome.attempts[-1].started_s + outcome.attempts[-1].elapsed_s if outcome.attempts else free_s
        yield Station(
            id=f"call-{number + 1}", kind="call", title=f"{outcome.model} was not asked: {failure.kind}", at_s=at_s,
            end_s=at_s + outcome.elapsed_s, state=_state(failure), model=outcome.model,
            facts=_given(failure=failure.kind, message=failure.message or None), after=(last,),
        )  # fmt: skip


def _call(name: str, outcome: Outcome, attempt: Attempt, final: bool, after: str) -> Station:
    failure, said = attempt.failure, outcome.prediction if final and attempt.failure is None else None
    title, state = f"{attempt.model} answered", _state(failure)
    if failure is not None:
        title = f"{attempt.model} was cut off" if state == "cut" else f"{attempt.model} failed: {failure.kind}"
    elif said is not None:
        title = f"{attempt.model} said {said.label!r}"
    facts: dict[str, Any] = _given(
        instead_of=outcome.model if attempt.model != outcome.model else None,
        failure=failure.kind if failure is not None else None,
        message=(failure.message or None) if failure is not None else None,
        upstream_status=failure.upstream_status if failure is not None else None,
        first_s=attempt.first_s,
    )
    if final:
        facts |= _given(version=outcome.version or None, cost=outcome.cost)
    if said is not None:
        facts |= _given(label=said.label, confidence=said.confidence, scores=said.scores)
        if said.spans:
            facts["spans"] = said.spans
    return Station(
        id=name, kind="call", title=title, at_s=attempt.started_s, end_s=attempt.started_s + attempt.elapsed_s,
        state=state, model=attempt.model, facts=facts, after=(after,),
    )  # fmt: skip


def _state(failure: Failure | None) -> State:
    return "good" if failure is None else "cut" if failure.kind == "cancelled" else "failed"


def _ended(record: RouteRecord, after: tuple[str, ...]) -> Station:
    good = record.status in ("ok", "degraded")
    title = f"answered {record.label!r}" if good and record.label is not None else record.status
    facts = _given(
        status=record.status, label=record.label, confidence=record.confidence, model=record.selected_model or None,
        version=record.selected_version or None, weights=record.weights or None, level=record.level or None,
        fallback_reason=record.fallback_reason or None, missing=record.missing or None, review=record.review or None,
        error_type=record.error_type, error=record.error, cost=record.cost, overhead_s=record.overhead_s,
        tokens=record.tokens or None, policy_version=record.policy_version or None,
        config_version=record.config_version or None,
    )  # fmt: skip
    state: State = "cut" if record.status == "cancelled" else "good" if good else "failed"
    return Station(
        id="ended", kind="ended", title=title, at_s=record.elapsed_s, state=state, model=record.selected_model, facts=facts,
        after=after,
    )  # fmt: skip


def _judged(record: RouteRecord, judgement: Feedback, number: int) -> Station:
    right = None if judgement.label is None else judgement.label == record.label
    said = f"the right label is {judgement.label!r}" if judgement.label is not None else f"reward {judgement.reward}"
    facts = _given(
        wall=judgement.wall, label=judgement.label, reward=judgement.reward, right=right, source=judgement.source or None
    )
    return Station(
        id=f"judged-{number + 1}", kind="judged", title=said, at_s=record.elapsed_s + max(0.0, judgement.wall - record.wall),
        state="plain" if right is None else "good" if right else "failed", facts=facts, after=("ended",),
    )  # fmt: skip


def _given(**facts: Any) -> dict[str, Any]:
    """Return the facts that are there."""
    return {name: value for name, value in facts.items() if value is not None}
