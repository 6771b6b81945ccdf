"""The pages of language models, such as `POST /v1/chat/completions`. `model` names a route, or a model by hand."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from rheostat.engine.engine import Served
from rheostat.errors import http_status
from rheostat.gateway.answer import Page, Send, send_page
from rheostat.gateway.body import Receive, read_body
from rheostat.gateway.chat_stream import ChatStream
from rheostat.gateway.face import Face
from rheostat.gateway.headers import RawHeaders, read_headers, request_id, too_large
from rheostat.gateway.leave import ClientGone, at_once, while_connected
from rheostat.gateway.model_name import way_of
from rheostat.gateway.predict import PredictApi
from rheostat.types import Chat, Request

_log = logging.getLogger("rheostat.gateway")


class ChatApi:
    """Serves one page under the limits and with the keys, headers and records of `/v1/predict`."""

    def __init__(self, predict: PredictApi, face: Face) -> None:
        self.predict = predict
        self.face = face

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one HTTP request; every ending but a client's leave is answered."""
        predict, face, known_id = self.predict, self.face, ""
        router = predict.router
        predict.active += 1
        try:
            raw = scope["headers"]
            found = read_headers(raw)
            known_id = request_id(found)
            key = predict.let_in(found)
            body = await read_body(receive, router.config.server.max_body)
            if body is None:
                return
            chat, meta = face.read(body)
            options = way_of(router, chat, face.page)
            predict.allow(key, options)
            request = predict.request(chat, meta, options, raw, found, key, known_id)
            if chat.asks("stream") is True:
                respond = partial(self._respond, chat)
                stream = ChatStream(router, send, lambda: predict.draining, respond, predict.route_headers, face, chat)
                await stream.serve(request, receive)
                return
            serving = router.serve(request)
            served = await (serving if router.is_quick(request.route) else while_connected(receive, serving))
            await self._respond(chat, served, send)
        except ClientGone:
            return
        except BaseException as error:
            await _send(send, self._failed(error, known_id))
        finally:
            predict.active -= 1

    def begin(self, raw: RawHeaders, body: bytes) -> Page | Coroutine[Any, Any, Page] | None:
        """Answer a request whose body is there, without ASGI in between, as `PredictApi.begin` does. None: only `__call__`
        can, a stream is wanted."""
        predict, face, known_id = self.predict, self.face, ""
        router = predict.router
        try:
            found = read_headers(raw)
            known_id = request_id(found)
            key = predict.let_in(found)
            if len(body) > router.config.server.max_body:
                raise too_large(router.config.server.max_body)
            chat, meta = face.read(body)
            if chat.asks("stream") is True:
                return None
            options = way_of(router, chat, face.page)
            predict.allow(key, options)
            request = predict.request(chat, meta, options, raw, found, key, known_id)
            if router.is_quick(request.route):
                return self._page(chat, at_once(router.serve(request)))
            return self._awaited(chat, request)
        except BaseException as error:
            return self._failed(error, known_id)

    async def _awaited(self, chat: Chat, request: Request) -> Page:
        self.predict.active += 1
        try:
            return self._page(chat, await self.predict.router.serve(request))
        except BaseException as error:
            return self._failed(error, request.id)
        finally:
            self.predict.active -= 1

    def _failed(self, error: BaseException, known_id: str) -> Page:
        told, headers = self.predict.failure(error, known_id)
        return self.face.error_page(told, known_id, headers)

    async def _respond(self, chat: Chat, served: Served, send: Send) -> None:
        await _send(send, self._page(chat, served))

    def _page(self, chat: Chat, served: Served) -> Page:
        """Return the page of an answer, or of the error that came in its place."""
        record = served.record
        if served.error is not None:
            if http_status(served.error) == 500:
                _log.error("request %s failed inside: %s", record.id, served.error)
            return self.face.error_page(served.error, record.id, [])
        headers = self.predict.route_headers.of(record, sum(len(outcome.attempts) for outcome in record.outcomes))
        headers += self.face.named(record.id)
        if self.predict.draining:
            headers.append((b"connection", b"close"))
        return Page(200, self.face.answer(served, chat), headers)


async def _send(send: Send, page: Page) -> None:
    await send_page(send, page.status, page.body, b"application/json", page.headers)
