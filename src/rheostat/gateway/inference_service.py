"""The Open Inference Protocol v2 over gRPC: the calls of `inference.GRPCInferenceService`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rheostat.errors import BadRequest, Overloaded, RheostatError, http_status
from rheostat.gateway.answer import error_of, retry_after
from rheostat.gateway.headers import read_headers, request_id, too_large
from rheostat.gateway.inference_core import Answered, Asked, InferenceCore, id_of
from rheostat.gateway.inference_outputs import check_form
from rheostat.tensors import TensorError
from rheostat.tensors.message_form import add_tensors, from_messages, from_parameters, set_parameters
from rheostat.tensors.messages import SERVICE, messages

CODES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
"""The code for an HTTP status; any other is FAILED_PRECONDITION."""
SHOWN = 1_000
"""Characters of an error's text that are sent: gRPC carries it in a header."""
KEPT_BACK_S = 0.02
"""Seconds of a call's deadline that are left for the answer's way back, but never more than a tenth of it."""
_log = logging.getLogger("rheostat.gateway")


class Call:
    """One call as it came: its metadata, all of it (`raw`) and what matters (`found`), and the request's id."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.raw: list[tuple[bytes, bytes]] = []
        self.found: Mapping[bytes, bytes] = {}
        self.id = ""

    def read_metadata(self) -> None:
        """Read the metadata.

        Raises:
            BadRequest: a name that matters is given twice with different values.
        """
        self.raw = [
            (name.encode(), value if isinstance(value, bytes) else value.encode())
            for name, value in self.context.invocation_metadata() or ()
        ]
        self.found = read_headers(self.raw)
        self.id = request_id(self.found)

    @property
    def left_s(self) -> float | None:
        """Seconds within which the answer must be made; None without a deadline."""
        left: float | None = self.context.time_remaining()
        return None if left is None else max(left - min(KEPT_BACK_S, left / 10.0), 1e-4)

    async def message(self, limit: int, timeout_s: float) -> bytes:
        """Return the message's bytes.

        Raises:
            BadRequest: none came, or not in time.
            TooLarge: it has more than `limit` bytes.
        """
        try:
            async with asyncio.timeout(timeout_s):
                body = await self.context.read()
        except TimeoutError:
            raise BadRequest("the request did not arrive in time") from None
        if not isinstance(body, bytes):
            raise BadRequest("the call came without a message")
        if len(body) > limit:
            raise too_large(limit)
        return body


class InferenceService:
    """Serves the calls as `InferenceApi` serves the pages: same keys, limits and words, statuses are gRPC's codes.

    What HTTP has in headers is metadata here, and the deadline of a call is its request's. `grpc` is the library.
    """

    def __init__(self, core: InferenceCore, grpc: Any) -> None:
        self._core = core
        self._grpc = grpc
        self._messages = messages()
        self._running: set[asyncio.Task[Any]] = set()
        self._stopped = False

    def handlers(self) -> Any:
        """Return the handlers for a server."""
        answers = {
            "ServerLive": self._live, "ServerReady": self._ready, "ServerMetadata": self._server,
            "ModelReady": self._model_ready, "ModelMetadata": self._metadata, "ModelInfer": self._infer,
        }  # fmt: skip
        # A message is read here and not by the library: one that is no such message, or never ends, is the client's mistake.
        return self._grpc.method_handlers_generic_handler(
            SERVICE, {name: self._grpc.stream_unary_rpc_method_handler(self._handler(answers[name])) for name in answers}
        )

    def cut(self) -> None:
        """End the inference calls that still run: the time to drain is over."""
        self._stopped = True
        for task in self._running:
            task.cancel()

    def _handler(self, answer: Callable[[Call], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[bytes]]:
        async def handle(_: Any, context: Any) -> bytes:
            call = Call(context)
            try:
                call.read_metadata()
                written: bytes = (await answer(call)).SerializeToString()
            except asyncio.CancelledError:
                if not self._stopped or context.cancelled():  # the client left, or its time is over
                    raise
                failed: Exception = Overloaded("the gateway is stopping")
            except RheostatError as error:
                failed = error
            except Exception as error:
                _log.exception("request %s failed inside", call.id)
                failed = error
            else:
                return written
            return await self._refuse(call, failed)

        return handle

    async def _refuse(self, call: Call, error: Exception) -> bytes:
        status = http_status(error)
        trailing = [("x-rheostat-request-id", call.id)]
        wait = retry_after(error, status)
        if wait is not None:
            trailing += [("retry-after", wait.decode()), ("grpc-retry-pushback-ms", f"{wait.decode()}000")]
        code = getattr(self._grpc.StatusCode, CODES.get(status, "FAILED_PRECONDITION"))
        told = error_of(error, call.id).error.message[:SHOWN]
        await call.context.abort(code, told, tuple(trailing))
        raise AssertionError("a call ends with its abort")

    async def _read(self, call: Call, kind: str) -> Any:
        """Read the call's message.

        Raises:
            BadRequest: it is none of this kind.
        """
        server = self._core.router.config.server
        body = await call.message(server.max_body, server.body_timeout)
        try:
            return getattr(self._messages, kind).FromString(body)
        except Exception as error:  # protobuf has no word of its own for what its readers raise
            raise BadRequest(f"the message is no {kind}: {error}") from None

    async def _live(self, call: Call) -> Any:
        await self._read(call, "ServerLiveRequest")
        return self._messages.ServerLiveResponse(live=True)

    async def _ready(self, call: Call) -> Any:
        await self._read(call, "ServerReadyRequest")
        return self._messages.ServerReadyResponse(ready=self._core.ready)

    async def _server(self, call: Call) -> Any:
        await self._read(call, "ServerMetadataRequest")
        return self._messages.ServerMetadataResponse(**self._core.server)

    async def _model_ready(self, call: Call) -> Any:
        self._core.predict.caller(call.found)
        asked = await self._read(call, "ModelReadyRequest")
        return self._messages.ModelReadyResponse(ready=self._core.model_ready(asked.name, asked.version))

    async def _metadata(self, call: Call) -> Any:
        self._core.predict.caller(call.found)
        asked = await self._read(call, "ModelMetadataRequest")
        return self._messages.ModelMetadataResponse(**self._core.metadata(asked.name, asked.version))

    async def _infer(self, call: Call) -> Any:
        core, task = self._core, asyncio.current_task()
        assert task is not None
        core.predict.active += 1
        self._running.add(task)
        try:
            core.check_open()
            key = core.predict.caller(call.found)
            message = await self._read(call, "ModelInferRequest")
            asked = _asked(message)
            call.id = id_of(asked, call.found, call.id)
            answered = await core.infer(asked, key, call.raw, call.found, call.id, within_s=call.left_s)
            return self._answer(call, asked, answered, raw=bool(message.raw_input_contents))
        finally:
            self._running.discard(task)
            core.predict.active -= 1

    def _answer(self, call: Call, asked: Asked, answered: Answered, *, raw: bool) -> Any:
        """Make the response, with its tensors in the form in which the inputs came."""
        response = self._messages.ModelInferResponse(model_name=answered.name, model_version=answered.version, id=asked.id)
        set_parameters(response.parameters, answered.parameters)
        add_tensors(response.outputs, response.raw_output_contents if raw else None, answered.outputs)
        call.context.set_trailing_metadata((("x-rheostat-request-id", call.id),))
        return response


def _asked(message: Any) -> Asked:
    """Read a request.

    Raises:
        BadRequest: with the reason.
    """
    for tensor in message.inputs:
        check_form("inputs", tensor.parameters)
    for output in message.outputs:
        check_form("outputs", output.parameters)
    try:
        inputs = from_messages(message.inputs, message.raw_input_contents)
    except TensorError as error:
        raise BadRequest(str(error), "inputs") from None
    outputs = tuple(dict.fromkeys(output.name for output in message.outputs))
    parameters = from_parameters(message.parameters)
    return Asked(message.model_name, message.model_version, message.id, parameters, inputs, outputs)
