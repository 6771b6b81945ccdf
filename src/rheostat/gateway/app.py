"""The gateway as an ASGI application: a thin dispatch by path, nothing between the socket and the request path."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rheostat.errors import BadRequest, NotFound, RheostatError
from rheostat.gateway.answer import RESULTS, Headers, Send, encode, send_error, send_not_allowed, send_page
from rheostat.gateway.body import FeedbackBody, Receive, parse, read_body
from rheostat.gateway.chat_api import ChatApi
from rheostat.gateway.face import Face
from rheostat.gateway.headers import MAX_ID, check_body_headers, read_headers, request_id
from rheostat.gateway.inference_api import PREFIX, InferenceApi
from rheostat.gateway.messages_face import MessagesFace
from rheostat.gateway.model_list import listed
from rheostat.gateway.openapi import document
from rheostat.gateway.predict import PredictApi
from rheostat.gateway.results import ResultsApi
from rheostat.gateway.text_faces import CompletionFace, EmbeddingFace
from rheostat.types import Feedback

if TYPE_CHECKING:
    from rheostat.gateway.protocol import Direct
    from rheostat.router import Router

Scope = MutableMapping[str, Any]
Page = Callable[[Scope, Receive, Send], Awaitable[None]]
MODELS = "/v1/models/"
MAX_FEEDBACK_BODY = 65_536
FACES = (Face(), CompletionFace(), EmbeddingFace(), MessagesFace())
JSON = b"application/json"
_log = logging.getLogger("rheostat.gateway")


class Response(NamedTuple):
    """A page that is made on the spot."""

    status: int
    body: bytes
    kind: bytes = JSON
    headers: Headers = []  # noqa: RUF012 - never changed


class Gateway:
    """Serves a router over HTTP. Run it under any ASGI server, or with `rheostat.gateway.server`, which adds the limits
    that only a server can keep: slow clients, header sizes, message framing, an orderly stop."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self._made = int(router.clock.wall())
        self.predict = PredictApi(router)
        self.results = ResultsApi(router, self.predict.caller)
        self.inference = InferenceApi(self.predict)
        chats = {face.page: ChatApi(self.predict, face) for face in FACES}
        self._posts: Mapping[str, Page] = {
            "/v1/predict": self.predict,
            "/v1/feedback": self._feedback,
            **chats,
        }
        self.direct: Mapping[bytes, Direct] = {b"/v1/predict": self.predict} | {
            page.encode(): chat for page, chat in chats.items()
        }
        self._gets: Mapping[str, Callable[[], Response]] = {
            "/v1/models": self._models,
            "/health/live": lambda: Response(200, b'{"status":"live"}'),
            "/health/ready": self._ready,
            "/metrics": self._metrics,
            "/openapi.json": lambda: Response(200, document()),
        }
        self._with_key = frozenset(("/v1/models",))

    @property
    def active(self) -> int:
        """Predictions that have arrived and are not answered yet."""
        return self.predict.active

    def drain(self) -> None:
        """Take no new predictions from now on: they get 503, and readiness is bad."""
        self.predict.draining = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] != "http":
            raise RuntimeError(f"the gateway speaks http only, not {scope['type']}")
        if scope["method"] == "POST":
            post = self._posts.get(scope["path"])
            if post is not None:
                await post(scope, receive, send)
                return
        if scope["path"].startswith(PREFIX):
            await self.inference(scope, receive, send)
            return
        await self._other(scope, send)

    async def _other(self, scope: Scope, send: Send) -> None:
        known_id = ""
        path = scope["path"]
        try:
            found = read_headers(scope["headers"])
            known_id = request_id(found)
            page = self._gets.get(path)
            if page is None and path.startswith(MODELS) and scope["method"] in ("GET", "HEAD"):
                self.predict.caller(found)
                page = partial(self._model, path.removeprefix(MODELS))
            is_result = path.startswith(RESULTS)
            if is_result and scope["method"] in ("GET", "HEAD"):
                await self.results(path, found, known_id, send)
                return
            if page is None and path not in self._posts and not is_result:
                raise NotFound("there is no such page; predictions are POST /v1/predict, /openapi.json lists all there is")
            if page is None or scope["method"] not in ("GET", "HEAD"):
                await send_not_allowed(send, known_id, b"POST" if path in self._posts else b"GET, HEAD")
                return
            if path in self._with_key:
                self.predict.caller(found)
            made = page()
            headers = [(b"x-rheostat-request-id", known_id.encode()), *made.headers]
            await send_page(send, made.status, made.body, made.kind, headers)
        except RheostatError as error:
            await send_error(send, error, known_id)
        except Exception as error:
            _log.exception("request %s failed inside", known_id)
            await send_error(send, error, known_id)

    async def _feedback(self, scope: Scope, receive: Receive, send: Send) -> None:
        known_id = ""
        try:
            found = read_headers(scope["headers"])
            known_id = request_id(found)
            self.predict.caller(found)
            check_body_headers(found, MAX_FEEDBACK_BODY)
            body = await read_body(receive, MAX_FEEDBACK_BODY)
            if body is None:
                return
            feedback = judged(parse(body, FeedbackBody), self.router.clock.wall())
            self.router.feedback(feedback)
            accepted = encode({"code": 0, "request_id": feedback.request_id})
            await send_page(send, 202, accepted, JSON, [(b"x-rheostat-request-id", known_id.encode())])
        except RheostatError as error:
            await send_error(send, error, known_id)
        except Exception as error:
            _log.exception("request %s failed inside", known_id)
            await send_error(send, error, known_id)

    def _models(self) -> Response:
        return Response(200, encode({"object": "list", "data": listed(self.router, self._made)}))

    def _model(self, name: str) -> Response:
        for each in listed(self.router, self._made):
            if each["id"] == name:
                return Response(200, encode(each))
        raise NotFound(f"no route and no model is named {name[:80]!r}; /v1/models lists them", "model")

    def _ready(self) -> Response:
        if self.predict.draining or not self.router.ready:
            return Response(503, b'{"status":"stopping"}', JSON, [(b"retry-after", b"1")])
        if not self.router.can_answer:
            return Response(503, b'{"status":"no model can be asked"}', JSON, [(b"retry-after", b"1")])
        return Response(200, b'{"status":"ready"}')

    def _metrics(self) -> Response:
        return Response(200, self.router.metrics.render(), b"text/plain; version=0.0.4; charset=utf-8")


def judged(given: FeedbackBody, wall: float) -> Feedback:
    """Return the judgement in a feedback body.

    Raises:
        BadRequest: it judges nothing, or its reward or request id cannot be one.
    """
    if given.label is None and given.reward is None:
        raise BadRequest("a judgement has a label, a reward, or both", "label")
    if given.reward is not None and not math.isfinite(given.reward):
        raise BadRequest("reward must be a finite number", "reward")
    if not 0 < len(given.request_id) <= MAX_ID:
        raise BadRequest(f"request_id is the one of the answer that is judged (1 to {MAX_ID} characters)", "request_id")
    return Feedback(
        request_id=given.request_id, wall=wall, label=given.label, reward=given.reward, source=given.source[:200]
    )
