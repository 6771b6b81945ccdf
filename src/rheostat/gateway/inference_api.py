"""The Open Inference Protocol v2 over HTTP: the pages under `/v2`, with tensors in JSON or behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from rheostat.errors import BadRequest, NotFound, Overloaded, RheostatError, http_status
from rheostat.gateway.answer import Headers, Send, encoded, error_of, retry_after, send_page
from rheostat.gateway.body import Receive, explained, read_body
from rheostat.gateway.headers import check_body_headers, read_headers, request_id
from rheostat.gateway.inference_core import Answered, Asked, InferenceCore, id_of
from rheostat.gateway.inference_outputs import check_form
from rheostat.gateway.leave import ClientGone, while_connected
from rheostat.gateway.predict import PredictApi
from rheostat.tensors import TensorError
from rheostat.tensors.http_body import HEADER, read_tensors, split, written

PREFIX = "/v2"
_JSON = b"application/json"
_BINARY = b"application/octet-stream"
_LENGTH = HEADER.lower().encode()
_MODELS = "/v2/models/"
_log = logging.getLogger("rheostat.gateway")


class WantedOutput(Struct, frozen=True):
    """An output that a request asks for."""

    name: str
    parameters: dict[str, Any] = {}


class InferBody(Struct, frozen=True):
    """What `.../infer` takes in JSON. Keys that the protocol does not know are passed over, as its servers do."""

    inputs: list[Any]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[WantedOutput] = []


_decoder = msgspec.json.Decoder(InferBody)


class InferenceApi:
    """Serves the pages; errors have the protocol's form, `{"error": "..."}`, with the status of `/v1/predict`."""

    def __init__(self, predict: PredictApi) -> None:
        self.predict = predict
        self.core = InferenceCore(predict)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        known_id = ""
        try:
            found = read_headers(scope["headers"])
            known_id = request_id(found)
            name, version, page = _place(scope)
            if page == "infer":
                if scope["method"] != "POST":
                    await self._not_allowed(send, known_id, b"POST")
                    return
                await self._infer(name, version, scope["headers"], found, known_id, receive, send)
                return
            if scope["method"] not in ("GET", "HEAD"):
                await self._not_allowed(send, known_id, b"GET, HEAD")
                return
            status, told = self._page(page, name, version, found)
            await send_page(send, status, encoded(told), _JSON, [_named(known_id)])
        except RheostatError as error:
            await self._refuse(send, error, known_id)
        except Exception as error:
            _log.exception("request %s failed inside", known_id)
            await self._refuse(send, error, known_id)

    def _page(self, page: str, name: str, version: str, found: Mapping[bytes, bytes]) -> tuple[int, Any]:
        core = self.core
        if page == "server":
            return 200, core.server
        if page == "live":
            return 200, {"live": True}
        if page == "server ready":
            return 200 if core.ready else 503, {"ready": core.ready}
        self.predict.caller(found)
        if page == "ready":
            ready = core.model_ready(name, version)
            return 200 if ready else 503, {"name": name, "ready": ready}
        return 200, core.metadata(name, version)

    async def _infer(
        self,
        name: str,
        version: str,
        raw: Any,
        found: Mapping[bytes, bytes],
        known_id: str,
        receive: Receive,
        send: Send,
    ) -> None:
        self.predict.active += 1
        try:
            self.core.check_open()
            key = self.predict.caller(found)
            limit = self.predict.router.config.server.max_body
            check_body_headers(found, limit, also=_BINARY)
            body = await read_body(receive, limit)
            if body is None:
                return
            asked, binary = _asked(body, found, name, version)
            known_id = id_of(asked, found, known_id)
            answered = await self.core.infer(asked, key, raw, found, known_id, partial(_watched, receive))
            await self._respond(asked, answered, binary, known_id, send)
        except ClientGone:
            return
        except asyncio.CancelledError:  # the time to drain is over
            await self._refuse(send, Overloaded("the gateway is stopping"), known_id, [(b"connection", b"close")])
        except RheostatError as error:
            await self._refuse(send, error, known_id, [(b"connection", b"close")] if self.predict.draining else None)
        finally:
            self.predict.active -= 1

    async def _respond(
        self, asked: Asked, answered: Answered, binary: Mapping[str, bool], known_id: str, send: Send
    ) -> None:
        default = binary[""]
        objects, parts = written(answered.outputs, [binary.get(each.name, default) for each in answered.outputs])
        told: dict[str, Any] = {"model_name": answered.name, "model_version": answered.version}
        if asked.id:
            told["id"] = asked.id
        told |= {"parameters": answered.parameters, "outputs": objects}
        head = encoded(told)
        headers: Headers = [_named(known_id)]
        if len(answered.served) == 1:
            record = answered.served[0].record
            headers = self.predict.route_headers.of(record, sum(len(each.attempts) for each in record.outcomes)) + headers
        if parts:
            headers.append((_LENGTH, b"%d" % len(head)))
        if self.predict.draining:
            headers.append((b"connection", b"close"))
        await send_page(send, 200, b"".join((head, *parts)), _BINARY if parts else _JSON, headers)

    async def _refuse(self, send: Send, error: Exception, known_id: str, more: Headers | None = None) -> None:
        status = http_status(error)
        headers = [_named(known_id), *(more or [])]
        wait = retry_after(error, status)
        if wait is not None:
            headers.append((b"retry-after", wait))
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send_page(send, status, encoded({"error": error_of(error, known_id).error.message}), _JSON, headers)

    async def _not_allowed(self, send: Send, known_id: str, allowed: bytes) -> None:
        body = encoded({"error": f"this page takes {allowed.decode()}"})
        await send_page(send, 405, body, _JSON, [_named(known_id), (b"allow", allowed)])


