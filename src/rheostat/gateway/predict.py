"""`POST /v1/predict`: the request path at the edge."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from rheostat.engine.engine import Served
from rheostat.errors import BadRequest, Overloaded, RheostatError, http_status
from rheostat.gateway.answer import (
    BatchAnswer,
    ErrorAnswer,
    Headers,
    Page,
    PredictAnswer,
    PromiseAnswer,
    RouteHeaders,
    Send,
    answer_of,
    encoded,
    error_of,
    error_page,
    headers_in,
    promised,
    send_page,
)
from rheostat.gateway.body import PredictBody, Receive, RouteOptions, item_of, parse, read_body, row_of
from rheostat.gateway.headers import (
    RawHeaders,
    ShownHeaders,
    cache_words,
    check_body_headers,
    cost_limit,
    priority_of,
    read_headers,
    request_id,
    session_of,
    timeout_s,
    too_large,
    traced,
)
from rheostat.gateway.keys import Keyring, allow_force, allow_route
from rheostat.gateway.leave import ClientGone, at_once, while_connected
from rheostat.gateway.results import promise_page, row_answer
from rheostat.gateway.rows import in_parallel, in_turns
from rheostat.gateway.stream import StreamAnswer

if TYPE_CHECKING:
    from rheostat.config.schema import Config, KeySettings
    from rheostat.router import Router
    from rheostat.types import Request

_log = logging.getLogger("rheostat.gateway")


class PredictApi:
    """Serves rows. `active` counts requests between their first byte here and their answer."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.active = 0
        self.draining = False
        self._config: Config | None = None
        self._keyring = Keyring(())
        self.route_headers = RouteHeaders()

    def caller(self, found: Mapping[bytes, bytes]) -> KeySettings | None:
        """Return the settings of the caller's key, by the config now in force; None where no keys are configured.

        Raises:
            Unauthorized: a key is needed, or this one is not known.
        """
        config = self.router.config
        if config is not self._config:
            self._config, self._keyring = config, Keyring(config.keys)
        return self._keyring.find(found) if config.keys else None

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one HTTP request; every ending but a client's leave is answered."""
        self.active += 1
        known_id = ""
        try:
            raw = scope["headers"]
            found = read_headers(raw)
            known_id = request_id(found)
            key = self.let_in(found)
            body = await read_body(receive, self.router.config.server.max_body)
            if body is None:
                return
            asked = parse(body, PredictBody)
            self.allow(key, asked.route)
            if asked.items is not UNSET:
                await self._batch(asked, raw, found, key, known_id, receive, send)
                return
            request = self.request(row_of(asked.data, asked.text), asked.meta, asked.route, raw, found, key, known_id)
            router = self.router
            if asked.route.stream:
                await StreamAnswer(router, send, lambda: self.draining, self._respond).serve(request, receive)
                return
            serving = router.serve(request)
            served = await (serving if router.is_quick(request.route) else while_connected(receive, serving))
            await self._respond(served, send)
        except ClientGone:
            return
        except BaseException as error:
            page = self._failed(error, known_id)
            await send_page(send, page.status, page.body, b"application/json", page.headers)
        finally:
            self.active -= 1

    def begin(self, raw: RawHeaders, body: bytes) -> Page | Coroutine[Any, Any, Page] | None:
        """Answer a request whose body is there, without ASGI in between: with a page where all models of its route answer
        on the spot, else with what makes the page, for a task. None: only `__call__` can, a list or a stream is wanted."""
        known_id = ""
        try:
            found = read_headers(raw)
            known_id = request_id(found)
            key = self.let_in(found)
            if len(body) > self.router.config.server.max_body:
                raise too_large(self.router.config.server.max_body)
            asked = parse(body, PredictBody)
            if asked.items is not UNSET or asked.route.stream:
                return None
            self.allow(key, asked.route)
            request = self.request(row_of(asked.data, asked.text), asked.meta, asked.route, raw, found, key, known_id)
            if self.router.is_quick(request.route):
                return self.page(at_once(self.router.serve(request)))
            return self._awaited(request)
        except BaseException as error:
            return self._failed(error, known_id)

    async def _awaited(self, request: Request) -> Page:
        self.active += 1
        try:
            return self.page(await self.router.serve(request))
        except BaseException as error:
            return self._failed(error, request.id)
        finally:
            self.active -= 1

    def let_in(self, found: Mapping[bytes, bytes]) -> KeySettings | None:
        """Return the settings of the caller's key.

        Raises:
            RheostatError: nobody is let in, not this caller, or not with such a body.
        """
        if self.draining:
            raise Overloaded("the gateway is stopping; ask another one")
        key = self.caller(found)
        check_body_headers(found, self.router.config.server.max_body)
        return key

    def _failed(self, error: BaseException, known_id: str) -> Page:
        """Return the page of a request that did not come as far as being served; what is no failure is raised again."""
        told, headers = self.failure(error, known_id)
        return error_page(told, known_id, headers)

    def failure(self, error: BaseException, known_id: str) -> tuple[Exception, Headers]:
        """Return what to tell of a request that did not come as far as being served, and the headers that go with it;
        what is no failure is raised again."""
        closing = [(b"connection", b"close")]
        if isinstance(error, asyncio.CancelledError):  # the time to drain is over
            return Overloaded("the gateway is stopping"), closing
        if isinstance(error, RheostatError):
            return error, closing if self.draining else []
        if not isinstance(error, Exception):
            raise error
        _log.error("request %s failed inside", known_id, exc_info=error)
        return error, []

    def allow(self, key: KeySettings | None, options: RouteOptions) -> None:
        """Raise `Forbidden` when the caller may not go this way."""
        if options.force_model is not None or options.skip_route:
            allow_force(key)
        if key is not None:
            allow_route(key, options.name)

    def request(
        self,
        row: Any,
        meta: Mapping[str, Any],
        options: RouteOptions,
        raw: Any,
        found: Mapping[bytes, bytes],
        key: KeySettings | None,
        known_id: str,
    ) -> Request:
        """Make a row's request, which arrives now.

        Raises:
            BadRequest: an option or a header cannot be used.
        """
        no_cache, no_store = cache_words(found)
        return self.router.request(
            row,
            meta=traced(found, meta),
            headers=ShownHeaders(raw),
            route=options.name,
            session=session_of(found, meta),
            tenant=key.tenant if key is not None else None,
            priority=priority_of(found, key.priority if key is not None else "normal"),
            timeout_s=timeout_s(found, options.timeout_ms),
            max_cost=cost_limit(options.max_cost),
            force_model=options.force_model,
            skip_route=options.skip_route,
            no_cache=no_cache,
            no_store=no_store,
            request_id=known_id,
        )

    def page(self, served: Served) -> Page:
        """Return the page of one row, however it was served."""
        record = served.record
        if served.error is not None:
            return self._error_page(served, served.error)
        answer = answer_of(served)
        lines = self.route_headers.lines(record, answer.data.route_info.attempts)
        lines += b"x-rheostat-request-id: %b\r\n" % record.id.encode()
        return Page(200, encoded(answer), [(b"connection", b"close")] if self.draining else [], lines)

    def _error_page(self, served: Served, error: RheostatError) -> Page:
        known_id, promise = served.record.id, served.promise
        if promise is not None and promise.state == "pending":
            return promise_page(promise, known_id, [(b"x-rheostat-request-id", known_id.encode())])
        if http_status(error) == 500:
            _log.error("request %s failed inside: %s", known_id, error)
        return error_page(error, known_id, None, UNSET if promise is None else promised(promise))

    async def _respond(self, served: Served, send: Send) -> None:
        page = self.page(served)
        await send_page(send, page.status, page.body, b"application/json", headers_in(page.lines) + page.headers)

    async def _batch(
        self,
        asked: PredictBody,
        raw: Any,
        found: Mapping[bytes, bytes],
        key: KeySettings | None,
        known_id: str,
        receive: Receive,
        send: Send,
    ) -> None:
        items = asked.items
        limit = self.router.config.server.max_batch
        if items is UNSET or not items:
            raise BadRequest("items is an empty list; give at least one row", "items")
        if asked.route.stream:
            raise BadRequest("a list of rows cannot be streamed; ask for each row by itself", "route.stream")
        if asked.data is not UNSET or asked.text is not UNSET or asked.meta:
            raise BadRequest("with items, data, text and meta belong into each item", "items")
        if len(items) > limit:
            raise BadRequest(f"items has {len(items)} rows, the limit is {limit}; send them in parts", "items")
        answers: list[PredictAnswer | PromiseAnswer | ErrorAnswer | None] = [None] * len(items)

        async def one(index: int) -> None:
            own_id = f"{known_id}.{index}"
            try:
                item = item_of(items[index], index)
                request = self.request(item.row(), item.meta, asked.route, raw, found, key, own_id)
                served = await self.router.serve(request)
                answers[index] = row_answer(served)
            except RheostatError as error:
                answers[index] = error_of(error, own_id)
            except Exception as error:
                _log.exception("row %s failed inside", own_id)
                answers[index] = error_of(error, own_id)

        if self.router.is_quick(asked.route.name):
            await in_turns(len(items), one)
        else:
            most = key.max_in_flight if key is not None else 0
            await while_connected(receive, in_parallel(len(items), one, most))
        done = [answer for answer in answers if answer is not None]
        headers = [(b"x-rheostat-request-id", known_id.encode())]
        await send_page(send, 200, encoded(BatchAnswer(0, known_id, done)), b"application/json", headers)
