"""What goes back: bodies, headers and errors."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from rheostat.engine.engine import Served
from rheostat.errors import ClientError, ModelError, NoAnswer, Overloaded, RheostatError, TooMany, http_status
from rheostat.results.result import Promise
from rheostat.types import RouteRecord
from rheostat.types.text import well_formed

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

RESULTS = "/v1/results/"
_NO_SNIFF = (b"x-content-type-options", b"nosniff")
_NO_STORE = (b"cache-control", b"no-store")
_TOLD = {
    "input_refused": "the model cannot take this input",
    "input_too_large": "the input is too large for the model",
    "unsupported": "the model cannot do what this request asks for",
    "uncertain": "the result is unknown: the model may have done its work, so it was not asked again",
}


class RouteInfo(Struct, frozen=True):
    """How the answer came about. `fast_score` is the confidence of the first model that answered; times in milliseconds.
    With `review` a person should look at the answer, `review_reason` says why, and `guess` is the pool's best guess.
    `cached` says that this is the answer to an earlier request, `age_s` how many seconds old it is. `stood_in` names
    those of `missing` for which other scores counted.
    """

    selected_model: str
    selected_version: str
    route_type: str
    reason: str
    fast_score: float | None
    weights: Mapping[str, float]
    fallback: bool
    fallback_level: int
    fallback_reason: str
    attempts: int
    missing: tuple[str, ...]
    forced: bool
    review: bool
    review_reason: str
    guess: str | None
    policy_version: str
    config_version: str
    cost: float
    overhead_ms: float
    cached: bool = False
    age_s: float | UnsetType = UNSET
    stood_in: tuple[str, ...] | UnsetType = UNSET


class ResultInfo(Struct, frozen=True):
    """What comes later for a request that no model answered in time: `state` is `pending`, `done`, `failed`, `expired`, or
    `refused` with a `reason`. `url` is where it is fetched, below the gateway's own address."""

    id: str | None
    url: str | None
    state: str
    reason: str | UnsetType = UNSET


class PredictData(Struct, frozen=True):
    """The answer to one row."""

    final_label: str
    final_score: float | None
    route_info: RouteInfo
    scores: Mapping[str, float] | UnsetType = UNSET
    output: Any = UNSET


class PredictAnswer(Struct, frozen=True):
    """A row that was answered; `code` is 0. With `result` a model's own answer will come later."""

    code: int
    request_id: str
    data: PredictData
    result: ResultInfo | UnsetType = UNSET


class PromiseAnswer(Struct, frozen=True):
    """A row that is not answered yet: no model could, and `result` says where the answer will be."""

    code: int
    request_id: str
    data: None
    result: ResultInfo


class ErrorInfo(Struct, frozen=True):
    """What went wrong: `type` is stable, `param` names the field to blame, `code` is the HTTP status."""

    message: str
    type: str
    param: str | None
    code: int


class ErrorAnswer(Struct, frozen=True):
    """Any request, or row of a list, that was not answered."""

    error: ErrorInfo
    request_id: str
    result: ResultInfo | UnsetType = UNSET


class BatchAnswer(Struct, frozen=True):
    """A list's answers, in the order of its rows: a `PredictAnswer`, a `PromiseAnswer` or an `ErrorAnswer` each."""

    code: int
    request_id: str
    items: list[Any]


class Page(NamedTuple):
    """A whole response in JSON. `lines` are further headers as they are sent."""

    status: int
    body: bytes
    headers: Headers
    lines: bytes = b""


_encoder = msgspec.json.Encoder(enc_hook=str)
encode = _encoder.encode


def encoded(answer: Any) -> bytes:
    """Return `answer` as JSON.

    Text that UTF-8 cannot carry has its lone surrogates replaced by U+FFFD; an output without an end is left out.
    """
    try:
        return encode(answer)
    except (UnicodeEncodeError, ValueError, TypeError, RecursionError):
        return encode(_plain(msgspec.to_builtins(_shallow(answer), enc_hook=str, str_keys=True), 0))


