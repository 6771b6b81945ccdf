"""One request told step by step, in plain words."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rheostat.types import Feedback, Outcome, RouteRecord

_STATUS = {
    "ok": "answered",
    "degraded": "answered, but by a rung of the fallback ladder",
    "error": "not answered",
    "rejected": "refused: the request itself was wrong",
    "cancelled": "the client went away before the answer",
}
_RUNGS = {
    0: "not needed",
    1: "L1: the same model again",
    2: "L2: a peer of equal quality",
    3: "L3: a lighter model or the answer at hand",
    5: "L5: the preset",
}


def tell(record: RouteRecord, feedback: Sequence[Feedback] = ()) -> list[str]:
    """Return the story of a record, a line each."""
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record.wall)) if isfinite(record.wall) else "at a time unknown"
    lines = [
        f"request {record.id} on {at}",
        f"  {_STATUS.get(record.status, record.status)}, on the route {record.route!r}"
        + (f" (decided by: {record.route_type})" if record.route_type else ""),
        f"  input: {_input(record)}",
    ]
    if record.meta:
        lines.append("  with " + ", ".join(f"{name}={value!r}" for name, value in record.meta.items()))
    for name, value in (("session", record.session), ("tenant", record.tenant)):
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
    lines += [f"  {name}: cancelled, its answer was no longer needed" for name in record.cancelled]
    lines += ["", "what came of it", *_ending(record)]
    lines += _versions(record)
    lines += [line for judgement in feedback for line in _judgement(record, judgement)]
    return lines


def _input(record: RouteRecord) -> str:
    given = record.input
    if given is None:
        return "not recorded"
    size = f"{given.kind} of {given.length} {'characters' if given.kind == 'text' else 'bytes'} (hash {given.hash})"
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
    if record.error is not None:
        lines.append(f"  error: {record.error_type}: {record.error}")
    lines.append(f"  fallback ladder: {_RUNGS.get(record.level, f'L{record.level}')}")
    if record.fallback_reason:
        lines.append(f"  because: {record.fallback_reason}")
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


def _judgement(record: RouteRecord, judgement: Feedback) -> list[str]:
    source = f" ({judgement.source})" if judgement.source else ""
    lines = ["", f"feedback{source}"]
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
