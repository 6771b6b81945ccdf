"""One HTTP endpoint: keep-alive connections, the time that is left passed on, every failure named."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import math
from collections.abc import AsyncGenerator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import unquote, urlsplit, urlunsplit
from weakref import WeakKeyDictionary

import msgspec

from rheostat.backends.context_words import says_too_long
from rheostat.backends.secrets import mask, masked_url, secrets_in_url
from rheostat.clock import Clock, SystemClock
from rheostat.errors import ConfigError, ModelError, Problem
from rheostat.pool.backend import Reply
from rheostat.wire import Client, NotConnected, Origin, ShownHeaders, TooLargeAnswer, WireError, head_of

TIMEOUT_HEADER = "x-rheostat-timeout-ms"
_TIMEOUT = TIMEOUT_HEADER.encode()
LARGEST = 8 << 20
_SHOWN = 300
_KINDS = {
    **dict.fromkeys((400, 422), "input_refused"),
    408: "timeout",
    **dict.fromkeys((409, 425), "upstream_error"),
    413: "input_too_large",
    429: "rate_limited",
}


StatusKind = Literal[
    "input_refused", "input_too_large", "misconfigured", "rate_limited", "timeout", "upstream_error", "bad_output"
]
"""What an HTTP status may be made to mean by `on_status`."""
NO_STATUS: Mapping[int, StatusKind] = {}
NO_HEADERS: Mapping[str, str] = {}


class Upstream:
    """Sends JSON to one URL. It follows no redirect, so a key goes nowhere else; retrying is the engine's business.

    Args:
        url: http or https; a user and password in it become an Authorization header unless `headers` has one.
        headers: sent with every call; their values are treated as secrets.
        max_retry_after_s: the longest wait that is believed, in seconds.
        field: the config field that holds `url`, for errors.
        on_status: kinds of failure that replace those of `failure_of`, by HTTP status.
        resend: whether a request may be sent again that met a connection just when the other side gave it up.

    Raises:
        ConfigError: the URL is no http URL.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        max_retry_after_s: float,
        field: str,
        clock: Clock | None = None,
        on_status: Mapping[int, str] = NO_STATUS,
        *,
        resend: bool = True,
    ) -> None:
        bare, userinfo = url_parts(url)
        if bare is None:
            raise ConfigError(
                [Problem(field, None, f"expected http://host/... or https://host/..., got {masked_url(url)!r}")]
            )
        self.shown = masked_url(url)
        self._headers = {"content-type": "application/json", **{name.lower(): value for name, value in headers.items()}}
        if userinfo and "authorization" not in self._headers:
            token = base64.b64encode(unquote(userinfo).encode()).decode()
            self._headers["authorization"] = f"Basic {token}"
        words = [word for value in headers.values() for word in value.split()]
        self._secrets = (*headers.values(), *(word for word in words if len(word) > 7), *secrets_in_url(url))
        self._max_retry_after_s = max_retry_after_s
        self._on_status = on_status
        self._clock = clock or SystemClock()
        self._resend = resend
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()
        try:
            self._origin = Origin.of(bare)
            self._tls = self._origin.tls()
            self._point(bare)
        except ValueError as error:  # told without the value, which may be a key
            raise ConfigError([Problem(field, None, mask(str(error), self._secrets))]) from None

    def at(self, url: str) -> Upstream:
        """Return the same endpoint's other page: same connections, headers and secrets. Closing one closes both."""
        bare, _ = url_parts(url)
        assert bare is not None
        assert Origin.of(bare) == self._origin
        page = copy.copy(self)
        page.shown = masked_url(url)
        page._point(bare)
        return page

    def _point(self, url: str) -> None:
        self._url = url
        self._posts, self._gets = head_of("POST", url, self._headers), head_of("GET", url, self._headers)
        self._streams = head_of("POST", url, {**self._headers, "accept": "text/event-stream"})

    async def ask(self, body: bytes, timeout_s: float) -> Any:
        """Post `body` and return the JSON that came back.

        Raises:
            ModelError: timeout, connection, bad_output (no JSON), or what the status stands for (`failure_of`).
        """
        return self.read_json((await self.exchange(body, timeout_s))[1])

    async def exchange(
        self, body: bytes | None, timeout_s: float, more: Mapping[str, str] = NO_HEADERS
    ) -> tuple[Mapping[str, str], bytes]:
        """Post `body` (None: GET) with `more` headers, and return the headers and the content that came back.

        Raises:
            ModelError: timeout, connection, or what the status stands for (`failure_of`).
        """
        if timeout_s <= 0:
            raise ModelError("timeout", "no time left to ask")
        limit = None if math.isinf(timeout_s) else timeout_s
        if more:
            head = head_of("GET" if body is None else "POST", self._url, {**self._headers, **more})
        else:
            head = self._gets if body is None else self._posts
        try:
            answer = await self._client().ask(written(head, body, limit), limit, LARGEST)
        except TimeoutError:
            raise ModelError("timeout", f"{self.shown} gave no answer within {timeout_s:.3g} s") from None
        except TooLargeAnswer as error:
            raise ModelError("bad_output", f"{self.shown} answered {error}") from None
        except WireError as error:
            raise self._broken_off(error) from None  # its context may show the address
        if not 200 <= answer.status < 300:
            raise self._failure(answer.status, ShownHeaders(answer.headers), answer.body)
        return ShownHeaders(answer.headers), answer.body

    def read_json(self, content: bytes) -> Any:
        """Return what an answer says in JSON; unlike stricter parsers this one reads NaN, which then counts as no number.

        Raises:
            ModelError: `bad_output` when it is none.
        """
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise ModelError("bad_output", f"{self.shown}: expected JSON, got {self._excerpt(content)}") from None

    async def stream(self, body: bytes, timeout_s: float) -> AsyncGenerator[bytes]:
        """Post `body` and yield what comes back, as it comes; first the content type. Closing it closes the connection.

        What is not read yet is held up to some 100 kB; then the other side has to wait.

        Raises:
            ModelError: connection, reset, or what the status stands for (`failure_of`).
        """
        limit = None if math.isinf(timeout_s) else timeout_s
        try:
            async with await self._client().stream(written(self._streams, body, limit)) as answer:
                headers = ShownHeaders(answer.headers)
                if not 200 <= answer.status < 300:
                    content = b""
                    while len(content) < LARGEST and (data := await answer.read()):
                        content += data
                    raise self._failure(answer.status, headers, content[:LARGEST])
                yield headers.get("content-type", "").lower().encode()
                while data := await answer.read():
                    yield data
        except TooLargeAnswer as error:
            raise ModelError("bad_output", f"{self.shown} answered {error}") from None
        except WireError as error:
            raise self._broken_off(error) from None

    async def check(self, timeout_s: float) -> None:
        """Fetch the URL with GET; any 2xx status is good, and what it says is not read.

        Raises:
            ModelError: timeout, connection, or upstream_error for another status.
        """
        try:
            async with await self._client().stream(written(self._gets, None, None), timeout_s) as answer:
                status = answer.status
        except TimeoutError:
            raise ModelError("timeout", f"{self.shown} gave no answer within {timeout_s:.3g} s") from None
        except WireError as error:
            raise ModelError("connection", str(self._broken_off(error))) from None
        if not 200 <= status < 300:
            kind = "rate_limited" if status == 429 else "upstream_error"
            raise ModelError(kind, f"{self.shown} answered {status}", upstream_status=status)

    def _broken_off(self, error: WireError) -> ModelError:
        """Say where and how a connection failed: `connection` when nothing was sent, `reset` when the request may have
        arrived."""
        kind = "connection" if isinstance(error, NotConnected) else "reset"
        return ModelError(kind, f"{self.shown}: {mask(str(error)[:_SHOWN], self._secrets)}")

    def hide(self, reply: Reply) -> Reply:
        """Return the reply; if it is an error, without the secrets an endpoint may have echoed."""
        if not isinstance(reply, ModelError):
            return reply
        told = mask(str(reply), self._secrets)
        return ModelError(reply.kind, told, upstream_status=reply.upstream_status, retry_after_s=reply.retry_after_s)

    async def aclose(self) -> None:
        """Close the connections, of other running event loops too."""
        here = asyncio.get_running_loop()
        for loop, client in list(self._clients.items()):
            if loop is here:
                client.close()
            elif loop.is_running():
                loop.call_soon_threadsafe(client.close)
        self._clients.clear()
        await asyncio.sleep(0)  # that is when they close

    def _client(self) -> Client:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for other in [each for each in self._clients if each.is_closed()]:
                del self._clients[other]
            client = self._clients[loop] = Client(self._origin, self._tls, resend=self._resend)
        return client

    def _failure(self, status: int, headers: Mapping[str, str], content: bytes) -> ModelError:
        wait = parse_retry_after(
            headers.get("Retry-After"), headers.get("Date"), self._clock.wall(), self._max_retry_after_s
        )
        message = f"{self.shown} answered {status}: {self._excerpt(content)}"
        kind = self._on_status.get(status)
        if kind is not None:
            return ModelError(kind, message, upstream_status=status, retry_after_s=wait)
        return failure_of(status, content, message, wait)

    def _excerpt(self, content: bytes) -> str:
        # Masked before it is cut: half a key at the cut would go unseen.
        return repr(mask(content[:LARGEST].decode("utf-8", "replace"), self._secrets)[:_SHOWN])


