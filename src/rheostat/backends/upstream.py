"""One HTTP endpoint: keep-alive connections, the time that is left passed on, every failure named."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import math
import ssl
from collections.abc import AsyncGenerator, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit, urlunsplit
from weakref import WeakKeyDictionary

import msgspec

from rheostat.backends.secrets import mask, masked_url, secrets_in_url
from rheostat.clock import Clock, SystemClock
from rheostat.errors import ConfigError, ModelError, Problem
from rheostat.pool.backend import Reply

if TYPE_CHECKING:
    import aiohttp

TIMEOUT_HEADER = "x-rheostat-timeout-ms"
LARGEST = 8 << 20
_SHOWN = 300
_TOO_LARGE_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
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
    """Sends JSON to one URL. It never retries and follows no redirect, so a key goes nowhere else.

    Args:
        url: http or https; a user and password in it become an Authorization header unless `headers` has one.
        headers: sent with every call; their values are treated as secrets.
        max_retry_after_s: the longest wait that is believed, in seconds.
        field: the config field that holds `url`, for errors.
        on_status: kinds of failure that replace those of `failure_of`, by HTTP status.

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
    ) -> None:
        import aiohttp  # noqa: F401 - loaded now, at the start, and not on the event loop with the first request

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
        self._url = bare
        words = [word for value in headers.values() for word in value.split()]
        self._secrets = (*headers.values(), *(word for word in words if len(word) > 7), *secrets_in_url(url))
        self._max_retry_after_s = max_retry_after_s
        self._on_status = on_status
        self._clock = clock or SystemClock()
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()

    def at(self, url: str) -> Upstream:
        """Return the same endpoint's other page: same connections, headers and secrets. Closing one closes both."""
        bare, _ = url_parts(url)
        assert bare is not None
        page = copy.copy(self)
        page._url, page.shown = bare, masked_url(url)
        return page

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
        import aiohttp

        if timeout_s <= 0:
            raise ModelError("timeout", "no time left to ask")
        limit = None if math.isinf(timeout_s) else timeout_s
        headers = {**self._headers, **more} if more else self._headers
        if limit is not None:
            headers = {**headers, TIMEOUT_HEADER: str(math.ceil(limit * 1000))}
        method = "GET" if body is None else "POST"
        timeout = aiohttp.ClientTimeout(total=limit)
        try:
            async with self._session().request(
                method, self._url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                content = await response.content.read(LARGEST + 1)
                while len(content) <= LARGEST and (more_content := await response.content.read(LARGEST + 1)):
                    content += more_content
        except TimeoutError:
            raise ModelError("timeout", f"{self.shown} gave no answer within {timeout_s:.3g} s") from None
        except (aiohttp.ClientError, OSError, ssl.SSLError, ValueError) as error:
            raise ModelError(broken(error), self._broken_off(error)) from None  # its context would show the URL
        if len(content) > LARGEST:
            raise ModelError("bad_output", f"{self.shown} answered more than {LARGEST} bytes")
        if not 200 <= response.status < 300:
            raise self._failure(response.status, response.headers, content)
        return response.headers, content

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
        import aiohttp

        headers = {**self._headers, "accept": "text/event-stream"}
        if not math.isinf(timeout_s):
            headers[TIMEOUT_HEADER] = str(math.ceil(timeout_s * 1000))
        began = False
        try:
            async with self._session().post(
                self._url, data=body, headers=headers, timeout=aiohttp.ClientTimeout(total=None), allow_redirects=False
            ) as response:
                began = True
                if not 200 <= response.status < 300:
                    raise self._failure(response.status, response.headers, await response.content.read(LARGEST))
                yield response.headers.get("content-type", "").lower().encode()
                async for data in response.content.iter_any():
                    yield data
        except (aiohttp.ClientError, OSError, ssl.SSLError, ValueError) as error:
            raise ModelError("reset" if began else broken(error), self._broken_off(error)) from None

    async def check(self, timeout_s: float) -> None:
        """Fetch the URL with GET; any 2xx status is good, and what it says is not read.

        Raises:
            ModelError: timeout, connection, or upstream_error for another status.
        """
        import aiohttp

        try:
            async with self._session().get(
                self._url, headers=self._headers, timeout=aiohttp.ClientTimeout(total=timeout_s), allow_redirects=False
            ) as response:
                status = response.status
        except TimeoutError:
            raise ModelError("timeout", f"{self.shown} gave no answer within {timeout_s:.3g} s") from None
        except (aiohttp.ClientError, OSError, ssl.SSLError, ValueError) as error:
            raise ModelError("connection", self._broken_off(error)) from None  # its context would show the URL
        if not 200 <= status < 300:
            kind = "rate_limited" if status == 429 else "upstream_error"
            raise ModelError(kind, f"{self.shown} answered {status}", upstream_status=status)

    def _broken_off(self, error: Exception) -> str:
        """Say where and how a connection failed, without the library's word for a TLS setting that is not in use."""
        told = f"{type(error).__name__}: {error}".replace(" ssl:default", "")
        return f"{self.shown}: {mask(told[:_SHOWN], self._secrets)}"

    def hide(self, reply: Reply) -> Reply:
        """Return the reply; if it is an error, without the secrets an endpoint may have echoed."""
        if not isinstance(reply, ModelError):
            return reply
        told = mask(str(reply), self._secrets)
        return ModelError(reply.kind, told, upstream_status=reply.upstream_status, retry_after_s=reply.retry_after_s)

    async def aclose(self) -> None:
        """Close the connections, of other running event loops too."""
        here = asyncio.get_running_loop()
        for loop, session in list(self._sessions.items()):
            if loop is here:
                await session.close()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(session.close(), loop))
        self._sessions.clear()

    def _session(self) -> aiohttp.ClientSession:
        import aiohttp

        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None or session.closed:
            # aiohttp sets TCP_NODELAY on every connection; how many there may be is the engine's business.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0)
            session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
            self._sessions[loop] = session
        return session

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


def broken(error: Exception) -> str:
    """Return the kind of a connection's failure: `connection` when nothing was sent, `reset` when the request may have
    arrived."""
    import aiohttp

    return "connection" if isinstance(error, aiohttp.ClientConnectorError | ValueError) else "reset"


def failure_of(status: int, content: bytes, message: str, retry_after_s: float | None) -> ModelError:
    """Say what an HTTP status that is not 2xx means.

    | status | kind |
    |---|---|
    | 400, 422 | input_refused, or input_too_large by the code `context_length_exceeded` in the body |
    | 401, 403, 404, 3xx and other 4xx | misconfigured: the operator's fault |
    | 408 | timeout |
    | 409, 425, 5xx | upstream_error |
    | 413 | input_too_large |
    | 429 | rate_limited |
    """
    kind = _KINDS.get(status, "upstream_error" if status >= 500 else "misconfigured")
    if kind == "input_refused" and _TOO_LARGE_CODES & _codes(content):
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


def _codes(content: bytes) -> set[str]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return set()
    if not isinstance(body, dict):
        return set()
    error = body.get("error")
    places = (body, error) if isinstance(error, dict) else (body,)
    return {str(place.get(key)) for place in places for key in ("code", "type")}