def _named(known_id: str) -> tuple[bytes, bytes]:
    return b"x-rheostat-request-id", known_id.encode()


async def _watched(receive: Receive, work: Awaitable[None]) -> None:
    await while_connected(receive, work)


def _place(scope: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the name, the version and the page that a path under `/v2` asks for.

    Raises:
        NotFound: there is no such page.
    """
    path = scope["path"]
    fixed = {"/v2": "server", "/v2/": "server", "/v2/health/live": "live", "/v2/health/ready": "server ready"}.get(path)
    if fixed is not None:
        return "", "", fixed
    parts = (scope.get("raw_path") or path.encode()).split(b"/")[3:] if path.startswith(_MODELS) else []
    name, *rest = [unquote_to_bytes(part).decode("utf-8", "replace") for part in parts] or [""]
    version = ""
    if len(rest) >= 2 and rest[0] == "versions":
        version, rest = rest[1], rest[2:]
    page = "/".join(rest) or "metadata"
    if not name or page not in ("metadata", "ready", "infer"):
        raise NotFound("there is no such page; the protocol's are /v2, /v2/health/live, /v2/health/ready and "
                       "/v2/models/NAME with /ready and /infer")  # fmt: skip
    return name, version, page


def _asked(body: bytes, found: Mapping[bytes, bytes], name: str, version: str) -> tuple[Asked, dict[str, bool]]:
    """Read a body: what is asked, and by output whether it goes back in binary, "" standing for those not named.

    Raises:
        BadRequest: with the reason.
    """
    given = found.get(_LENGTH)
    try:
        head, rest = split(body, given.decode("latin-1") if given is not None else None)
        asked = _decoder.decode(head)
        for each in asked.inputs:
            given_parameters = each.get("parameters") if isinstance(each, Mapping) else None
            if isinstance(given_parameters, Mapping):
                check_form("inputs", given_parameters)
        inputs = read_tensors(asked.inputs, rest)
    except TensorError as error:
        raise BadRequest(str(error), "inputs") from None
    except RecursionError:
        raise BadRequest("the JSON is nested too deep") from None
    except msgspec.ValidationError as error:
        wrong = explained(error, "")
        raise BadRequest(f"{wrong.param}: {wrong}" if wrong.param else str(wrong), wrong.param) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is no inference request in JSON (UTF-8, whole characters only): {error}") from None
    binary = {"": _flag(asked.parameters, "binary_data_output", default=False)}
    for output in asked.outputs:
        check_form("outputs", output.parameters)
        binary[output.name] = _flag(output.parameters, "binary_data", default=binary[""])
    outputs = tuple(dict.fromkeys(output.name for output in asked.outputs))
    return Asked(name, version, asked.id, asked.parameters, inputs, outputs), binary


def _flag(parameters: Mapping[str, Any], name: str, *, default: bool) -> bool:
    given = parameters.get(name, default)
    if not isinstance(given, bool):
        raise BadRequest(f"{name} is true or false", f"parameters.{name}")
    return given