def url_parts(url: str) -> tuple[str | None, str]:
    """Return the URL without user, password and fragment (None when it is no http URL), and the user and password."""
    parts = urlsplit(url)
    userinfo, _, host = parts.netloc.rpartition("@")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None, userinfo
    return urlunsplit((parts.scheme, host, parts.path, parts.query, "")), userinfo


def written(head: bytes, body: bytes | None, limit_s: float | None) -> bytes:
    """Return a request as it is sent: its first lines, what is left of its time, and its body."""
    if limit_s is not None:
        head = b"%b%b: %d\r\n" % (head, _TIMEOUT, math.ceil(limit_s * 1000))
    return head + b"\r\n" if body is None else b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)


def failure_of(status: int, content: bytes, message: str, retry_after_s: float | None) -> ModelError:
    """Say what an HTTP status that is not 2xx means.

    | status | kind |
    |---|---|
    | 400, 422 | input_refused, or input_too_large where the body says that the context is too long (`says_too_long`) |
    | 401, 403, 404, 3xx and other 4xx | misconfigured: the operator's fault |
    | 408 | timeout |
    | 409, 425, 5xx | upstream_error |
    | 413 | input_too_large |
    | 429 | rate_limited |
    """
    kind = _KINDS.get(status, "upstream_error" if status >= 500 else "misconfigured")
    if kind == "input_refused" and says_too_long(content):
        kind = "input_too_large"
    return ModelError(kind, message, upstream_status=status, retry_after_s=retry_after_s)


def parse_retry_after(value: str | None, date: str | None, now: float, longest_s: float) -> float | None:
    """Return the seconds of a Retry-After header, at most `longest_s`; None when it is absent, malformed or in the
    past.

    Args:
        value: seconds or an HTTP date (RFC 9110, 10.2.3).
        date: the response's own Date header; a date is counted from it, so that a wrong clock does no harm.
        now: seconds since 1970, for a response without Date.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), longest_s)
    try:
        until = parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    try:
        start = parsedate_to_datetime(date).timestamp() if date else now
    except (TypeError, ValueError, OverflowError):
        start = now
    return min(until - start, longest_s) if until >= start else None


def encode(value: Any) -> bytes:
    """Return `value` as JSON in UTF-8; NaN becomes null and a lone surrogate its escape.

    Raises:
        ModelError: `input_refused` when it is nothing JSON can carry.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        escaped = json.dumps(msgspec.to_builtins(value))
        return json.dumps(json.loads(escaped, parse_constant=lambda _: None)).encode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ModelError("input_refused", f"the input cannot be sent as JSON: {error}") from None
