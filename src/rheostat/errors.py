"""Every error the product raises, drawn once.

RheostatError
├── ClientError            the caller's fault: final, never retried, harms no model
│   ├── BadRequest 400 ├── Unauthorized 401 ├── Forbidden 403 ├── NotFound 404
│   ├── Unsupported 400 ├── Conflict 409
│   ├── TooLarge 413   ├── UnsupportedType 415
│   └── TooMany 429
├── ConfigError            the operator's file is wrong; carries every problem found
├── ContractError          a model broke its input/output contract at load
├── FetchError             files that an example needs could not be had
├── StoreError             a file or database of records cannot be used
├── WeightsError           a file of weights, a delta or a store of them cannot be used
├── Overloaded 503         no room now; says when to come back
│   └── SessionsAway       what was said before cannot be read or kept now
├── DeadlineExceeded 504   the request's own time is over
├── NoAnswer 502           every model and every rung of the ladder failed
└── ModelError             one try at one model failed; its `kind` says how (see FAILURES)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple


class Rule(NamedTuple):
    """What one kind of failure means for the rest of the request."""

    status: int  # HTTP status if nothing else can answer
    retryable: bool  # may the same model be tried again?
    counts: bool  # does it count against the model's health?
    final: bool  # does it end the request, unless another model has answered already?


FAILURES: Final[dict[str, Rule]] = {
    "timeout": Rule(504, retryable=True, counts=True, final=False),
    "deadline": Rule(504, retryable=False, counts=False, final=False),
    "connection": Rule(502, retryable=True, counts=True, final=False),
    "upstream_error": Rule(502, retryable=True, counts=True, final=False),
    "bad_output": Rule(502, retryable=False, counts=True, final=False),
    "crashed": Rule(502, retryable=True, counts=True, final=False),
    "rate_limited": Rule(503, retryable=False, counts=False, final=False),
    "misconfigured": Rule(502, retryable=False, counts=True, final=False),
    "input_too_large": Rule(413, retryable=False, counts=False, final=False),
    "input_refused": Rule(400, retryable=False, counts=False, final=True),
    "unavailable": Rule(503, retryable=False, counts=False, final=False),
    "overloaded": Rule(503, retryable=False, counts=False, final=False),
    "cancelled": Rule(499, retryable=False, counts=False, final=False),
    "over_budget": Rule(402, retryable=False, counts=False, final=False),
    "reset": Rule(502, retryable=True, counts=True, final=False),
    "uncertain": Rule(502, retryable=False, counts=True, final=True),
    "ramping": Rule(503, retryable=False, counts=False, final=False),
    "unsupported": Rule(400, retryable=False, counts=False, final=False),
}
"""Failure kinds and their consequences; the one table the engine, ladder and gateway share. Stored tables name a kind by
its place here, so new ones go to the end."""


class RheostatError(Exception):
    """Base of everything raised on purpose."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "internal_error"


class ClientError(RheostatError):
    """The request itself is wrong; `param` names the field, if one is to blame."""

    status = 400
    type = "invalid_request"

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class BadRequest(ClientError):
    """The body or a header cannot be understood."""


class Unsupported(ClientError):
    """No model that may be asked can do what the request asks for."""

    type = "unsupported"


class Unauthorized(ClientError):
    """No key, or one we do not know."""

    status = 401
    type = "unauthorized"


class Forbidden(ClientError):
    """The key is known but may not do this."""

    status = 403
    type = "forbidden"


class NotFound(ClientError):
    """No such route, model, page or record."""

    status = 404
    type = "not_found"


class Conflict(ClientError):
    """Another request has what this one needs for itself; it may come again when that has ended."""

    status = 409
    type = "conflict"


class TooLarge(ClientError):
    """The body is over the configured limit."""

    status = 413
    type = "too_large"


class UnsupportedType(ClientError):
    """The content type is not one we read."""

    status = 415
    type = "unsupported_media_type"


class TooMany(ClientError):
    """The caller has as many requests in flight as it may; `retry_after_s` says when to come back."""

    status = 429
    type = "too_many_requests"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Problem(NamedTuple):
    """One mistake in a file: where, what, and what to write instead."""

    path: str
    line: int | None
    message: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.path}: {self.message}" if self.path else f"{where}{self.message}"


class ConfigError(RheostatError):
    """A configuration that cannot be used; `problems` lists every mistake found, in file order."""

    type = "config_error"

    def __init__(self, problems: Sequence[Problem], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        count = len(self.problems)
        head = f"{source or 'config'}: {count} problem{'s' if count != 1 else ''}"
        super().__init__("\n".join([head, *(f"  {problem}" for problem in self.problems)]))


class ContractError(RheostatError):
    """A model broke the input/output contract; it takes no traffic."""

    type = "contract_error"


class FetchError(RheostatError):
    """Files that an example needs could not be had; the message says what to do."""

    type = "fetch_error"


class MissingExtra(RheostatError):
    """An optional dependency is needed and not installed."""

    type = "missing_extra"

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'rheostat[{extra}]'")


class StoreError(RheostatError, OSError):
    """A file or database of records cannot be used; it is left as it is. Also an OSError, so that a writer tries again."""

    type = "store_error"


class WeightsError(RheostatError):
    """A file of weights, a delta or a store of them cannot be used; nothing that is in use was changed."""

    type = "weights_error"


class Overloaded(RheostatError):
    """No room for this request now; `retry_after_s` says when to come back."""

    status = 503
    type = "overloaded"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SessionsAway(Overloaded):
    """What was said before cannot be read or kept now, and an answer without it would be another one."""

    type = "sessions_unavailable"


class DeadlineExceeded(RheostatError):
    """The request's deadline passed before any answer was in hand."""

    status = 504
    type = "deadline_exceeded"


class NoAnswer(RheostatError):
    """Nothing on the ladder could answer; `failures` maps each model to why.

    The HTTP status follows the last failure: 504 for time, 503 when nothing could be called, 502 otherwise.
    """

    type = "no_answer"

    def __init__(self, message: str, http_status: int = 502, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.retry_after_s = retry_after_s


class ModelError(RheostatError):
    """One try at one model failed.

    `kind` is a key of FAILURES. `message` may be shown to operators only; clients see the kind. `shared` marks the failure
    of a call that another row's stands for already: it does not count against the model again.
    """

    type = "model_error"

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        upstream_status: int | None = None,
        retry_after_s: float | None = None,
        shared: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.shared = shared
        self.upstream_status = upstream_status
        self.retry_after_s = retry_after_s


def http_status(error: Exception) -> int:
    """Return the HTTP status of an error; 500 for one that was not raised on purpose."""
    if isinstance(error, NoAnswer):
        return error.http_status
    if isinstance(error, ModelError):
        return FAILURES[error.kind].status
    return error.status if isinstance(error, RheostatError) else 500


def error_type(error: RheostatError) -> str:
    """Return the stable word for an error: a model's failure goes by its kind."""
    return error.kind if isinstance(error, ModelError) else error.type
