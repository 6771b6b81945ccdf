"""One call for several rows, and what becomes of them when it fails."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from typing import NamedTuple

from rheostat.errors import ModelError
from rheostat.pool.backend import Backend, RemoteBackend, Reply, Row
from rheostat.resilience.isolation import Isolation

_ROWS_FAULT = frozenset(("crashed", "input_refused", "input_too_large", "upstream_error"))
"""Failures of a whole call that one row may have caused; a timeout or a lost connection is nobody's."""
_NO_MEMORY = ("outofmemory", "out of memory", "bad_alloc", "failed to allocate", "memoryerror")
_log = logging.getLogger("rheostat.pool")


class Called(NamedTuple):
    """One reply a row. `calls` were made; more than one, when the first failed and was taken apart."""

    replies: list[Reply]
    rows_asked: int
    calls: int = 1
    failed: bool = False
    out_of_memory: bool = False


def call(backend: Backend, rows: Sequence[Row], *, repeat: bool) -> Called:
    """Ask a local backend; never raises. With `repeat` the rows of a call that failed are asked again in parts, until every
    good one has its answer."""
    talk = _talk(rows, repeat=repeat)
    part = next(talk)
    while True:
        try:
            part = talk.send(_asked(backend, part))
        except StopIteration as end:
            called: Called = end.value
            return called


async def acall(backend: RemoteBackend, rows: Sequence[Row], timeout_s: float, *, repeat: bool) -> Called:
    """Ask a backend that suspends, as `call` does; raises only when it is cancelled."""
    talk = _talk(rows, repeat=repeat)
    part = next(talk)
    while True:
        answer = await _aasked(backend, part, timeout_s)
        try:
            part = talk.send(answer)
        except StopIteration as end:
            called: Called = end.value
            return called


def _talk(rows: Sequence[Row], *, repeat: bool) -> Generator[Sequence[Row], list[Reply] | ModelError, Called]:
    """Yield what is to be asked, take what came of it, and return one reply for each of `rows`."""
    answer = yield rows
    if not isinstance(answer, ModelError):
        return Called(answer, len(rows))
    apart = rows if repeat and answer.kind in _ROWS_FAULT else ()
    search: Isolation[Row, Reply] = Isolation(apart, _shared(answer, len(rows)))
    calls, asked = 1, len(rows)
    while (part := search.part) is not None:
        again = yield rows[part]
        calls, asked = calls + 1, asked + part.stop - part.start
        if isinstance(again, ModelError):
            search.told(_shared(again, part.stop - part.start), failed=True)
        else:
            search.told(again, failed=False)
    return Called(search.answers, asked, calls, True, _is_memory(answer))


def _asked(backend: Backend, rows: Sequence[Row]) -> list[Reply] | ModelError:
    try:
        return _whole(backend.predict(rows), len(rows))
    except ModelError as error:
        return error
    except BaseException as error:  # in a thread of its own: whatever it is, it is these rows' failure only
        return _crashed(error)


async def _aasked(backend: RemoteBackend, rows: Sequence[Row], timeout_s: float) -> list[Reply] | ModelError:
    try:
        return _whole(await backend.apredict(rows, timeout_s), len(rows))
    except ModelError as error:
        return error
    except Exception as error:  # whatever a backend raises is these rows' failure only
        return _crashed(error)


def _whole(replies: Sequence[Reply], count: int) -> list[Reply] | ModelError:
    if len(replies) == count:
        return list(replies)
    told = f"{count} rows gave {len(replies)} replies, so none can be given to anybody"
    _log.error("a batch is lost: %s", told)
    return ModelError("bad_output", told)


def _shared(error: ModelError, count: int) -> list[Reply]:
    """Return the failure of one call for each of its rows; against the model's health it counts once."""
    if count == 1:
        return [error]
    other = ModelError(
        error.kind, str(error), upstream_status=error.upstream_status, retry_after_s=error.retry_after_s, shared=True
    )
    return [error, *[other] * (count - 1)]


def _crashed(error: BaseException) -> ModelError:
    failure = ModelError("crashed", f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _is_memory(error: BaseException | None) -> bool:
    while error is not None:
        told = f"{type(error).__name__} {error}".lower()
        if any(word in told for word in _NO_MEMORY):
            return True
        error = error.__cause__
    return False