def _shallow(answer: Any) -> Any:
    """Return `answer` with a remark in place of every output that is nested too deep, or contains itself."""
    if isinstance(answer, BatchAnswer):
        return structs.replace(answer, items=[_shallow(item) for item in answer.items])
    if isinstance(answer, PredictAnswer):
        try:
            msgspec.to_builtins(answer, enc_hook=str, str_keys=True)
        except RecursionError:
            return structs.replace(answer, data=structs.replace(answer.data, output="(nested too deep to be shown)"))
    return answer


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if depth > 64:
        return "..."
    if isinstance(value, dict):
        return {well_formed(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return value


def answer_of(served: Served) -> PredictAnswer:
    """Return the body for a row that was answered."""
    record, prediction = served.record, served.prediction
    if prediction is None:
        raise served.error or RheostatError("neither an answer nor an error")
    attempts = 0
    fast_score: float | None = None
    for outcome in record.outcomes:
        attempts += len(outcome.attempts)
        if fast_score is None and outcome.prediction is not None:
            fast_score = outcome.prediction.confidence
    info = RouteInfo(
        record.selected_model, record.selected_version, record.route_type, record.reason, fast_score, record.weights,
        record.level > 0 or bool(record.fallback_reason), record.level, record.fallback_reason, attempts,
        record.missing, record.forced, bool(record.review), record.review, record.guess,
        record.policy_version, record.config_version, record.cost, round(record.overhead_s * 1000.0, 3),
        record.age_s is not None, UNSET if record.age_s is None else round(record.age_s, 3),
        tuple(record.stood_in) if record.stood_in else UNSET,
    )  # fmt: skip
    scores, output = prediction.scores, prediction.output
    data = PredictData(
        prediction.label, prediction.confidence, info,
        UNSET if scores is None else scores, UNSET if output is None else output,
    )  # fmt: skip
    return PredictAnswer(0, record.id, data, UNSET if served.promise is None else promised(served.promise))


def promised(promise: Promise) -> ResultInfo:
    """Return what a client is told of a promise."""
    if promise.id is None:
        return ResultInfo(None, None, promise.state, promise.reason)
    return ResultInfo(promise.id, RESULTS + promise.id, promise.state)


def error_of(error: Exception, request_id: str, result: ResultInfo | UnsetType = UNSET) -> ErrorAnswer:
    """Return the body for an error, without anything that is only for operators."""
    status = http_status(error)
    if isinstance(error, ModelError):
        info = ErrorInfo(_TOLD.get(error.kind, f"the model failed: {error.kind}"), error.kind, None, status)
    elif status == 500 or not isinstance(error, RheostatError):
        info = ErrorInfo("internal error; the operator finds it under the request id", "internal_error", None, 500)
    else:
        info = ErrorInfo(str(error), error.type, error.param if isinstance(error, ClientError) else None, status)
    return ErrorAnswer(info, request_id, result)


def retry_after(error: Exception, status: int) -> bytes | None:
    """Return whole seconds for `Retry-After`, at least 1; None for a status that does not carry it."""
    if status not in (429, 503):
        return None
    seconds = error.retry_after_s if isinstance(error, NoAnswer | Overloaded | TooMany | ModelError) else None
    longest = 86_400 if isinstance(error, TooMany) else 3600  # a budget of a day comes back at midnight
    return str(min(longest, max(1, math.ceil(seconds or 1.0)))).encode()


class RouteHeaders:
    """Makes the response headers that tell the decision; what is the same for many answers is made once."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str, str, str, int, int], bytes] = {}

    def of(self, record: RouteRecord, attempts: int) -> Headers:
        """Return the `x-rheostat-` headers for a record."""
        return headers_in(self.lines(record, attempts))

    def lines(self, record: RouteRecord, attempts: int) -> bytes:
        """Return them as they are sent."""
        key = (
            record.selected_model, record.selected_version, record.route_type, record.policy_version, attempts, record.level
        )  # fmt: skip
        told = self._told.get(key) or self._tell(*key)
        told += b"x-rheostat-overhead-ms: %.3f\r\n" % (record.overhead_s * 1000.0)
        if record.cache:
            told += b"x-rheostat-cache: %b\r\n" % record.cache.encode()
        if record.similarity is not None:
            told += b"x-rheostat-similarity: %.3f\r\n" % record.similarity
        if record.age_s is not None:
            told += b"age: %d\r\n" % record.age_s
        if record.history is not None:
            told += b"x-rheostat-history: %d\r\n" % record.history.turns
            if out := record.history.left_out.get(record.selected_model):
                told += b"x-rheostat-left-out: %d\r\n" % out
        return told

    def _tell(self, model: str, version: str, kind: str, policy: str, attempts: int, level: int) -> bytes:
        """Names come from the config, so they are few."""
        values = {"model": model, "version": version, "route-type": kind, "policy": policy}
        told = b"".join([b"x-rheostat-%b: %b\r\n" % (name.encode(), _shown(value)) for name, value in values.items()])
        told += b"x-rheostat-attempts: %d\r\nx-rheostat-level: %d\r\n" % (min(attempts, 63), level)
        if len(self._told) >= 10_000:
            self._told.clear()
        self._told[model, version, kind, policy, attempts, level] = told
        return told


def _shown(text: str) -> bytes:
    """Return the text with what a header cannot carry replaced."""
    return "".join(c if " " <= c <= "~" else "?" for c in text[:200]).encode()


def headers_in(lines: bytes) -> Headers:
    """Return the headers that the lines of a head say."""
    said = [line.partition(b": ") for line in lines.split(b"\r\n")[:-1]]
    return [(name, value) for name, _, value in said]


_JSON_LINES = b"".join([b"%b: %b\r\n" % each for each in ((b"content-type", b"application/json"), _NO_SNIFF, _NO_STORE)])


def json_lines(body: bytes) -> bytes:
    """Return what `send_page` says of a body in JSON, as the lines of a head."""
    return _JSON_LINES + b"content-length: %d\r\n" % len(body)


async def send_page(send: Send, status: int, body: bytes, kind: bytes, headers: Headers) -> None:
    """Send one whole response."""
    start = [(b"content-type", kind), _NO_SNIFF, _NO_STORE, (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


def error_page(
    error: Exception, request_id: str, headers: Headers | None = None, result: ResultInfo | UnsetType = UNSET
) -> Page:
    """Return an error in the house's shape."""
    answer = error_of(error, request_id, result)
    status = answer.error.code
    extra = [(b"x-rheostat-request-id", request_id.encode()), *(headers or [])]
    wait = retry_after(error, status)
    if wait is not None:
        extra.append((b"retry-after", wait))
    if status == 401:
        extra.append((b"www-authenticate", b"Bearer"))
    return Page(status, encoded(answer), extra)


async def send_error(send: Send, error: Exception, request_id: str, headers: Headers | None = None) -> None:
    """Send an error in the house's shape."""
    page = error_page(error, request_id, headers)
    await send_page(send, page.status, page.body, b"application/json", page.headers)


async def send_not_allowed(send: Send, request_id: str, allowed: bytes) -> None:
    """Refuse a method, naming those that a page takes."""
    info = ErrorInfo(f"this page takes {allowed.decode()}", "method_not_allowed", None, 405)
    body = encoded(ErrorAnswer(info, request_id))
    headers = [(b"x-rheostat-request-id", request_id.encode()), (b"allow", allowed)]
    await send_page(send, 405, body, b"application/json", headers)
