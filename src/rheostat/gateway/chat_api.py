"""The pages of language models, such as `POST /v1/chat/completions`. `model` names a route, or a model by hand."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from rheostat.engine.engine import Served
from rheostat.errors import http_status
from rheostat.gateway.answer import Page, Send, send_page
from rheostat.gateway.body import Receive, read_body
from rheostat.gateway.chat_stream import ChatStream
from rheostat.gateway.face import Face
from rheostat.gateway.headers import read_headers, request_id
from rheostat.gateway.leave import ClientGone, while_connected
from rheostat.gateway.model_name import way_of
from rheostat.gateway.predict import PredictApi
from rheostat.types import Chat

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
            failed, headers = predict.failure(error, known_id)
            await _send(send, face.error_page(failed, known_id, headers))
        finally:
            predict.active -= 1

    async def _respond(self, chat: Chat, served: Served, send: Send) -> None:
        record = served.record
        if served.error is not None:
            if http_status(served.error) == 500:
                _log.error("request %s failed inside: %s", record.id, served.error)
            await _send(send, self.face.error_page(served.error, record.id, []))
            return
        headers = self.predict.route_headers.of(record, sum(len(outcome.attempts) for outcome in record.outcomes))
        headers += self.face.named(record.id)
        if self.predict.draining:
            headers.append((b"connection", b"close"))
        await _send(send, Page(200, self.face.answer(served, chat), headers))


async def _send(send: Send, page: Page) -> None:
    await send_page(send, page.status, page.body, b"application/json", page.headers)
