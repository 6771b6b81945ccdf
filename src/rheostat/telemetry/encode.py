"""Entries to JSON and back: what every store of records shares."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec import Struct, structs

from rheostat.telemetry.base import Entry, Sink
from rheostat.telemetry.lane import Waiting
from rheostat.telemetry.text import MAX_TEXT, Tamer, escape_invisible, is_plain, plain
from rheostat.types import Feedback, RouteRecord

T = TypeVar("T", RouteRecord, Feedback)

_NUMBERS = frozenset({"wall", "cost", "elapsed_s", "overhead_s", "deciding_s", "propensity", "at_s", "started_s"})
_TABLES = frozenset({"scores", "weights", "signals"})
_FOREIGN = frozenset({"meta", "output"})  # not ours to interpret
_AT_A_TIME = 128  # more would hold the interpreter from the event loop for longer than a millisecond
_REFUSALS = (UnicodeError, TypeError, ValueError, RecursionError, OverflowError)


class Encoded(Struct, frozen=True, eq=False, gc=False):
    """One entry as JSON, the entry a reader will get back from it, and whether any of it had to be changed."""

    data: bytes
    entry: Entry
    changed: bool


class Draft(Waiting):
    """An entry on its way to the stores; whichever store comes first encodes it, for all of them."""

    entry: Entry
    encoded: Encoded | None = None


@runtime_checkable
class EncodedSink(Sink, Protocol):
    """A store of JSON: it takes entries that are already encoded, as its own `encoder` would do it."""

    encoder: EntryEncoder

    def write_encoded(self, batch: Sequence[Encoded]) -> None:
        """Store them; the promises are those of `write`."""


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
        encoder = msgspec.json.Encoder(enc_hook=plain)
        self._encode = encoder.encode
        self._encode_lines = encoder.encode_lines

    def encode(self, entry: Entry) -> Encoded:
        """Return the entry as JSON; hard characters, long text and objects unknown to JSON are replaced visibly."""
        try:
            data = self._encode(entry)
        except _REFUSALS:
            return self._tame(entry)
        if not is_plain(data, self._max_text) or (self._mask is not None and _has_error(entry)):
            return self._tame(entry)
        return Encoded(escape_invisible(data), entry, False)

    def encode_all(self, drafts: Sequence[Draft]) -> list[Encoded]:
        """Return the drafts encoded; what another thread has encoded already is taken as it is."""
        for start in range(0, len(drafts), _AT_A_TIME):
            new = [draft for draft in drafts[start : start + _AT_A_TIME] if draft.encoded is None]
            if new:
                self._fill(new)
                time.sleep(0)  # the event loop may be waiting for the interpreter
        return [draft.encoded for draft in drafts if draft.encoded is not None]

    def agrees_with(self, other: EntryEncoder) -> bool:
        """Return whether both make the same JSON of every entry."""
        return (self._max_text, self._mask) == (other._max_text, other._mask)

    def _fill(self, drafts: list[Draft]) -> None:
        """Encode them at once and look for hard characters in all of them at once: a third of the cost of one by one."""
        limit, masked = self._max_text, self._mask is not None
        try:
            lines = self._encode_lines([draft.entry for draft in drafts])
            quick = is_plain(lines, limit * len(drafts), ascii_only=True)
        except _REFUSALS:
            quick = False
        if not quick:
            for draft in drafts:
                draft.encoded = self.encode(draft.entry)
            return
        for draft, data in zip(drafts, lines.removesuffix(b"\n").split(b"\n"), strict=True):
            entry = draft.entry
            if len(data) > limit or (masked and _has_error(entry)):
                draft.encoded = self._tame(entry)
            else:
                draft.encoded = Encoded(data, entry, False)

    def _tame(self, entry: Entry) -> Encoded:
        tamer = Tamer(self._max_text, self._mask)
        builtin = tamer.value(entry)
        if tamer.changed and isinstance(builtin.get("input"), dict):
            builtin["input"]["changed"] = True
        data = escape_invisible(self._encode(builtin))
        try:
            back: Entry = decode(data, RouteRecord) if isinstance(entry, RouteRecord) else decode(data, Feedback)
            return Encoded(data, back, tamer.changed)
        except msgspec.ValidationError as error:
            stump = _stump(entry, str(error), tamer)
            return Encoded(escape_invisible(self._encode(stump)), stump, True)


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
    for outcome in entry.outcomes:
        failure = outcome.failure
        own = failure is None or failure.kind == "cancelled"  # then its text is ours
        if not own or len(outcome.attempts) > 1:  # a retry hides a failure in its first attempt
            return True
    return False


def _stump(entry: Entry, why: str, tamer: Tamer) -> Entry:
    """What is left of an entry whose fields are of the wrong kinds: enough to find it and to see that it was hurt."""
    if isinstance(entry, Feedback):
        return Feedback(request_id=tamer.text(str(entry.request_id)), wall=finite(entry.wall), source="unreadable")
    return structs.replace(
        RouteRecord(id="", wall=0.0, route="", status=""),
        id=tamer.text(str(entry.id)),
        wall=finite(entry.wall),
        route=tamer.text(str(entry.route)),
        status=tamer.text(str(entry.status)),
        elapsed_s=finite(entry.elapsed_s),
        error=f"this record could not be stored whole: {why}",
        error_type="unstorable_record",
    )


def finite(value: Any) -> float:
    """Return `value` as a finite number, and 0 for what is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) else 0.0
