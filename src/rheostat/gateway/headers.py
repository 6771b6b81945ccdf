"""What the gateway reads from a request's headers, and what it shows of them to rules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import uuid_utils

from rheostat.errors import BadRequest, TooLarge, UnsupportedType
from rheostat.types.priority import RANKS, Priority, lower_of

RawHeaders = Iterable[tuple[bytes, bytes]]
"""Names in lower case with their values, as ASGI gives them."""

WANTED = frozenset(
    (
        b"authorization", b"cache-control", b"content-encoding", b"content-length", b"content-type",
        b"inference-header-content-length", b"traceparent", b"x-api-key", b"x-request-id", b"x-rheostat-priority",
        b"x-rheostat-session", b"x-rheostat-timeout-ms",
    )
)  # fmt: skip
"""The headers that change what the gateway does."""

MAX_SESSION = 256
MAX_ID = 80
"""Characters of a request id; a client's own has at most 64, a row of a list adds its number."""
_HIDDEN = frozenset(("authorization", "proxy-authorization", "x-api-key", "cookie"))
_OWN = "x-rheostat-"
_SANE_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,64}")
_TRACE = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_JSON_TYPE = re.compile(rb'application/json(?:\s*;\s*charset\s*=\s*"?(?:utf-8|utf8)"?)?\s*;?', re.IGNORECASE)


def read_headers(raw: RawHeaders) -> dict[bytes, bytes]:
    """Return the headers in `WANTED` that are there.

    Raises:
        BadRequest: one of them is given twice with different values; nobody can say which one counts.
    """
    found: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in WANTED:
            if name in found and found[name] != value:
                shown = name.decode()
                raise BadRequest(f"the header {shown} is given twice with different values; send it once", shown)
            found[name] = value
    return found


def request_id(found: Mapping[bytes, bytes]) -> str:
    """Return the client's `x-request-id` if it is sane (up to 64 letters, digits and `._:-`), else a new UUID version 7."""
    given = found.get(b"x-request-id")
    if given is not None and _SANE_ID.fullmatch(given):
        return given.decode()
    return str(uuid_utils.uuid7())


def check_body_headers(found: Mapping[bytes, bytes], limit: int, also: bytes = b"") -> None:
    """Hold the headers that describe the body to what the gateway reads: at most `limit` bytes of plain JSON in UTF-8, or of
    the content type `also`.

    Raises:
        TooLarge: the declared length is over the limit.
        UnsupportedType: another content type, or a compressed body.
    """
    declared = found.get(b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise too_large(limit)
    kind = found.get(b"content-type")
    if kind and kind not in (b"application/json", also) and not _JSON_TYPE.fullmatch(kind.strip()):
        raise UnsupportedType("the content type must be application/json (in UTF-8)", "content-type")
    coding = found.get(b"content-encoding")
    if coding is not None and coding.strip().lower() not in (b"", b"identity"):
        raise UnsupportedType("compressed bodies are not read; send the JSON as it is", "content-encoding")


def too_large(limit: int) -> TooLarge:
    """Return the error for a body over the limit."""
    return TooLarge(f"the body is too large: the limit is {limit} bytes")


def session_of(found: Mapping[bytes, bytes], meta: Mapping[str, Any]) -> str | None:
    """Return the session key: the header `x-rheostat-session` if there is one, else `meta.session`.

    Raises:
        BadRequest: it is neither text nor a whole number, or longer than 256 characters.
    """
    given = found.get(b"x-rheostat-session")
    if given is not None:
        session, param = given.decode("utf-8", "replace"), "x-rheostat-session"
    else:
        value = meta.get("session")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise BadRequest("a session is named by a text or a whole number", "meta.session")
        session, param = str(value), "meta.session"
    if len(session) > MAX_SESSION:
        raise BadRequest(f"a session's name has at most {MAX_SESSION} characters, this one has {len(session)}", param)
    return session or None


def traced(found: Mapping[bytes, bytes], meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `meta` with the trace that the request belongs to (W3C `traceparent`), unless it names one itself."""
    given = found.get(b"traceparent")
    if given is None or "traceparent" in meta or not _TRACE.fullmatch(given):
        return meta
    return {**meta, "traceparent": given.decode()}


def timeout_s(found: Mapping[bytes, bytes], option_ms: float | None) -> float | None:
    """Return the client's time limit in seconds: the smaller of the header and `route.timeout_ms`; None without one.

    Raises:
        BadRequest: a limit is not a positive number of milliseconds.
    """
    given = found.get(b"x-rheostat-timeout-ms")
    if given is None and option_ms is None:
        return None
    limits = []
    if option_ms is not None:
        limits.append(_positive(option_ms, "route.timeout_ms"))
    if given is not None:
        try:
            number = float(given)
        except ValueError:
            number = math.nan
        limits.append(_positive(number, "x-rheostat-timeout-ms"))
    return min(limits) / 1000.0


def priority_of(found: Mapping[bytes, bytes], allowed: Priority) -> Priority:
    """Return how urgent the request is: what `x-rheostat-priority` says, but no more than its key is allowed.

    Raises:
        BadRequest: the header is none of high, normal and low.
    """
    given = found.get(b"x-rheostat-priority")
    if given is None:
        return allowed
    name = given.decode("latin-1").strip().lower()
    for asked in RANKS:
        if name == asked:
            return lower_of(asked, allowed)
    raise BadRequest(f"a priority is one of {', '.join(RANKS)}", "x-rheostat-priority")


def cache_words(found: Mapping[bytes, bytes]) -> tuple[bool, bool]:
    """Return whether `cache-control` says no-cache (no earlier answer is given), and whether it says no-store (neither that,
    nor is this answer kept)."""
    given = found.get(b"cache-control")
    if given is None:
        return False, False
    words = [word.strip() for word in given.lower().split(b",")]
    no_store = b"no-store" in words
    return no_store or b"no-cache" in words, no_store


def cost_limit(given: float | None) -> float | None:
    """Return `route.max_cost`, what the calls of a request may cost together.

    Raises:
        BadRequest: it is not a number above 0.
    """
    if given is not None and not (math.isfinite(given) and given > 0):
        raise BadRequest("max_cost is a number above 0, in the unit of the models' costs", "route.max_cost")
    return given


def _positive(value: float, param: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise BadRequest("a timeout is a positive number of milliseconds", param)
    return value


class ShownHeaders(Mapping[str, str]):
    """The client's headers as a rule's condition reads them: lower-case names, decoded when somebody looks.

    Credentials, cookies and `x-rheostat-*` are left out; a name that is given more than once keeps its first value.
    """

    __slots__ = ("_raw", "_read")

    def __init__(self, raw: RawHeaders) -> None:
        self._raw = raw
        self._read: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._read is None:
            shown: dict[str, str] = {}
            for raw_name, value in self._raw:
                name = raw_name.decode("latin-1").lower()
                if name not in _HIDDEN and not name.startswith(_OWN):
                    shown.setdefault(name, value.decode("utf-8", "replace"))
            self._read = shown
        return self._read

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
