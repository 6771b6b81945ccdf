"""What stands between a router and the conversations it keeps: what was said before goes in front of a request, its answer
behind it."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from rheostat.engine.engine import Served
from rheostat.errors import Conflict, NotFound, RheostatError, SessionsAway, StoreError, TooLarge
from rheostat.sessions.conversation import (
    Head,
    Past,
    Turn,
    answer_message,
    bounded,
    brought,
    is_retry,
    past_of,
    turn_name,
    turns_in,
)
from rheostat.sessions.memory import MemoryStore
from rheostat.sessions.redis import RedisStore
from rheostat.sessions.settings import SessionSettings
from rheostat.sessions.sqlite import SqliteStore
from rheostat.sessions.store import LEASE_S, NOTHING, Change, Kept, SessionKey, Store, Told
from rheostat.types import Chat
from rheostat.types.talk import Talk

if TYPE_CHECKING:
    from rheostat.clock import Clock
    from rheostat.config import Loaded
    from rheostat.engine.engine import Engine, Lane, Plan
    from rheostat.engine.stream import Outlet
    from rheostat.telemetry import Masker
    from rheostat.types import Prediction, Request

_AGAIN_S = 5.0
_log = logging.getLogger("rheostat.sessions")
_BUSY = "another turn of this session is being answered; send this one when that has ended"
_AWAY = "what was said before in this session cannot be read now: come again, or send the whole conversation"
_LOST = "the answer was made but could not be kept, so it is not given: send this turn again"
_OVERTAKEN = "another turn of this session was answered meanwhile; send this one again"
_LARGE = "a turn of a session may have {most} bytes (`sessions.max_bytes`); this one has more"


def open_conversing(
    loaded: Loaded, clock: Clock, masker: Masker, plan: Callable[[], Plan], engine: Engine,
    serve: Callable[[Request, Outlet | None], Awaitable[Served]],
) -> Conversing | None:  # fmt: skip
    """Open where conversations are kept, if the config says so; a store that is away is no hindrance.

    Raises:
        MissingExtra: the part that speaks to it is not installed.
    """
    config, settings = loaded.config, loaded.config.sessions
    if not any(route.session is not None for route in config.routes.values()) and settings == SessionSettings():
        return None
    age = float(settings.max_age)
    made: Store = MemoryStore(clock, age, settings.max_total)
    if settings.redis is not None:
        made = RedisStore(settings.redis, clock, age, masker.mask)
    elif settings.path is not None:
        path = str(Path(loaded.base) / settings.path)
        made = SqliteStore(path, clock, age, settings.max_total, masker.mask)
    return Conversing(made, settings, clock, plan, serve, lambda request, error: engine.refuse(plan(), request, error))


class _Opened(NamedTuple):
    """A request's turn: the conversation as it is stored and as it is asked. `keep` stored turns stay, `turns` follow them,
    and after them what is `talk.new` with its answer."""

    past: Past
    kept: Kept
    talk: Talk
    keep: int
    turns: tuple[Turn, ...]


class Conversing:
    """The conversations of one router.

    Args:
        plan: returns the plan in force.
        serve: serves a request whose conversation is whole.
        refuse: ends a request with an error, on record.
    """

    def __init__(
        self, store: Store, settings: SessionSettings, clock: Clock, plan: Callable[[], Plan],
        serve: Callable[[Request, Outlet | None], Awaitable[Served]], refuse: Callable[[Request, RheostatError], Served],
    ) -> None:  # fmt: skip
        self.store = store
        self.counts = {"kept": 0, "busy": 0, "away": 0, "lost": 0, "retried": 0}
        self._settings = settings
        self._clock = clock
        self._plan = plan
        self._serve = serve
        self._refuse = refuse
        self._closing: set[asyncio.Task[None]] = set()

    def wants(self, request: Request) -> bool:
        """Return whether the request is a turn of a conversation that is kept: its route keeps them, it names a session, and
        does not say `store: false`."""
        data = request.data
        lane = self._lane(request)
        if lane is None or lane.session is None or type(data) is not Chat or request.session is None:
            return False
        return data.asks("store") is not False and bool(data["messages"])

    async def serve(self, request: Request, outlet: Outlet | None) -> Served:
        """Answer one turn. Its answer is given only when it is kept: a session never goes on without what was said in it."""
        said = brought(request.data)
        if sum(map(len, said.rest)) > self._settings.max_bytes:
            return self._refuse(request, TooLarge(_LARGE.format(most=self._settings.max_bytes)))
        key, token = SessionKey(request.tenant, request.session or ""), uuid.uuid4().hex
        try:
            kept = await self.store.open(key, token)
        except StoreError:
            self._release(key, token)  # it may have been opened all the same
            if said.whole:  # nothing is missing
                return await self._asked(request, outlet, self._opened(request, NOTHING).talk)
            self.counts["away"] += 1
            return self._refuse(request, SessionsAway(_AWAY, _AGAIN_S))
        if kept is None:
            self.counts["busy"] += 1
            return self._refuse(request, Conflict(_BUSY, "x-rheostat-session"))
        closed = False
        beat = asyncio.ensure_future(self._held(key, token))
        try:
            opened = self._opened(request, kept)
            served = await self._asked(request, outlet, opened.talk)
            if served.error is None and served.prediction is not None and served.record.level < 5:
                closed, served = await self._kept(key, token, request, opened, served, said.whole)
            return served
        finally:
            beat.cancel()
            if not closed:
                self._release(key, token)

    async def forget(self, name: str, tenant: str | None) -> None:
        """Delete a session.

        Raises:
            NotFound: there is none.
            StoreError: the store cannot be used now.
        """
        if not await self.store.forget(SessionKey(tenant, name)):
            raise NotFound(f"there is no session {name[:80]!r}" + (f" of the tenant {tenant!r}" if tenant else ""))

    async def told(self, most: int) -> list[Told]:
        """Tell of the sessions, without anything that was said in them.

        Raises:
            StoreError: the store cannot be used now.
        """
        return list(await self.store.told(most))

    def status(self) -> dict[str, object]:
        """Say how the store is, and what became of turns since the start."""
        store = self.store
        found: dict[str, object] = {"store": self._settings.store, **self.counts}
        if isinstance(store, MemoryStore):
            found |= {"sessions": len(store), "bytes": store.bytes}
        elif isinstance(store, RedisStore):
            found |= store.guarded.status()
        elif isinstance(store, SqliteStore):
            found |= {"state": "degraded" if store.file.away else "ok", "failures": store.file.failures}
        return found

    async def aclose(self) -> None:
        """Give back the store; sessions that are being released first."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=1.0)
        await self.store.aclose()

    async def _asked(self, request: Request, outlet: Outlet | None, talk: Talk) -> Served:
        if outlet is not None:
            outlet.history = len(talk.turns)
        return await self._serve(structs.replace(request, data=talk, text=talk["text"]), outlet)

    def _lane(self, request: Request) -> Lane | None:
        return self._plan().lanes.get(request.route)

    def _opened(self, request: Request, kept: Kept) -> _Opened:
        said = brought(request.data)
        try:
            past = past_of(kept)
        except msgspec.MsgspecError:  # of another version, or damaged
            _log.warning("a session could not be read and begins anew")
            past = Past()
            kept = Kept(b"", ())
        lane = self._lane(request)
        cut = lane is not None and lane.session is not None and lane.session.fit != "none"
        if said.whole:
            turns, new = turns_in(said)
            talk = Talk(request.data.fields, said.system, [turn.messages for turn in turns], new, cut=cut)
            return _Opened(past, kept, talk, 0, tuple(turns))
        keep = len(past.turns)
        if is_retry(past, said.rest, request.headers):
            self.counts["retried"] += 1
            keep -= 1
        head = past.head
        talk = Talk(
            request.data.fields,
            said.system or head.system,
            [turn.messages for turn in past.turns[:keep]],
            said.rest,
            cut=cut,
            summary=head.summary,
            covered=max(0, head.covered - head.dropped),
        )
        return _Opened(past, kept, talk, keep, ())

    async def _kept(
        self, key: SessionKey, token: str, request: Request, opened: _Opened, served: Served, whole: bool
    ) -> tuple[bool, Served]:
        """Keep the turn; returns whether the session was given back with it, and what is to be answered."""
        change = self._change(request, opened, served, whole)
        if change is None:
            return False, Served(served.record, error=TooLarge(_LARGE.format(most=self._settings.max_bytes)))
        try:
            done = await self.store.close(key, token, change)
        except StoreError:
            self.counts["lost"] += 1
            return False, served if whole else Served(served.record, error=SessionsAway(_LOST, _AGAIN_S))
        self.counts["kept" if done else "lost"] += 1
        return True, served if done or whole else Served(served.record, error=Conflict(_OVERTAKEN, "x-rheostat-session"))

    def _change(self, request: Request, opened: _Opened, served: Served, whole: bool) -> Change | None:
        talk, past = opened.talk, opened.past
        said: Prediction | None = served.prediction
        assert said is not None
        answer = answer_message(said.output, said.label)
        turn = Turn((*talk.new, answer), len(talk.new), turn_name(request.headers), served.record.selected_model)
        dropped = 0 if whole else past.head.dropped
        head = Head(talk.system, dropped, talk.summary, talk.covered + dropped if talk.summary else 0, past.head.states)
        most = self._settings
        return bounded(head, past, opened.kept, opened.keep, (*opened.turns, turn), most.max_turns, most.max_bytes)

    async def _held(self, key: SessionKey, token: str) -> None:
        """Keep the session for a turn that takes long."""
        while True:
            await asyncio.sleep(LEASE_S / 3)
            with suppress(StoreError):
                await self.store.renew(key, token)

    def _release(self, key: SessionKey, token: str) -> None:
        async def release() -> None:
            with suppress(StoreError):
                await self.store.close(key, token, None)

        task = asyncio.ensure_future(release())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
