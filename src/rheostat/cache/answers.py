"""Good answers, kept in memory: given again while they are fresh, and on L4 of the ladder when no model can be asked."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec import Struct

from rheostat.types import Chat, Prediction, Recalled, Request, RouteRecord

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
    `meta` and `headers` name the fields that count (None: all), `session` and `tenant` say whether these count.
    """

    salt: str
    tenant: bool = True
    meta: tuple[str, ...] | None = None
    headers: tuple[str, ...] | None = ()
    session: bool = True

    def key(self, request: Request) -> bytes | None:
        """Return 16 bytes, or None for a request that holds what cannot be written down."""
        meta, headers = request.meta, request.headers
        try:
            parts = (
                self.salt,
                request.tenant if self.tenant else None,
                request.data.question if isinstance(request.data, Chat) else request.data,
                {name: value for name, value in meta.items() if name != _TRACE}
                if self.meta is None
                else [meta.get(name) for name in self.meta],
                dict(headers) if self.headers is None else [headers.get(name) for name in self.headers],
                request.session if self.session else None,
                request.max_cost,
            )
            return blake2b(_encode(parts), digest_size=16).digest()  # nobody can make two questions of one key
        except _REFUSALS:
            return None


class Kept(NamedTuple):
    """An answer as it is kept: `at` is the monotonic time when it was given."""

    answer: bytes
    at: float
    model: str
    version: str


def is_good(record: RouteRecord) -> bool:
    """Return whether a request's answer may be given again: whole, by the route's own decision, and sure enough."""
    if record.status != "ok" or record.level > 2 or record.missing or record.review or record.forced:
        return False
    return not any(outcome.prediction is not None and outcome.prediction.spoilt for outcome in record.outcomes)


class Answers:
    """Keeps at most `entries` answers in about `max_bytes` bytes; the least recently used go first.

    `max_age_s` is how old an answer may be that L4 gives. An answer is kept as bytes, so that nobody changes it afterwards.
    """

    def __init__(self, entries: int, max_bytes: int, max_age_s: float) -> None:
        if entries < 1 or max_bytes < 1:
            raise ValueError(f"`entries` and `max_bytes` must be 1 or more, got {entries} and {max_bytes}")
        self.entries = entries
        self.max_bytes = max_bytes
        self.max_age_s = max_age_s
        self.bytes = 0
        self.evicted = 0
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, key: bytes | None, prediction: Prediction, record: RouteRecord, now: float) -> Kept | None:
        """Keep the answer of a request whose record is good (`is_good`), in place of an earlier one; None: it cannot be."""
        if key is None:
            return None
        try:
            answer = _encode(prediction)
        except _REFUSALS:  # nothing that could be given back as it is
            return None
        entry = Kept(answer, now, record.selected_model, record.selected_version)
        return entry if self.put(key, entry) else None

    def put(self, key: bytes, entry: Kept) -> bool:
        """Keep `entry` in place of an earlier one; False when it is too large, and then the earlier one goes as well."""
        kept = self._kept
        size = ENTRY_BYTES + len(entry.answer)
        before = kept.pop(key, None)
        if before is not None:
            self.bytes -= ENTRY_BYTES + len(before.answer)
        if size * _LARGEST > self.max_bytes:
            return False
        kept[key] = entry
        self.bytes += size
        while self.bytes > self.max_bytes or len(kept) > self.entries:
            _, oldest = kept.popitem(last=False)
            self.bytes -= ENTRY_BYTES + len(oldest.answer)
            self.evicted += 1
        return True

    def recall(self, key: bytes | None, now: float, within_s: float | None = None) -> Recalled | None:
        """Return the answer kept under `key` if it is no older than `within_s` seconds (None: `max_age_s`)."""
        found = self._kept.get(key) if key is not None else None
        if key is None or found is None:
            return None
        age_s = max(0.0, now - found.at)
        if within_s is not None and age_s > within_s:
            return None
        if within_s is None and age_s > self.max_age_s:
            del self._kept[key]
            self.bytes -= ENTRY_BYTES + len(found.answer)
            return None
        self._kept.move_to_end(key)
        return Recalled(_decode(found.answer), age_s, found.model, found.version)
