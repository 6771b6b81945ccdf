"""What is promised, what waits, and what came of it; how they are written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from rheostat.errors import (
    FAILURES,
    ClientError,
    DeadlineExceeded,
    ModelError,
    NoAnswer,
    NotFound,
    Overloaded,
    RheostatError,
    error_type,
)
from rheostat.types import Prediction, RouteRecord

State = Literal["pending", "done", "failed", "expired"]
_REFUSALS = (TypeError, ValueError, OverflowError, RecursionError)
_TOO_DEEP = "(nested too deep to be shown)"


class Promise(Struct, frozen=True):
    """That a request will be completed later, under `id`; `refused` with a `reason` when it will not."""

    id: str | None
    state: Literal["pending", "refused"]
    reason: str = ""


class Waiting(Struct, frozen=True, kw_only=True):
    """A request that is to be completed: all that is needed to ask its route again. `created` is wall time in seconds."""

    id: str
    request_id: str
    route: str
    tenant: str | None
    created: float
    data: Any
    meta: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    session: str | None = None
    max_cost: float = float("inf")
    attempts: int = 0


class Reply(Struct, frozen=True):
    """What a route said when it was asked again: an answer or an error, and the record of it."""

    record: RouteRecord
    prediction: Prediction | None = None
    error: RheostatError | None = None

    @property
    def final(self) -> bool:
        """True when asking again would change nothing: a model has answered, or the request itself is at fault."""
        if self.prediction is not None:
            return True
        error = self.error
        if isinstance(error, ModelError):
            return FAILURES[error.kind].final or error.kind in ("input_too_large", "over_budget", "unsupported")
        return isinstance(error, ClientError) and not isinstance(error, NotFound)  # a route may come back by a reload


class Result(Struct, frozen=True, kw_only=True):
    """What became of a promise. With `done` there are `record` and `prediction`, with `failed` there is `error`; an expired
    one has neither. Times are wall time in seconds, `finished` is 0 while it waits."""

    id: str
    state: State
    request_id: str
    route: str
    tenant: str | None = None
    created: float = 0.0
    finished: float = 0.0
    attempts: int = 0
    record: RouteRecord | None = None
    prediction: Prediction | None = None
    error: RheostatError | None = None


class _Written(Struct, frozen=True, omit_defaults=True):
    """A reply as it is stored. `kind` is that of a model's failure, else the error's type; `status` is NoAnswer's own."""

    record: RouteRecord | None = None
    prediction: Prediction | None = None
    kind: str = ""
    message: str = ""
    status: int = 502


_encoder = msgspec.msgpack.Encoder(enc_hook=str)
_input = msgspec.msgpack.Encoder()
_read_input = msgspec.msgpack.Decoder(Waiting)
_read_written = msgspec.msgpack.Decoder(_Written)
_ERRORS: dict[str, type[RheostatError]] = {
    kind.type: kind for kind in (DeadlineExceeded, Overloaded, NotFound, RheostatError)
}


def write_input(waiting: Waiting) -> bytes | None:
    """Return a request as bytes, or None when it holds what cannot be stored and read back the same."""
    try:
        return _input.encode(waiting)
    except _REFUSALS:
        return None


def read_input(data: bytes) -> Waiting:
    """Read a request back."""
    return _read_input.decode(data)


def write_reply(reply: Reply) -> bytes:
    """Return a reply as bytes, without what the record tells of the input."""
    record = structs.replace(reply.record, input=None, meta={}, session=None, signals={}, held={})
    error = reply.error
    if error is None:
        written = _Written(record, reply.prediction)
    else:
        written = _Written(
            record, None, error_type(error), str(error), error.http_status if isinstance(error, NoAnswer) else 502
        )
    try:
        return _encoder.encode(written)
    except _REFUSALS:  # an output without an end, or half a character: the label still counts
        plain = msgspec.to_builtins(structs.replace(written, record=None, prediction=None))
        label = written.prediction.label.encode("utf-8", "replace").decode() if written.prediction is not None else None
        plain["message"] = str(plain.get("message", "")).encode("utf-8", "replace").decode()
        if label is not None and written.prediction is not None:
            plain["prediction"] = Prediction(label, written.prediction.confidence, None, _TOO_DEEP)
        plain["record"] = structs.replace(record, outcomes=(), steps=(), label=label, error=None, scores=None)
        return _encoder.encode(plain)


def read_reply(data: bytes | None) -> tuple[RouteRecord | None, Prediction | None, RheostatError | None]:
    """Read a reply back: record, prediction and error; without one, the error says that nobody could be asked."""
    if data is None:
        return None, None, NoAnswer("no model could be asked while the request waited", 503)
    found = _read_written.decode(data)
    error: RheostatError | None = None
    if found.kind:
        if found.kind in FAILURES:
            error = ModelError(found.kind, found.message)
        elif found.kind in _ERRORS:
            error = _ERRORS[found.kind](found.message)
        else:
            error = NoAnswer(found.message, found.status)
    return found.record, found.prediction, error
