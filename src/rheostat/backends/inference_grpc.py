"""The Open Inference Protocol v2 over gRPC."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from rheostat.backends.inference_facts import Described, Metadata
from rheostat.backends.inference_http import SAYS_NOTHING, named
from rheostat.backends.secrets import mask, masked_url, secrets_in_url
from rheostat.backends.upstream import LARGEST, StatusKind, failure_of
from rheostat.errors import ConfigError, MissingExtra, ModelError, Problem
from rheostat.tensors import Tensor, TensorError
from rheostat.tensors.message_form import add_tensors, from_messages
from rheostat.tensors.messages import SERVICE, messages

PORTS = {"grpc": 80, "grpcs": 443}
STATUS = {
    "CANCELLED": 499, "UNKNOWN": 500, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429, "FAILED_PRECONDITION": 400, "ABORTED": 409,
    "OUT_OF_RANGE": 400, "UNIMPLEMENTED": 501, "INTERNAL": 500, "UNAVAILABLE": 503, "DATA_LOSS": 500, "UNAUTHENTICATED": 401,
}  # fmt: skip
"""gRPC's codes as the HTTP statuses that they stand for (google.rpc.Code), so that one table says what both mean."""
_NEVER_SENT = re.compile(r"failed to connect|dns resolution|name resolution|connections to all backends", re.IGNORECASE)
_LOST = re.compile(
    r"^$|stream removed|socket closed|connection reset|broken pipe|goaway|cancelling all calls|recvmsg|sendmsg"
    r"|end of tcp stream|transport closed|transport destroyed|endpoint closing|ping timeout|keepalive",
    re.IGNORECASE,
)
"""The library's own words for a connection that ended under a call; any others of UNAVAILABLE are the server's."""
_TOO_LARGE = re.compile(r"larger than max \(\d+ vs\. (\d+)\)")
_SHOWN = 300
_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),  # the default of two minutes would keep a server away that is back
    ("grpc.enable_retries", 0),  # retrying is the engine's
    ("grpc.primary_user_agent", "rheostat"),
)


