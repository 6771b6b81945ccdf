"""Answers that come later: what is said of a promise, and `GET /v1/results/ID`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET, structs

from rheostat.engine.engine import Served
from rheostat.errors import NotFound, Overloaded, StoreError
from rheostat.gateway.answer import (
    RESULTS,
    ErrorAnswer,
    ErrorInfo,
    Headers,
    Page,
    PredictAnswer,
    PromiseAnswer,
    ResultInfo,
    RouteHeaders,
    Send,
    answer_of,
    encoded,
    error_of,
    promised,
    send_page,
)
from rheostat.gateway.keys import allow_route

if TYPE_CHECKING:
    from rheostat.config.schema import KeySettings
    from rheostat.results.result import Promise, Result
    from rheostat.router import Router

LONGEST_WAIT_S = 60
"""The longest `Retry-After` of a pending result, in seconds; it is as long as the result has been waiting, 1 at least."""
_JSON = b"application/json"
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def row_answer(served: Served) -> PredictAnswer | PromiseAnswer | ErrorAnswer:
    """Return the body for one row, however it was served."""
    promise = served.promise
    if served.error is None:
        return answer_of(served)
    if promise is not None and promise.state == "pending":
        return PromiseAnswer(0, served.record.id, None, promised(promise))
    return error_of(served.error, served.record.id, UNSET if promise is None else promised(promise))


def promise_page(promise: Promise, request_id: str, headers: Headers) -> Page:
    """Return the 202 of a request that will be completed later."""
    return _pending(promised(promise), request_id, 1, headers)


class ResultsApi:
    """Shows results to those who were promised them. `caller` finds the settings of the caller's key."""

    def __init__(self, router: Router, caller: Callable[[Mapping[bytes, bytes]], KeySettings | None]) -> None:
        self._router = router
        self._caller = caller
        self._route_headers = RouteHeaders()

    async def __call__(self, path: str, found: Mapping[bytes, bytes], known_id: str, send: Send) -> None:
        """Answer one GET.

        Raises:
            RheostatError: no key, no such result, or one of a route that the key may not use; nothing has been sent.
        """
        key = self._caller(found)
        result_id = path.removeprefix(RESULTS)
        if not _ID.fullmatch(result_id):
            raise NotFound("there is no such result")
        try:
            result = await self._router.result(result_id, key.tenant if key is not None else None)
        except StoreError:
            raise Overloaded("the results cannot be read now; ask again") from None
        allow_route(key, result.route)
        await self._show(result, known_id, send)

    async def _show(self, result: Result, known_id: str, send: Send) -> None:
        headers: Headers = [(b"x-rheostat-request-id", known_id.encode())]
        told = ResultInfo(result.id, RESULTS + result.id, result.state)
        if result.state == "pending":
            waited = self._router.clock.wall() - result.created
            page = _pending(told, result.request_id, int(min(LONGEST_WAIT_S, max(1.0, waited))), headers)
            await send_page(send, page.status, page.body, _JSON, page.headers)
        elif result.record is not None and result.prediction is not None:
            answer = answer_of(Served(structs.replace(result.record, id=result.request_id), result.prediction))
            headers += self._route_headers.of(result.record, answer.data.route_info.attempts)
            await send_page(send, 200, encoded(structs.replace(answer, result=told)), _JSON, headers)
        elif result.error is not None:
            failed = error_of(result.error, result.request_id, told)
            await send_page(send, failed.error.code, encoded(failed), _JSON, headers)  # for good: no Retry-After
        else:
            info = ErrorInfo("this result is no longer kept", "expired", None, 410)
            await send_page(send, 410, encoded(ErrorAnswer(info, result.request_id, told)), _JSON, headers)


def _pending(told: ResultInfo, request_id: str, wait_s: int, headers: Headers) -> Page:
    body = encoded(PromiseAnswer(0, request_id, None, told))
    more = [(b"location", (told.url or "").encode()), (b"retry-after", b"%d" % wait_s)]
    return Page(202, body, [*headers, *more])
