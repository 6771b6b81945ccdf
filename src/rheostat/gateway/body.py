"""The body of a request, parsed once, with an answer for everything that can be wrong with it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from rheostat.errors import BadRequest
from rheostat.gateway.headers import too_large

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
MAX_DEPTH = 64
"""Levels of nesting that a body may have."""


class RouteOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Which way to go: a route's name, a time limit in milliseconds, what the calls may cost together; a model by hand
    for callers who may. With `stream` the answer comes as server-sent events."""

    name: str = "default"
    force_model: str | None = None
    skip_route: bool = False
    timeout_ms: float | None = None
    max_cost: float | None = None
    stream: bool = False


class Item(Struct, frozen=True, forbid_unknown_fields=True):
    """One row: `data` is a text or an object of features; `text` is short for a `data` that is a text."""

    data: Any = UNSET
    text: str | UnsetType = UNSET
    meta: dict[str, Any] = {}

    def row(self) -> Any:
        """Return what the models get.

        Raises:
            BadRequest: there is no row, or two, or it is neither a text nor an object.
        """
        return row_of(self.data, self.text)


class PredictBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What `/v1/predict` takes: one row (`data` or `text`, with `meta`), or `items` with one row each."""

    data: Any = UNSET
    text: str | UnsetType = UNSET
    meta: dict[str, Any] = {}
    route: RouteOptions = RouteOptions()
    items: list[Any] | UnsetType = UNSET


class FeedbackBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A later judgement: the right `label`, a `reward`, or both, for the answer with this `request_id`."""

    request_id: str
    label: str | None = None
    reward: float | None = None
    source: str = ""


T = TypeVar("T", PredictBody, FeedbackBody)
_decoders: Mapping[type, Any] = {kind: msgspec.json.Decoder(kind) for kind in (PredictBody, FeedbackBody)}
_names: Mapping[str, tuple[str, ...]] = {
    "": PredictBody.__struct_fields__,
    "route": RouteOptions.__struct_fields__,
    "item": Item.__struct_fields__,
    "feedback": FeedbackBody.__struct_fields__,
}
_OPTIONS = tuple(f'"{name}"'.encode() for name in RouteOptions.__struct_fields__)
_NESTING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def row_of(data: Any, text: str | UnsetType) -> Any:
    """Return the row that `data` and `text` give; see `Item.row`."""
    if type(data) is str or type(data) is dict:
        if text is not UNSET:
            raise BadRequest("give either data or text, not both", "text")
        return data
    if data is UNSET:
        if text is UNSET:
            raise BadRequest("there is nothing to predict: give `data` (a text or an object of features)", "data")
        return text
    hint = '; several rows go in `items`, as [{"data": ...}, ...]' if isinstance(data, list) else ""
    raise BadRequest(f"data must be a text or an object of features, not {_kind(data)}{hint}", "data")


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """Return the whole body, or None when the client left before its end.

    Raises:
        TooLarge: it has more than `limit` bytes; the rest is not read.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise too_large(limit)
        if not message.get("more_body"):
            return b"".join((*parts, part)) if parts else part
        parts.append(part)


def parse(body: bytes, kind: type[T]) -> T:
    """Decode a body.

    Raises:
        BadRequest: with the reason, the place, and the nearest name for a key that does not exist.
    """
    count = body.count
    if (
        kind is not PredictBody or count(b'"data"') > 1 or count(b'"meta"') > 1 or count(b'"text"') > 1
        or b'"items"' in body or b"\\u00" in body or count(b"{") + count(b"[") > MAX_DEPTH
        or (b'"route"' in body and (count(b'"route"') > 1 or any(count(name) > 1 for name in _OPTIONS)))
    ):  # fmt: skip
        _look_closely(body)
    try:
        return _decoders[kind].decode(body)  # type: ignore[no-any-return]
    except RecursionError:
        raise _too_deep() from None
    except msgspec.ValidationError as error:
        raise explained(error, "" if kind is PredictBody else "feedback") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _HALF.search(body):
            return _with_half_characters(body, kind)
        raise malformed(body, error) from None


def item_of(value: Any, index: int) -> Item:
    """Read one of `items`.

    Raises:
        BadRequest: it is no row.
    """
    try:
        return msgspec.convert(value, Item)
    except msgspec.ValidationError as error:
        wrong = explained(error, "item")
        raise BadRequest(str(wrong), f"items[{index}]" + (f".{wrong.param}" if wrong.param else "")) from None


def explained(error: msgspec.ValidationError, at: str) -> BadRequest:
    """Turn a validation error into one that names the field, and the nearest key for an unknown one."""
    message = str(error)
    place = _PLACE.search(message)
    where = place[1] if place else ""
    message = _PLACE.sub("", message)
    unknown = _UNKNOWN.match(message)
    if unknown is None:
        return BadRequest(message[:1].lower() + message[1:].replace("`", ""), where or None)
    key = unknown[1]
    names = _names.get(where or at, ())
    near = difflib.get_close_matches(key, names, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(names)}"
    return BadRequest(f"unknown key {key[:80]!r}; {hint}", f"{where}.{key[:80]}" if where else key[:80])


def _look_closely(body: bytes) -> None:
    """Refuse what the decoder would take silently: a key that is given twice, and nesting without end.

    Looked for at the top, in `route`, and in each item; inside `data` and `meta` the last value of a key counts.
    """
    depth = 0
    for match in _NESTING.finditer(body):
        sign = body[match.start()]
        if sign in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep()
        elif sign in b"]}":
            depth -= 1
    try:
        top = json.loads(body, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return  # the decoder says what is wrong
    if not isinstance(top, _Pairs):
        return
    _once(top.pairs, "")
    for name, value in top.pairs:
        if name == "route" and isinstance(value, _Pairs):
            _once(value.pairs, "route.")
        elif name == "items" and isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, _Pairs):
                    _once(item.pairs, f"items[{index}].")


class _Pairs:
    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def _once(pairs: Iterable[tuple[str, Any]], at: str) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise BadRequest(f"the key {name[:80]!r} is given twice; which one counts?", f"{at}{name[:80]}")
        seen.add(name)


def _with_half_characters(body: bytes, kind: type[T]) -> T:
    """Decode a body whose texts hold halves of surrogate pairs, which JSON can write and the quick decoder refuses."""
    _look_closely(body)
    try:
        return msgspec.convert(json.loads(body, parse_constant=_no_constant), kind)
    except msgspec.ValidationError as error:
        raise explained(error, "" if kind is PredictBody else "feedback") from None
    except (ValueError, RecursionError) as error:
        raise malformed(body, error) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def malformed(body: bytes, error: Exception) -> BadRequest:
    """Return the error for a body that is no JSON, with the reason and the place."""
    if not body.strip():
        return BadRequest("the body is empty; send a JSON object")
    if body.startswith(b"\xef\xbb\xbf"):
        return BadRequest("the body starts with a byte order mark; send the JSON without it (byte 0)")
    try:
        body.decode()
    except UnicodeDecodeError as wrong:
        return BadRequest(f"the body is not UTF-8 (byte {wrong.start})")
    message = str(error)
    if "truncated" in message:
        return BadRequest(f"the JSON ends too early (byte {len(body)})")
    return BadRequest(message[:1].lower() + message[1:] if not message.startswith("JSON") else f"the {message}")


def _too_deep() -> BadRequest:
    return BadRequest(f"the JSON is nested too deep: the limit is {MAX_DEPTH} levels")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), type(value).__name__)
