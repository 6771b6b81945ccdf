"""`POST /v1/chat/completions`: conversations, as OpenAI's clients send them. `model` names a route, or a model by hand."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from rheostat.engine.engine import Served
from rheostat.errors import BadRequest, NotFound, http_status
from rheostat.gateway.answer import Page, Send, send_page
from rheostat.gateway.body import Receive, RouteOptions, malformed, read_body
from rheostat.gateway.chat_answer import chat_error_page, completion_of, named
from rheostat.gateway.chat_stream import ChatStream
from rheostat.gateway.headers import read_headers, request_id
from rheostat.gateway.leave import ClientGone, while_connected
from rheostat.gateway.predict import PredictApi
from rheostat.types import Chat

PAGE = "/v1/chat/completions"
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_log = logging.getLogger("rheostat.gateway")


class ChatApi:
    """Serves conversations under the limits and with the keys, headers and records of `/v1/predict`."""

    def __init__(self, predict: PredictApi) -> None:
        self.predict = predict

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one HTTP request; every ending but a client's leave is answered."""
        predict, known_id = self.predict, ""
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
            chat = chat_of(body)
            name = chat.asks("model")
            options = self._options(name)
            predict.allow(key, options)
            request = predict.request(chat, _meta(chat), options, raw, found, key, known_id)
            if chat.asks("stream") is True:
                told = chat.asks("stream_options")
                usage = isinstance(told, dict) and told.get("include_usage") is True
                stream = ChatStream(
                    router, send, lambda: predict.draining, self._respond, predict.route_headers, model=name, usage=usage
                )
                await stream.serve(request, receive)
                return
            serving = router.serve(request)
            served = await (serving if router.is_quick(request.route) else while_connected(receive, serving))
            await self._respond(served, send)
        except ClientGone:
            return
        except BaseException as error:
            failed, headers = predict.failure(error, known_id)
            await _send(send, chat_error_page(failed, known_id, headers))
        finally:
            predict.active -= 1

    async def _respond(self, served: Served, send: Send) -> None:
        record = served.record
        if served.error is not None:
            if http_status(served.error) == 500:
                _log.error("request %s failed inside: %s", record.id, served.error)
            await _send(send, chat_error_page(served.error, record.id, []))
            return
        headers = self.predict.route_headers.of(record, sum(len(outcome.attempts) for outcome in record.outcomes))
        headers += named(record.id)
        if self.predict.draining:
            headers.append((b"connection", b"close"))
        await _send(send, Page(200, completion_of(served), headers))

    def _options(self, name: Any) -> RouteOptions:
        """Return the way that `model` names: a route, or a model by hand on the first route that has it.

        Raises:
            BadRequest: it is no name.
            NotFound: there is neither.
        """
        router = self.predict.router
        if router.config.task != "chat":
            raise NotFound("this gateway serves no conversations: its config has no `task: chat`")
        if not isinstance(name, str):
            raise BadRequest("`model` is the name of a route, as /v1/models lists them", "model")
        lanes = router.plan.lanes
        if name in lanes:
            return RouteOptions(name=name)
        if name in router.config.models:
            for route in sorted(lanes, key=lambda each: each != "default"):
                if name in lanes[route].route.links:
                    return RouteOptions(name=route, force_model=name)
        near = difflib.get_close_matches(name, lanes, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(lanes)}"
        raise NotFound(f"no route and no model is named {name[:80]!r}; {hint}", "model")


def chat_of(body: bytes) -> Chat:
    """Read a conversation.

    Raises:
        BadRequest: with the reason.
    """
    try:
        return Chat(_fields(body))
    except msgspec.ValidationError:
        raise BadRequest("the body is a JSON object with `model` and `messages`") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(body, error) from None
    except RecursionError:
        raise BadRequest("the JSON is nested too deep") from None
    except ValueError as error:
        raise BadRequest(str(error), "messages") from None


def _meta(chat: Chat) -> Mapping[str, Any]:
    meta = chat.asks("metadata")
    return meta if isinstance(meta, dict) else {}


async def _send(send: Send, page: Page) -> None:
    await send_page(send, page.status, page.body, b"application/json", page.headers)
