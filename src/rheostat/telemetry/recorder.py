"""Where the request path leaves its records: never waiting, whatever the stores do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from sys import getsizeof
from typing import Any

import msgspec
from msgspec import Struct

from rheostat.clock import Clock
from rheostat.telemetry.base import Entry, Sink
from rheostat.telemetry.encode import Draft, EncodedSink, EntryEncoder
from rheostat.telemetry.lane import Lane, SinkStats
from rheostat.telemetry.text import MAX_TEXT, plain
from rheostat.types import RouteRecord

_MAX_BATCH = 2_000
_RECORD_BYTES = 2_700  # a record without its texts, and its JSON, measured
_OUTCOME_BYTES = 1_300
_FEEDBACK_BYTES = 500
_SHORT = 200  # characters of a text that those figures have room for
_FEW = 4  # fields of meta that they have room for
_SMALL = frozenset({int, float, bool, type(None)})
_FLAT = 32  # parts of a table up to which each is looked at
_MEMORY_PER_BYTE = 4  # memory of nested objects for each byte of their JSON, roughly
_UNKNOWN_BYTES = 64 * 1024  # for what has no JSON


class RecorderStats(Struct, frozen=True):
    """How the recorder is doing, in all and by sink."""

    queued: int
    written: int
    dropped: dict[str, int]
    sinks: tuple[SinkStats, ...]


class Recorder:
    """Hands entries to sinks from background threads, one a sink, so that a slow sink holds up nobody.

    An entry is encoded once for all sinks that store JSON and have the same settings (the same `mask`, the same `max_text`).

    Args:
        sinks: where entries go; each gets all of them, in order.
        max_entries: entries that may wait for one sink, besides the batch (2,000 at most) that it is writing; the next is
            dropped and counted.
        max_bytes: estimated memory in bytes of what may wait for one sink, its JSON included. 20,000 records of two
            models' answers take about 100 MB. What waits for two sinks is in memory once.
        flush_s: longest time in seconds that an entry waits before it is written.
        mask: removes secrets from the error texts that are logged and shown.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        *,
        max_entries: int = 20_000,
        max_bytes: int = 128 * 1024 * 1024,
        flush_s: float = 0.2,
        clock: Clock | None = None,
        mask: Callable[[str], str] | None = None,
    ) -> None:
        self._lanes: list[Lane[Draft]] = []
        encoders: list[EntryEncoder] = []
        for name, sink in _named(sinks):
            self._lanes.append(
                Lane(
                    name,
                    _writer(sink, encoders),
                    sink.close,
                    max_entries=max_entries,
                    max_bytes=max_bytes,
                    flush_s=flush_s,
                    max_batch=_MAX_BATCH,
                    clock=clock,
                    mask=mask,
                )
            )
        self._puts = tuple(lane.put for lane in self._lanes)

    def put(self, entry: Entry) -> None:
        """Leave an entry to be stored. Never waits and never raises; without room it is dropped and counted."""
        if not self._puts:
            return
        draft = Draft(_size(entry), entry)
        for put in self._puts:
            put(draft)

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything put before is written or dropped; False when that took more than `timeout_s` seconds."""
        end = time.monotonic() + timeout_s
        markers = [lane.mark() for lane in self._lanes]
        return all(marker.wait(max(0.0, end - time.monotonic())) for marker in markers)

    def stats(self) -> RecorderStats:
        """Return what is queued, written and dropped."""
        sinks = tuple(lane.stats() for lane in self._lanes)
        dropped: dict[str, int] = {}
        for sink in sinks:
            for reason, count in sink.dropped.items():
                dropped[reason] = dropped.get(reason, 0) + count
        return RecorderStats(
            queued=sum(sink.queued for sink in sinks),
            written=sum(sink.written for sink in sinks),
            dropped=dropped,
            sinks=sinks,
        )

    def close(self, timeout_s: float = 5.0) -> int:
        """Write what is queued, close the sinks, and return how many entries could not be written in `timeout_s` seconds.

        Everything is written in batches as large as they get, without pauses; a full queue takes a good second on a busy
        machine, longer where the store is slow, and `timeout_s` alone decides when to give up.
        It waits; an event loop calls it in a thread. Entries put afterwards are dropped and counted as `closed`.
        """
        end = time.monotonic() + timeout_s
        for lane in self._lanes:
            lane.shut()
        return sum(lane.join(end - time.monotonic()) for lane in self._lanes)


def _named(sinks: Sequence[Sink]) -> list[tuple[str, Sink]]:
    """Name sinks after their class: jsonl, sqlite; a second of its kind becomes jsonl-2."""
    named: list[tuple[str, Sink]] = []
    seen: dict[str, int] = {}
    for sink in sinks:
        base = type(sink).__name__.removesuffix("Sink").lower() or "sink"
        seen[base] = seen.get(base, 0) + 1
        named.append((base if seen[base] == 1 else f"{base}-{seen[base]}", sink))
    return named


def _writer(sink: Sink, encoders: list[EntryEncoder]) -> Callable[[Sequence[Draft]], None]:
    """Return how drafts reach the sink. What a draft remembers is the JSON of the first encoder; a store with other settings
    makes its own."""
    if isinstance(sink, EncodedSink):
        encoder = sink.encoder
        encoders.append(encoder)
        if encoder.agrees_with(encoders[0]):
            encode_all, write_encoded = encoder.encode_all, sink.write_encoded
            return lambda drafts: write_encoded(encode_all(drafts))
    write = sink.write
    return lambda drafts: write([draft.entry for draft in drafts])


def _size(entry: Entry) -> int:
    """Estimate the memory an entry holds: the texts that can be long are measured, the rest is a constant."""
    if not isinstance(entry, RouteRecord):
        return _FEEDBACK_BYTES
    size = _RECORD_BYTES
    meta = entry.meta
    if type(meta) is dict and len(meta) <= _FEW:
        for part in meta.values():
            kind = type(part)
            if not (kind in _SMALL or (kind is str and len(part) <= _SHORT)):
                size += _held(meta)
                break
    elif meta:
        size += _held(meta)
    for outcome in entry.outcomes:
        size += _OUTCOME_BYTES
        prediction = outcome.prediction
        if prediction is not None:
            output = prediction.output
            if output is not None and (type(output) is not str or len(output) > _SHORT):
                size += _held(output)
    source = entry.input
    if source is not None and source.text is not None:
        size += _held(source.text)
    return size


def _held(value: Any) -> int:
    """Estimate the memory of a value from outside: texts and flat tables are measured, anything else by its JSON."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict) and len(value) <= _FLAT:
        size = getsizeof(value)
        for part in value.values():
            if isinstance(part, str):
                size += _text(part)
            elif isinstance(part, dict | list):
                break
        else:
            return size
    elif value is None or isinstance(value, int | float):
        return 0
    try:
        return (_MEMORY_PER_BYTE + 1) * len(msgspec.json.encode(value, enc_hook=plain))
    except (UnicodeError, TypeError, ValueError, RecursionError, OverflowError):
        return _UNKNOWN_BYTES


def _text(text: str) -> int:
    """Estimate the memory of a text and of its JSON, which is cut where it gets too long."""
    return getsizeof(text) + min(len(text), MAX_TEXT)
