"""Answers given again: a fresh one at once, and one call for equal requests of the same moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from rheostat.cache.answers import Answers, Kept, Question, is_good
from rheostat.cache.flights import Flights
from rheostat.cache.semantic import Near, Semantic
from rheostat.cache.settings import RouteCache
from rheostat.cache.shared import Shared
from rheostat.clock import Clock
from rheostat.engine.ending import Ending
from rheostat.errors import DeadlineExceeded, TooLarge, TooMany
from rheostat.types import Recalled, Request

if TYPE_CHECKING:
    from rheostat.engine.engine import Lane, Served

_log = logging.getLogger("rheostat.cache")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bytes, float, str, str]).decode


class Turn:
    """A request's way past the cache: either an `ending`, or the models are asked. It is left in any case."""

    __slots__ = ("_leave", "ending", "key", "near")

    def __init__(
        self, key: bytes | None, ending: Ending | None = None, leave: Callable[[Served | None], None] | None = None
    ) -> None:
        self.key = key
        self.ending = ending
        self.near: Near | None = None
        self._leave = leave

    def leave(self, served: Served | None) -> None:
        """Say how the request ended (None: not at all), for those that wait for its answer."""
        if self._leave is not None:
            self._leave(served)


class Caching:
    """Gives answers again, for routes with a `cache`. Without a `shared` store this gateway's memory is all there is."""

    def __init__(self, clock: Clock, answers: Answers, shared: Shared | None = None) -> None:
        self.clock = clock
        self.answers = answers
        self.shared = shared
        self.flights: Flights[Served] = Flights()

    async def enter(
        self, settings: RouteCache, question: Question, request: Request, semantic: Semantic | None = None, *, whole: bool
    ) -> Turn:
        """Return the answer to the same question, now or when it comes; else the request's turn to ask the models.

        Only an answer that is wanted `whole`, not piece by piece, waits for that of another request.
        """
        key = question.key(request)
        if key is None:
            return Turn(None)
        found = self.answers.recall(key, self.clock.monotonic(), settings.ttl)
        if found is not None:
            return Turn(key, _again(found))
        leave = None
        if settings.coalesce and whole:
            came = await self.flights.join(key, request.deadline - self.clock.monotonic())
            if came is not None:
                return Turn(key, _with(came))
            if not self.flights.lead(key):
                return Turn(key)
            leave = self._leaving(key)
        if self.shared is not None:
            try:
                found = await self._fetched(self.shared, key, settings)
            except BaseException:
                if leave is not None:
                    leave(None)
                raise
        turn = Turn(key, _again(found) if found is not None else None, leave)
        if semantic is not None and turn.ending is None:
            try:
                await self._look_around(turn, settings, question, request, semantic)
            except BaseException:
                turn.leave(None)
                raise
        return turn

    async def _look_around(
        self, turn: Turn, settings: RouteCache, question: Question, request: Request, semantic: Semantic
    ) -> None:
        """Give the answer to a similar question; an encoder that fails is no hindrance."""
        try:
            near = await asyncio.to_thread(semantic.near, question, request)
        except Exception as error:
            _log.warning("a question could not be compared with others: %s: %s", type(error).__name__, error)
            return
        found = semantic.nearest(near) if near is not None else None
        if near is not None and found is not None:
            key, similarity = found
            kept = self.answers.recall(key, self.clock.monotonic(), settings.ttl)
            if kept is not None:
                turn.ending = _similar(kept, similarity)
            else:
                semantic.forget(near, key)
        turn.near = near

    def keep(self, lane: Lane, request: Request, served: Served, key: bytes | None, near: Near | None = None) -> None:
        """Keep what the models answered to the question of this `key`, if it is good and may be kept."""
        said, record = served.prediction, served.record
        if said is None or record.age_s is not None or request.no_store or not is_good(record):
            return
        entry = self.answers.keep(key, said, record, self.clock.monotonic())
        if near is not None and lane.semantic is not None and entry is not None and key is not None:
            lane.semantic.add(near, key)
        if self.shared is not None and entry is not None and key is not None and lane.cache is not None:
            packed = _encode((entry.answer, self.clock.wall(), entry.model, entry.version))
            self.shared.put(key, packed, lane.cache.ttl)

    async def _fetched(self, shared: Shared, key: bytes, settings: RouteCache) -> Recalled | None:
        """Take over what another gateway has kept."""
        packed = await shared.get(key)
        if packed is None:
            return None
        try:
            answer, wall, model, version = _decode(packed)
            now = self.clock.monotonic()
            self.answers.put(key, Kept(answer, now - max(0.0, self.clock.wall() - wall), model, version))
            return self.answers.recall(key, now, settings.ttl)
        except msgspec.MsgspecError:  # of another version, or damaged
            return None

    def status(self) -> dict[str, object]:
        """Say what is kept, and how the shared store is."""
        answers = self.answers
        found: dict[str, object] = {"entries": len(answers), "bytes": answers.bytes, "evicted": answers.evicted}
        if self.shared is not None:
            found["shared"] = self.shared.status()
        return found

    def _leaving(self, key: bytes) -> Callable[[Served | None], None]:
        def leave(served: Served | None) -> None:
            self.flights.landed(key, served if served is not None and _is_for_all(served) else None)

        return leave


def _again(found: Recalled) -> Ending:
    reason = f"the answer to the same question {found.age_s:.1f} s ago"
    return Ending(prediction=found.prediction, by="cache", reason=reason, recalled=found, cache="hit")


def _similar(found: Recalled, similarity: float) -> Ending:
    reason = f"the answer to a similar question ({similarity:.3f}) {found.age_s:.1f} s ago"
    return Ending(
        prediction=found.prediction, by="cache", reason=reason, recalled=found, cache="semantic-hit", similarity=similarity
    )


def _with(served: Served) -> Ending:
    """The ending of a request that waited for an equal one."""
    record, said, given = served.record, served.prediction, None
    if said is not None:
        given = Recalled(said, record.age_s or 0.0, record.selected_model, record.selected_version)
    return Ending(
        prediction=said,
        error=served.error,
        by="cache",
        reason="the same question was being answered",
        level=record.level,
        fallback_reason=record.fallback_reason,
        missing=record.missing,
        review=record.review,
        guess=record.guess,
        recalled=given,
        stood_in=record.stood_in,
        later=served.later,
        cache="shared",
        similarity=record.similarity,
    )


def _is_for_all(served: Served) -> bool:
    """False for an ending that says something about this one request only: its client left, its own time was over, or its
    budget was used up."""
    record = served.record
    late = isinstance(served.error, DeadlineExceeded | TooMany | TooLarge) or "deadline passed" in record.fallback_reason
    return record.status != "cancelled" and not late
