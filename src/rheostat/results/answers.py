"""The last good answers: what the fallback ladder gives when no model can be asked (L4)."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import msgspec
import xxhash
from msgspec import Struct

from rheostat.types import Prediction, Recalled, Request, RouteRecord

ENTRY_BYTES = 450
"""Memory of one entry besides its answer, rounded up: key, place in the order, and the fields beside the answer."""
_LARGEST = 16  # an answer larger than this part of the room is not kept: it would drive out too many others
_TRACE = "traceparent"  # differs with every request and changes no answer

# Not JSON: it would write NaN as null, and a text that JSON made of an object like that text itself.
_encode = msgspec.msgpack.Encoder(order="sorted").encode
_decode = msgspec.msgpack.Decoder(Prediction).decode
_REFUSALS = (TypeError, ValueError, OverflowError, RecursionError)


class Question(Struct, frozen=True, kw_only=True):
    """What makes two requests of one route the same question: tenant, data, cost limit, and what the policy reads.

    `salt` names the route with the versions of its policy and models, so that an answer of another version is none.
    `meta` and `headers` name the fields that count (None: all), `session` says whether the session counts.
    """

    salt: str
    meta: tuple[str, ...] | None = None
    headers: tuple[str, ...] | None = ()
    session: bool = True

    def key(self, request: Request) -> bytes | None:
        """Return 16 bytes, or None for a request that holds what cannot be written down."""
        meta, headers = request.meta, request.headers
        try:
            parts = (
                self.salt,
                request.tenant,
                request.data,
                {name: value for name, value in meta.items() if name != _TRACE}
                if self.meta is None
                else [meta.get(name) for name in self.meta],
                dict(headers) if self.headers is None else [headers.get(name) for name in self.headers],
                request.session if self.session else None,
                request.max_cost,
            )
            return xxhash.xxh3_128_digest(_encode(parts))
        except _REFUSALS:
            return None


class _Kept(NamedTuple):
    answer: bytes
    at: float
    model: str
    version: str
    config_version: str


def is_good(record: RouteRecord) -> bool:
    """Return whether a request's answer may be given again: whole, by the route's own decision, and sure enough."""
    return record.status == "ok" and not (record.level > 2 or record.missing or record.review or record.forced)


class Answers:
    """Keeps at most `entries` answers in about `max_bytes` bytes; the least recently used go first.

    Answers older than `max_age_s` seconds are not given. An answer is kept as bytes, so that nobody changes it afterwards.
    """

    def __init__(self, entries: int, max_bytes: int, max_age_s: float) -> None:
        if entries < 1 or max_bytes < 1:
            raise ValueError(f"`entries` and `max_bytes` must be 1 or more, got {entries} and {max_bytes}")
        self.entries = entries
        self.max_bytes = max_bytes
        self.max_age_s = max_age_s
        self.bytes = 0
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, key: bytes | None, prediction: Prediction, record: RouteRecord, now: float) -> None:
        """Keep the answer of a request whose record is good (`is_good`), in place of an earlier one."""
        if key is None:
            return
        try:
            answer = _encode(prediction)
        except _REFUSALS:  # nothing that could be given back as it is
            return
        kept = self._kept
        before = kept.get(key)
        if before is not None:
            self.bytes -= ENTRY_BYTES + len(before.answer)
        if (ENTRY_BYTES + len(answer)) * _LARGEST > self.max_bytes:
            kept.pop(key, None)
            return
        kept[key] = _Kept(answer, now, record.selected_model, record.selected_version, record.config_version)
        if before is not None:
            kept.move_to_end(key)
        self.bytes += ENTRY_BYTES + len(answer)
        while self.bytes > self.max_bytes or len(kept) > self.entries:
            _, oldest = kept.popitem(last=False)
            self.bytes -= ENTRY_BYTES + len(oldest.answer)

    def recall(self, key: bytes | None, now: float) -> Recalled | None:
        """Return the answer kept under `key`, or None when there is none or it is too old."""
        found = self._kept.get(key) if key is not None else None
        if key is None or found is None:
            return None
        age_s = max(0.0, now - found.at)
        if age_s > self.max_age_s:
            del self._kept[key]
            self.bytes -= ENTRY_BYTES + len(found.answer)
            return None
        self._kept.move_to_end(key)
        return Recalled(_decode(found.answer), age_s, found.model, found.version)
