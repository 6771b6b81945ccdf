"""Entries to JSON and back: what every store of records shares."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from rheostat.telemetry.base import Entry
from rheostat.telemetry.text import MAX_TEXT, Tamer, is_plain, plain
from rheostat.types import Feedback, RouteRecord

T = TypeVar("T", RouteRecord, Feedback)

_NUMBERS = frozenset({"wall", "cost", "elapsed_s", "overhead_s", "deciding_s", "propensity", "at_s", "started_s"})
_TABLES = frozenset({"scores", "weights", "signals"})
_FOREIGN = frozenset({"meta", "output"})  # not ours to interpret


class Encoded(NamedTuple):
    """One entry as JSON, the entry a reader will get back from it, and whether any of it had to be changed."""

    data: bytes
    entry: Entry
    changed: bool


class EntryEncoder:
    """Turns any entry into one line of JSON that `decode` can read; no entry is refused.

    Args:
        max_text: characters of one text that are kept (the mark after the cut names the full length).
        mask: removes secrets from text; applied to entries that carry an error, the only ones with text of ours in them
            that could hold one.
    """

    def __init__(self, *, max_text: int = MAX_TEXT, mask: Callable[[str], str] | None = None) -> None:
        self._max_text = max_text
        self._mask = mask
        self._encode = msgspec.json.Encoder(enc_hook=plain).encode

    def encode(self, entry: Entry) -> Encoded:
        """Return the entry as JSON; hard characters, long text and objects unknown to JSON are replaced visibly."""
        try:
            data = self._encode(entry)
        except (UnicodeError, TypeError, ValueError, RecursionError, OverflowError):
            return self._tame(entry)
        if not is_plain(data, self._max_text) or (self._mask is not None and _has_error(entry)):
            return self._tame(entry)
        return Encoded(data, entry, False)

    def _tame(self, entry: Entry) -> Encoded:
        tamer = Tamer(self._max_text, self._mask)
        builtin = tamer.value(entry)
        if tamer.changed and isinstance(builtin.get("input"), dict):
            builtin["input"]["changed"] = True
        data = self._encode(builtin)
        try:
            back: Entry = decode(data, RouteRecord) if isinstance(entry, RouteRecord) else decode(data, Feedback)
            return Encoded(data, back, tamer.changed)
        except msgspec.ValidationError as error:
            stump = _stump(entry, str(error), tamer)
            return Encoded(self._encode(stump), stump, True)


def decode(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Read one entry back.

    A number that JSON cannot carry (NaN, infinity) was written as null and comes back as NaN.

    Raises:
        msgspec.DecodeError: the data is no JSON, or (ValidationError) not an entry of this kind.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        return msgspec.convert(_with_nan(msgspec.json.decode(data)), kind)


def _with_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_nan(item) for item in value]
    if not isinstance(value, dict):
        return value
    done: dict[str, Any] = {}
    for key, item in value.items():
        if key in _NUMBERS and item is None:
            done[key] = math.nan
        elif key in _TABLES and isinstance(item, dict):
            done[key] = {name: math.nan if number is None else number for name, number in item.items()}
        else:
            done[key] = item if key in _FOREIGN else _with_nan(item)
    return done


def _has_error(entry: Entry) -> bool:
    if not isinstance(entry, RouteRecord):
        return False
    if entry.error is not None or entry.level or entry.fallback_reason:
        return True
    return any(
        outcome.failure is not None or len(outcome.attempts) > 1 for outcome in entry.outcomes
    )  # a retry hides a failure in its first attempt


def _stump(entry: Entry, why: str, tamer: Tamer) -> Entry:
    """What is left of an entry whose fields are of the wrong kinds: enough to find it and to see that it was hurt."""
    if isinstance(entry, Feedback):
        return Feedback(request_id=tamer.text(str(entry.request_id)), wall=_finite(entry.wall), source="unreadable")
    return structs.replace(
        RouteRecord(id="", wall=0.0, route="", status=""),
        id=tamer.text(str(entry.id)),
        wall=_finite(entry.wall),
        route=tamer.text(str(entry.route)),
        status=tamer.text(str(entry.status)),
        elapsed_s=_finite(entry.elapsed_s),
        error=f"this record could not be stored whole: {why}",
        error_type="unstorable_record",
    )


def _finite(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) else 0.0
