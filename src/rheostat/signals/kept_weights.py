"""Signals kept for a short time, so that a session's weights neither jump nor are worked out for every request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from rheostat.resilience.holds import short_key
from rheostat.signals.base import AnswerScorer, Scorer
from rheostat.types import Outcome, Request


class Memory:
    """Keep signals per key for `seconds` after they were made, for at most `limit` keys; the oldest go first.

    Time is that of the requests themselves (`Request.received`, monotonic seconds), so there is no clock here. A request
    without an arrival time, as every one in replay has none, or without the key, goes past the memory: a replay scores
    every row afresh and is the same every time. `hits` and `misses` count the requests that came by.
    """

    def __init__(self, seconds: float, limit: int, key: str) -> None:
        self.seconds, self.limit, self.key = seconds, limit, key
        self.hits = self.misses = 0
        self._kept: OrderedDict[str, tuple[float, Mapping[str, float]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def key_of(self, request: Request) -> str | None:
        """Return the key this request is kept under, None when it goes past the memory."""
        if not request.received:
            return None
        if self.key in ("session", "tenant"):
            value = request.session if self.key == "session" else request.tenant
        else:
            value = request.meta.get(self.key)
        return None if value is None or value == "" else short_key(str(value))

    def get(self, key: str, now: float) -> Mapping[str, float] | None:
        """Return what is kept and fresh enough, and count."""
        made, held = self._kept.get(key, (now, None))
        if held is None or not 0.0 <= now - made <= self.seconds:
            self.misses += 1
            return None
        self.hits += 1
        return held

    def put(self, key: str, now: float, signals: Mapping[str, float]) -> None:
        """Keep the signals."""
        self._kept[key] = (now, signals)
        self._kept.move_to_end(key)
        while len(self._kept) > self.limit:
            self._kept.popitem(last=False)


class KeptSignals:
    """A scorer of requests with a memory. What failed is not kept: it raises before."""

    def __init__(self, inner: Scorer, memory: Memory) -> None:
        self.names = inner.names
        self.memory = memory
        self._inner = inner

    def score(self, request: Request) -> Mapping[str, float]:
        """See Scorer."""
        key = self.memory.key_of(request)
        if key is None:
            return self._inner.score(request)
        found = self.memory.get(key, request.received)
        if found is None:
            found = self._inner.score(request)
            self.memory.put(key, request.received, found)
        return found


class KeptAnswerSignals:
    """A scorer of answers with a memory. Signals made while a model had failed are neither kept nor taken from it."""

    def __init__(self, inner: AnswerScorer, memory: Memory) -> None:
        self.names, self.needs = inner.names, inner.needs
        self.memory = memory
        self._inner = inner

    def score(self, request: Request, signals: Mapping[str, float], outcomes: Mapping[str, Outcome]) -> Mapping[str, float]:
        """See AnswerScorer."""
        key = self.memory.key_of(request)
        if key is None or not all(outcome.ok for outcome in outcomes.values()):
            return self._inner.score(request, signals, outcomes)
        found = self.memory.get(key, request.received)
        if found is None:
            found = self._inner.score(request, signals, outcomes)
            self.memory.put(key, request.received, found)
        return found
