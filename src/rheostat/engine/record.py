"""What is kept of a request: enough to decide it again, nothing that was not asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash
from msgspec import Struct, structs

from rheostat.engine.journey import SIGNAL_ERROR
from rheostat.errors import FAILURES, ClientError, ModelError, RheostatError
from rheostat.types import Chat, History, InputSummary, Outcome, Prediction, Request, RouteRecord, Step

if TYPE_CHECKING:
    from rheostat.clock import Clock
    from rheostat.engine.ending import Ending
    from rheostat.engine.engine import Lane, Plan
    from rheostat.engine.journey import Journey
    from rheostat.pool import Model


class _Choice(Struct):
    finish_reason: str | None = None


class _Completion(Struct):
    choices: list[_Choice] = []


NOTHING: Mapping[str, Any] = {}
_finishes = msgspec.json.Decoder(_Completion).decode
_HEADS_PLAIN = (("png", b"\x89PNG"), ("jpeg", b"\xff\xd8\xff"), ("webp", b"RIFF"), ("gif", b"GIF8"), ("bmp", b"BM"))
_HEADS_BASE64 = (("png", b"iVBORw"), ("jpeg", b"/9j/"), ("webp", b"UklGR"), ("gif", b"R0lGOD"), ("bmp", b"Qk"))


def record_of(
    plan: Plan, lane: Lane | None, request: Request, journey: Journey | None, ending: Ending, waited: float, clock: Clock
) -> RouteRecord:
    """Tell everything of a request that ends now. `waited` seconds of it went to models.

    The fields stand in their order without their names: naming forty of them takes ten times as long as filling them in.
    """
    received = request.received
    decided = clock.monotonic() - received
    prediction, error, recalled, trouble = ending.prediction, ending.error, ending.recalled, ending.fallback_reason
    signals: Mapping[str, float] = NOTHING
    held: Mapping[str, str] = NOTHING
    steps: tuple[Step, ...] = ()
    history: tuple[Outcome, ...] = ()
    cancelled: tuple[str, ...] = ()
    cost = 0.0
    if journey is not None:
        context, history, steps = journey.ctx, journey.history, tuple(journey.steps)
        signals, held = context.signals, context.held
        if journey.in_flight:
            cancelled = tuple(sorted(journey.in_flight))
        if trouble.startswith("router_unavailable") and SIGNAL_ERROR in context.memo:
            trouble = f"{trouble} ({context.memo[SIGNAL_ERROR]})"
        for outcome in history:
            cost += outcome.cost
    model, version = answered_by(ending, history)
    kept = summary(request, lane is not None and lane.raw_input)
    elapsed = clock.monotonic() - received
    return RouteRecord(
        request.id,
        clock.wall(),
        request.route if lane is not None else "other",
        status_of(error, ending.level, ending.fallback_reason),
        plan.version,
        lane.policy_version if lane is not None else "",
        route_type(request, ending),
        ending.reason,
        prediction.label if prediction is not None else None,
        prediction.confidence if prediction is not None else None,
        prediction.scores if prediction is not None else None,
        ending.weights,
        ending.propensity,
        model,
        version,
        ending.level,
        trouble,
        ending.missing,
        ending.stood_in,
        ending.review,
        ending.guess,
        signals,
        held,
        steps,
        history,
        cancelled,
        cost,
        elapsed,
        max(0.0, elapsed - waited),
        max(0.0, decided - waited),
        kept,
        request.meta,
        request.session,
        request.tenant,
        request.priority,
        request.is_directed,
        _cache_word(lane, request, journey, ending),
        recalled.age_s if recalled is not None else None,
        request.completing,
        str(error) if error is not None else None,
        error.kind if isinstance(error, ModelError) else error.type if error is not None else None,
    )


def summary(request: Request, raw: bool) -> InputSummary:
    """Summarise the input: kind, length in characters, hash; the text itself only when `raw`, an image never."""
    data = request.data
    if type(data) is str:
        body = data.encode("utf-8", "surrogatepass")
        return InputSummary("text", len(data), xxhash.xxh3_64_hexdigest(body), data if raw else None)
    if isinstance(data, Chat):
        body = msgspec.json.encode(data.fields)
        hashed = xxhash.xxh3_64_hexdigest(data.question)
        return InputSummary("chat", len(body), hashed, body.decode() if raw else None)
    if isinstance(data, dict) and isinstance(data.get("image"), str | bytes):
        return _image_summary(data, raw)
    body = encoded(data)
    text = body.decode("utf-8", "replace") if raw else None
    return InputSummary("features" if isinstance(data, dict) else type(data).__name__, len(body),
                        xxhash.xxh3_64_hexdigest(body), text)  # fmt: skip


def _image_summary(data: dict[str, Any], raw: bool) -> InputSummary:
    """Name the format, count the bytes and hash the row; with `raw` what stands beside the image is kept."""
    image = data["image"]
    file = image if isinstance(image, bytes) else image.encode("utf-8", "surrogatepass")
    hashed = xxhash.xxh3_64(file)
    beside = {name: value for name, value in data.items() if name != "image"}
    hashed.update(encoded(beside))
    known, length = _HEADS_PLAIN, len(file)
    if isinstance(image, str):
        known, length = _HEADS_BASE64, 3 * len(file) // 4 - file[-2:].count(b"=")
    format_ = next((name for name, head in known if file.startswith(head)), "unknown")
    text = encoded(beside).decode("utf-8", "replace") if raw and beside else None
    return InputSummary(f"image/{format_}", length, hashed.hexdigest(), text)


def encoded(data: Any) -> bytes:
    """Return `data` as JSON bytes; what JSON does not know is written as text."""
    try:
        return msgspec.json.encode(data, enc_hook=str)
    except (UnicodeEncodeError, ValueError, TypeError):
        return repr(data).encode("utf-8", "backslashreplace")


def status_of(error: RheostatError | None, level: int, fallback_reason: str) -> str:
    """Name how a request ended, in the words of `RouteRecord.status`."""
    if error is None:
        return "degraded" if level >= 3 or fallback_reason.startswith("router_unavailable") else "ok"
    if isinstance(error, ModelError):
        if error.kind == "cancelled":
            return "cancelled"
        return "rejected" if FAILURES[error.kind].status < 500 else "error"
    return "rejected" if isinstance(error, ClientError) else "error"


def answered_by(ending: Ending, history: tuple[Outcome, ...]) -> tuple[str, str]:
    """Return the model that counts most and its version (the later one when two count the same), those of the cached answer,
    or `preset`."""
    selected: Outcome | None = None
    heaviest = 0.0
    for outcome in history:
        weight = ending.weights.get(outcome.model, 0.0) if outcome.prediction is not None else 0.0
        if weight > 0.0 and weight >= heaviest:
            selected, heaviest = outcome, weight
    if selected is not None:
        return selected.served_by, selected.version
    if ending.recalled is not None:
        return ending.recalled.model, ending.recalled.version
    return "preset" if ending.level == 5 else "", ""


def route_type(request: Request, ending: Ending) -> str:
    """Return the kind of policy that decided, or why none did."""
    if request.force_model is not None:
        return "forced"
    if request.skip_route:
        return "skipped"
    if isinstance(ending.error, ClientError):
        return "rejected"
    return ending.by


def _cache_word(lane: Lane | None, request: Request, journey: Journey | None, ending: Ending) -> str:
    """Say what the cache did for a request: hit, shared, miss or bypass; nothing where there is none."""
    if lane is None or lane.cache is None:
        return ""
    if ending.cache or journey is None:
        return ending.cache
    return "bypass" if request.no_cache or request.is_directed else "miss"


def closed(
    record: RouteRecord, said: Prediction | None, pool: Mapping[str, Model], history: History | None, *, raw: bool
) -> RouteRecord:
    """Return the record of a conversation without what was answered in it: of an answer only how it finished is kept, unless
    the operator asked for `raw` input; the labels of models that choose among labels stay."""
    outcomes = tuple(_closed(outcome, pool.get(outcome.served_by or outcome.model), raw) for outcome in record.outcomes)
    if raw:
        return structs.replace(record, outcomes=outcomes, history=history)
    label = None if said is None else finish_of(said)
    return structs.replace(record, outcomes=outcomes, label=label, scores=None, guess=None, stood_in={}, history=history)


def _closed(outcome: Outcome, model: Model | None, raw: bool) -> Outcome:
    said = outcome.prediction
    if said is None:
        return outcome
    if raw or (model is not None and model.labels):
        return structs.replace(outcome, prediction=structs.replace(said, output=None))
    kept = Prediction(finish_of(said), said.confidence, spoilt=said.spoilt, spans=said.spans)
    return structs.replace(outcome, prediction=kept)


def finish_of(said: Prediction) -> str:
    """Return how the answer in a conversation finished: `stop`, `length`, `tool_calls` or what else its model told; `end`
    where a completion tells nothing."""
    if not isinstance(said.output, bytes):
        return "stop"
    try:
        choices = _finishes(said.output).choices
    except msgspec.DecodeError:  # the output of a model that is no chat model
        return "stop"
    return (choices[0].finish_reason or "end") if choices else "stop"