class GrpcTransport:
    """One model on one server.

    Args:
        url: `grpc://host:port`, or `grpcs://host:port` for TLS with the system's certificates.
        headers: sent as metadata with every call; their values are treated as secrets.
        max_retry_after_s: the longest wait that is believed, in seconds.
        on_status: kinds of failure that replace those of `failure_of`, by the HTTP status a code stands for.

    Raises:
        ConfigError: the URL cannot be used.
        MissingExtra: grpcio is not installed.
    """

    def __init__(
        self,
        url: str,
        model: str,
        version: str,
        headers: Mapping[str, str],
        max_retry_after_s: float,
        on_status: Mapping[int, StatusKind],
    ) -> None:
        try:
            import grpc.aio
        except ImportError:
            raise MissingExtra("a model over gRPC", "grpc") from None
        parts = urlsplit(url)
        try:
            port = parts.port or PORTS[parts.scheme]
        except (KeyError, ValueError):
            port = 0
        if not port or not parts.hostname or parts.path.strip("/") or parts.query or parts.username is not None:
            problem = f"expected grpc://host:port or grpcs://host:port, got {masked_url(url)!r}"
            raise ConfigError([Problem("base_url", None, problem)])
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.shown = f"{parts.scheme}://{host}:{port}"
        self._grpc = grpc
        self._target, self._secure = f"{host}:{port}", parts.scheme == "grpcs"
        self._model, self._version = model, version
        self._metadata = tuple((name.lower(), value) for name, value in headers.items())
        words = [word for value in headers.values() for word in value.split()]
        self._secrets = (*headers.values(), *(word for word in words if len(word) > 7), *secrets_in_url(url))
        self._max_retry_after_s = max_retry_after_s
        self._on_status = on_status
        self._messages = messages()
        self._channels: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Any, dict[str, Any]]] = WeakKeyDictionary()

    async def infer(self, given: Tensor, output: str, timeout_s: float, *, binary: bool) -> Tensor:  # noqa: ARG002
        """Send one tensor, as bytes always, and return the one that is named `output`."""
        request = self._messages.ModelInferRequest(model_name=self._model, model_version=self._version)
        try:
            add_tensors(request.inputs, request.raw_input_contents, (given,))
        except TensorError as error:
            raise ModelError("input_refused", str(error)) from None
        request.outputs.add(name=output)
        answer = await self._call("ModelInfer", request, timeout_s)
        try:
            return named(output, from_messages(answer.outputs, answer.raw_output_contents))
        except TensorError as error:
            raise ModelError("bad_output", mask(str(error), self._secrets)) from None

    async def metadata(self, timeout_s: float) -> Metadata | None:
        """Return what the server says; None when it has no such call or no such model."""
        request = self._messages.ModelMetadataRequest(name=self._model, version=self._version)
        try:
            model = await self._call("ModelMetadata", request, timeout_s)
        except ModelError as error:
            if error.upstream_status in SAYS_NOTHING:
                return None
            raise
        inputs, outputs = (
            tuple(Described(each.name, each.datatype, tuple(each.shape)) for each in tensors)
            for tensors in (model.inputs, model.outputs)
        )
        return Metadata((), inputs, outputs)

    async def ready(self, timeout_s: float) -> None:
        """Return when the model is ready."""
        request = self._messages.ModelReadyRequest(name=self._model, version=self._version)
        answer = await self._call("ModelReady", request, timeout_s)
        if not answer.ready:
            raise ModelError("upstream_error", f"{self.shown} says that the model {self._model!r} is not ready")

    async def control(self, action: str, timeout_s: float) -> None:
        """Have the server load or unload the model."""
        method = f"RepositoryModel{action.capitalize()}"
        request = getattr(self._messages, f"{method}Request")(model_name=self._model)
        await self._call(method, request, timeout_s)

    async def aclose(self) -> None:
        """Close the connections, of other running event loops too."""
        here = asyncio.get_running_loop()
        for loop, (channel, _) in list(self._channels.items()):
            if loop is here:
                await channel.close()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(channel.close(), loop))
        self._channels.clear()

    async def _call(self, method: str, request: Any, timeout_s: float) -> Any:
        if timeout_s <= 0:
            raise ModelError("timeout", "no time left to ask")
        call = self._method(method)
        try:
            return await call(request, timeout=None if math.isinf(timeout_s) else timeout_s, metadata=self._metadata)
        except self._grpc.aio.AioRpcError as error:
            raise self._failure(error, timeout_s) from None

    def _method(self, method: str) -> Any:
        loop = asyncio.get_running_loop()
        known = self._channels.get(loop)
        if known is None:
            aio = self._grpc.aio
            if self._secure:
                channel = aio.secure_channel(self._target, self._grpc.ssl_channel_credentials(), options=_OPTIONS)
            else:
                channel = aio.insecure_channel(self._target, options=_OPTIONS)
            known = self._channels[loop] = (channel, {})
        channel, methods = known
        if method not in methods:
            methods[method] = channel.unary_unary(
                f"/{SERVICE}/{method}",
                request_serializer=getattr(self._messages, f"{method}Request").SerializeToString,
                response_deserializer=getattr(self._messages, f"{method}Response").FromString,
            )
        return methods[method]

    def _failure(self, error: Any, timeout_s: float) -> ModelError:
        code: str = error.code().name
        details = error.details() or ""
        told = mask(f"{self.shown} answered {code}: {details}", self._secrets)[:_SHOWN]
        if code == "DEADLINE_EXCEEDED":
            return ModelError("timeout", f"{self.shown} gave no answer within {timeout_s:.3g} s")
        if code == "UNAVAILABLE" and (_NEVER_SENT.search(details) or _LOST.search(details)):
            return ModelError("connection" if _NEVER_SENT.search(details) else "reset", told)
        large = _TOO_LARGE.search(details)
        if large is not None:
            return ModelError("bad_output" if int(large[1]) == LARGEST else "input_too_large", told)
        status = STATUS.get(code, 500)
        kind = self._on_status.get(status)
        wait = self._wait(error)
        if kind is not None:
            return ModelError(kind, told, upstream_status=status, retry_after_s=wait)
        return failure_of(status, b"", told, wait)

    def _wait(self, error: Any) -> float | None:
        for name, value in error.trailing_metadata() or ():
            if name == "grpc-retry-pushback-ms" and str(value).isdigit():
                return min(float(value) / 1000.0, self._max_retry_after_s)
        return None
