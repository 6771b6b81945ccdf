"""One request told step by step, in plain words."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rheostat.types import Feedback, Outcome, RouteRecord

_ROUTER = "router_unavailable"
_STATUS = {
    "ok": "answered",
    "degraded": "answered, but by a rung of the fallback ladder",
    "error": "not answered",
    "rejected": "refused: the request itself was wrong",
    "cancelled": "the client went away before the answer",
}
_STOOD_IN = {1: "answered by the same model, tried again", 2: "answered by a peer that stood in"}
_RUNGS = {
    1: "L1: the same model again",
    2: "L2: a peer of equal quality",
    3: "L3: a lighter model or the answer at hand",
    4: "L4: an earlier answer to the same question",
    5: "L5: the preset",
}


def tell(record: RouteRecord, feedback: Sequence[Feedback] = ()) -> list[str]:
    """Return the story of a record, a line each."""
    lines = [
        f"request {record.id} {_when(record.wall) or 'at a time unknown'}",
        f"  {_status(record)}, on the route {record.route!r}"
        + (f" (decided by: {record.route_type})" if record.route_type else ""),
        f"  input: {_input(record)}",
    ]
    if record.meta:
        lines.append("  with " + ", ".join(f"{name}={value!r}" for name, value in record.meta.items()))
    urgent = record.priority if record.priority != "normal" else None
    for name, value in (("session", record.session), ("tenant", record.tenant), ("priority", urgent)):
        if value is not None:
            lines.append(f"  {name}: {value}")
    if record.signals:
        lines.append("  signals: " + ", ".join(f"{name} {_number(value)}" for name, value in record.signals.items()))
    if record.held:
        lines.append("  remembered: " + ", ".join(f"{name} {value}" for name, value in record.held.items()))
    lines += ["", "what was decided"]
    lines += [_step(index, step) for index, step in enumerate(record.steps, 1)] or ["  nothing"]
    lines += ["", "what the models said"]
    lines += [line for outcome in record.outcomes for line in _outcome(outcome)] or ["  nothing: no model was asked"]
    lines += ["", "what came of it", *_ending(record)]
    lines += _versions(record)
    judgements = sorted(feedback, key=lambda judgement: judgement.wall)
    for number, judgement in enumerate(judgements, 1):
        order = f" {number} of {len(judgements)}" if len(judgements) > 1 else ""
        lines += _judgement(record, judgement, order)
    return lines


def _when(wall: float) -> str:
    known = isfinite(wall) and wall > 0.0
    return time.strftime("on %Y-%m-%d %H:%M:%S UTC", time.gmtime(wall)) if known else ""


_AGAIN = {
    "hit": "answered from the cache",
    "shared": "answered together with an equal request of the same moment",
}


def _status(record: RouteRecord) -> str:
    if record.cache in _AGAIN and record.status in ("ok", "degraded"):
        return _AGAIN[record.cache]
    if record.status in ("ok", "degraded"):
        if record.level in _STOOD_IN:
            return _STOOD_IN[record.level]
        if record.level == 0 and _trouble(record):
            return "answered by the default model, as the router itself failed"
    return _turned_away(record) or _STATUS.get(record.status, record.status)


def _turned_away(record: RouteRecord) -> str:
    """Return why the gateway did not even begin with a request that was in order, or nothing."""
    if record.error_type == "too_many_requests":
        return "turned away: its tenant had as many requests in flight as it may"
    return "turned away: the gateway was full" if record.error_type == "overloaded" and not record.steps else ""


def _trouble(record: RouteRecord) -> str:
    """Return why the router itself failed, or nothing; a rung that was needed later hides it from `fallback_reason`."""
    reasons = (record.fallback_reason, *[step.reason for step in record.steps])
    return next((reason for reason in reasons if reason.startswith(_ROUTER)), "").removeprefix(f"{_ROUTER}: ")


def _ladder(record: RouteRecord) -> str:
    if record.level == 4 and record.age_s is not None:
        return f"{_RUNGS[4]}, {record.age_s:.1f} s old, by {record.selected_model} {record.selected_version}".rstrip()
    if record.level:
        return _RUNGS.get(record.level, f"L{record.level}")
    if record.status == "error" and not _turned_away(record):
        tried = [_RUNGS[level] for level in _rungs_tried(record)]
        return f"nothing could answer; tried: {', '.join(tried)}" if tried else "nothing could answer; no rung was tried"
    return "not needed" if record.status in ("ok", "degraded") else "not used"


def _rungs_tried(record: RouteRecord) -> list[int]:
    """Return the rungs that asked a model, read from the attempts and steps."""
    again = any(
        [attempt.model for attempt in outcome.attempts].count(name) > 1
        for outcome in record.outcomes
        for name in {attempt.model for attempt in outcome.attempts}
    )
    peer = any(attempt.model != outcome.model for outcome in record.outcomes for attempt in outcome.attempts)
    lighter = any(step.kind == "fallback" for step in record.steps)
    return [level for level, tried in ((1, again), (2, peer), (3, lighter)) if tried]


def _input(record: RouteRecord) -> str:
    given = record.input
    if given is None:
        return "not recorded"
    unit = ("character" if given.kind == "text" else "byte") + ("" if given.length == 1 else "s")
    size = f"{given.kind} of {given.length} {unit} (hash {given.hash})"
    return f"{size}: {given.text!r}" if given.text is not None else size


def _step(index: int, step: Any) -> str:
    models = " and ".join(step.models)
    if step.kind == "call":
        what = f"call {models}"
    elif step.kind == "answer":
        shares = [f"{name} with weight {_number(weight)}" for name, weight in step.weights.items()]
        what = f"answer with {models}" if len(shares) == 1 else f"answer with {' and '.join(shares)}"
    elif step.kind == "fallback":
        what = f"fall back{f' on {models}' if models else ''}"
    else:
        what = f"pass on{f' to {models}' if models else ''}"
    chance = f" (chance {_number(step.propensity)})" if step.propensity < 1.0 else ""
    return f"  {index}. after {_ms(step.at_s)}: {what}{chance}, because {step.reason}"


def _outcome(outcome: Outcome) -> list[str]:
    name = outcome.model if outcome.served_by in ("", outcome.model) else f"{outcome.served_by} in place of {outcome.model}"
    version = f" (version {outcome.version})" if outcome.version else ""
    spent = f"{_ms(outcome.elapsed_s)}, cost {_number(outcome.cost)}"
    prediction, failure = outcome.prediction, outcome.failure
    if prediction is not None:
        sure = "without a usable confidence" if prediction.confidence is None else f"confidence {prediction.confidence:.4f}"
        lines = [f"  {name}{version}: {prediction.label!r}, {sure}; {spent}"]
        if prediction.scores and len(prediction.scores) > 1:
            best = sorted(prediction.scores.items(), key=lambda item: -item[1])[:4]
            more = ", ..." if len(prediction.scores) > len(best) else ""
            lines.append("    scores: " + ", ".join(f"{label!r} {score:.4f}" for label, score in best) + more)
        for span in prediction.spans:
            ended = f", {span.failure}" if span.failure else ""
            spent = f"{_ms(span.elapsed_s)}, cost {_number(span.cost)}"
            lines.append(f"    {span.model} ({span.why}): {span.tokens} tokens{ended}; {spent}")
    elif failure is not None and failure.kind == "cancelled":
        lines = [f"  {name}{version}: {failure.message or 'cut off'}; {spent}"]
    else:
        why = f"{failure.kind}{f', {failure.message}' if failure.message else ''}" if failure is not None else "nothing"
        lines = [f"  {name}{version}: failed ({why}); {spent}"]
    if len(outcome.attempts) > 1:
        for number, attempt in enumerate(outcome.attempts, 1):
            how = "good" if attempt.failure is None else f"{attempt.failure.kind} {attempt.failure.message}".strip()
            lines.append(f"    try {number} at {attempt.model}: {how}, {_ms(attempt.elapsed_s)}")
    return lines


def _ending(record: RouteRecord) -> list[str]:
    lines = []
    if record.label is not None:
        sure = "no confidence" if record.confidence is None else f"confidence {record.confidence:.4f}"
        source = f" by {record.selected_model}" if record.selected_model else ""
        lines.append(f"  answer: {record.label!r}, {sure}{source}")
    if len(record.weights) > 1:
        lines.append("  weights: " + ", ".join(f"{name} {_number(weight)}" for name, weight in record.weights.items()))
    if record.missing:
        lines.append(f"  should have counted and could not: {', '.join(record.missing)}")
    if record.stood_in:
        lines.append(f"  other scores counted in the place of: {', '.join(record.stood_in)}")
    if record.error is not None:
        lines.append(f"  error: {record.error_type}: {record.error}")
    if trouble := _trouble(record):
        lines.append(f"  the router could not decide, so the route's default model was asked: {trouble}")
    lines.append(f"  fallback ladder: {_ladder(record)}")
    if record.fallback_reason and not record.fallback_reason.startswith(_ROUTER):
        lines.append(f"  because: {record.fallback_reason}")
    if record.completes:
        lines.append("  asked again in the background: its client had been promised an answer")
    if record.forced:
        lines.append("  the caller chose the model or skipped the route")
    if record.propensity < 1.0:
        lines.append(f"  chance of this choice: {_number(record.propensity)}")
    lines.append(
        f"  cost {_number(record.cost)}, {_ms(record.elapsed_s)} in all, {_ms(record.overhead_s)} of them the router's own"
    )
    return lines


def _versions(record: RouteRecord) -> list[str]:
    names = (("config", record.config_version), ("policy", record.policy_version))
    known = [f"{what} {version}" for what, version in names if version]
    return [f"  versions: {', '.join(known)}"] if known else []


def _judgement(record: RouteRecord, judgement: Feedback, order: str) -> list[str]:
    source = f" ({judgement.source})" if judgement.source else ""
    when = _when(judgement.wall)
    lines = ["", f"feedback{order}{f' {when}' if when else ''}{source}"]
    if judgement.label is not None:
        verdict = "the answer was right" if judgement.label == record.label else "the answer was wrong"
        lines.append(f"  the right label is {judgement.label!r}: {verdict}")
    if judgement.reward is not None:
        lines.append(f"  reward {_number(judgement.reward)}")
    return lines


def _number(value: float) -> str:
    return f"{value:.4g}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1.0 else f"{seconds:.3g} s"
