"""Promises: a request that nobody could answer in time is asked again in the background until a model answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import uuid_utils
from msgspec import structs

from rheostat.chance import chance
from rheostat.errors import StoreError
from rheostat.results import table
from rheostat.results.result import Promise, Reply, Result, Waiting, write_input, write_reply
from rheostat.types import Request

if TYPE_CHECKING:
    from rheostat.clock import Clock
    from rheostat.results.settings import ResultSettings
    from rheostat.results.store import Store
    from rheostat.results.webhook import Webhook

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
"""Pauses between two tries of one promise: the first, doubled every time up to the longest, with jitter of a half."""
LOOK_S = 0.5
"""How often is looked whether something is due while something waits; ten times less often while nothing does."""
_SWEEP_S = 30.0
_IDLE = 10
_POSTS = 4  # posts under way at a time
_PATIENCE_S = 30.0  # nobody waits for work in the background, so the store may take its time
_log = logging.getLogger("rheostat.results")


class Room(NamedTuple):
    """How many promises of a route may be asked at a time now, and for how long one of them may take, in seconds."""

    places: int
    longest_s: float


class Later:
    """Makes promises, keeps them, and tells what came of them.

    Args:
        store: where they stand.
        ask: asks the promise's route, as any request and without cached answer or preset.
        rooms: says for each route how many promises may be asked now; a route without a model that can be asked is left out.
        webhook: where results are posted; default: nowhere.
        first_pause_s, longest_pause_s, look_s: see the constants of these names.
        new_id: names a promise; nobody can guess what it returns.
    """

    def __init__(
        self,
        store: Store,
        settings: ResultSettings,
        clock: Clock,
        ask: Callable[[Waiting], Awaitable[Reply]],
        rooms: Callable[[int], Mapping[str, Room]],
        *,
        webhook: Webhook | None = None,
        first_pause_s: float = FIRST_PAUSE_S,
        longest_pause_s: float = LONGEST_PAUSE_S,
        look_s: float = LOOK_S,
        new_id: Callable[[], str] = lambda: str(uuid_utils.uuid7()),
    ) -> None:
        self.store = store
        self.settings = settings
        self.counts: Mapping[str, int] = {}
        self.refused: dict[str, int] = {}
        self.completed = 0
        self._clock = clock
        self._ask = ask
        self._rooms = rooms
        self._webhook = webhook
        self._first_s, self._longest_s, self._look_s = first_pause_s, longest_pause_s, look_s
        self._new_id = new_id
        self._swept = float("-inf")
        self._running: dict[asyncio.Task[None], str] = {}
        self._posting: dict[asyncio.Task[None], str] = {}
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to keep promises, those of an earlier process too."""
        self._loop = asyncio.get_running_loop().create_task(self._run(), name="rheostat-results")

    async def aclose(self) -> None:
        """Stop; what was being asked is given back, for the next process."""
        tasks = [*self._running, *self._posting, *([self._loop] if self._loop is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._webhook is not None:
            await self._webhook.aclose()
        await asyncio.to_thread(self.store.close)

    async def promise(self, request: Request, headers: Mapping[str, str]) -> Promise:
        """Promise that the request will be completed later; never raises, but may be refused.

        `headers` are those that its route's policy reads; the others are not stored.
        """
        now = self._clock.wall()
        waiting = Waiting(
            id=self._new_id(), request_id=request.id, route=request.route, tenant=request.tenant, created=now,
            data=request.data, meta=dict(request.meta), headers=headers, session=request.session, max_cost=request.max_cost,
        )  # fmt: skip
        data = write_input(waiting)
        if data is None:
            return self.refuse("unstorable", "its input holds what cannot be stored")
        most, until = self.settings.pending, now + float(self.settings.keep)
        try:
            due = now + self._pause(0, waiting.id)  # what has just failed is not asked again at once
            added = await self.store.run(lambda database: table.add(database, waiting, data, due, until, most))
        except StoreError:
            return self.refuse("store", "the store of results cannot be used now")
        if not added:
            return self.refuse("full", "too many requests wait already")
        self.counts = {**self.counts, "pending": self.counts.get("pending", 0) + 1}
        self._wake.set()
        return Promise(waiting.id, "pending")

    async def find(self, key: str, tenant: str | None) -> Result | None:
        """Return what became of a promise to this tenant, or None when there is none.

        Raises:
            StoreError: the store cannot be used now.
        """
        result = await self.store.run(lambda database: table.find(database, key))
        return result if result is not None and result.tenant == tenant else None

    def status(self) -> dict[str, Any]:
        """Return the numbers for the status page."""
        return {
            **self.counts, "asking": len(self._running), "completed": self.completed, "refused": dict(self.refused),
            "store": "away" if self.store.away else "ok", "store_failures": self.store.failures,
            "store_error": self.store.last_error or None,
            "webhook": self._webhook.status() if self._webhook is not None else None,
        }  # fmt: skip

    def refuse(self, kind: str, reason: str) -> Promise:
        """Count a request that gets no promise, and say why; `kind` is the short word of the metric."""
        self.refused[kind] = self.refused.get(kind, 0) + 1
        return Promise(None, "refused", f"it will not be completed later: {reason}")

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._look()
            except StoreError:
                pass  # the store has said so
            except Exception:
                _log.exception("results: looking for what is due failed, it goes on")
            busy = self.counts.get("pending") or self.counts.get("posting")
            try:
                async with asyncio.timeout(self._look_s if busy else self._look_s * _IDLE):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        """Start what is due, as far as there is room."""
        keep_s, post = float(self.settings.keep), self._webhook is not None
        now = self._clock.wall()
        if abs(now - self._swept) >= _SWEEP_S:  # also when the clock was set back
            self._swept = now
            await self._work(lambda database: table.sweep(database, now, keep_s, post=post))
            if not self.counts.get("pending"):
                await self.store.tidy()
        most = self.settings.workers - len(self._running)
        room = self._room() if most > 0 else {}
        if room:
            places = {route: each.places for route, each in room.items()}
            lease_s = {route: each.longest_s for route, each in room.items()}
            for waiting, attempts in await self._work(lambda database: table.claim(database, now, places, lease_s, most)):
                self._start(self._complete(structs.replace(waiting, attempts=attempts)), self._running, waiting.route)
        if self._webhook is not None and len(self._posting) < _POSTS:
            posts_left, lease = _POSTS - len(self._posting), self._webhook.longest_s
            for result, posts in await self._work(lambda database: table.claim_posts(database, now, posts_left, lease)):
                self._start(self._post(self._webhook, result, posts), self._posting, result.route)
        self.counts = await self._work(table.counts)

    def _room(self) -> dict[str, Room]:
        """Return the routes that may be asked, each with the places that it has free."""
        running = list(self._running.values())
        rooms = self._rooms(self.settings.workers).items()
        return {
            route: Room(free, room.longest_s) for route, room in rooms if (free := room.places - running.count(route)) > 0
        }

    def _start(self, work: Coroutine[Any, Any, None], among: dict[asyncio.Task[None], str], route: str) -> None:
        task = asyncio.get_running_loop().create_task(work)
        among[task] = route
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._posting.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            _log.error("results: a promise could not be worked on, it will be tried again: %s", task.exception())
        self._wake.set()

    async def _complete(self, waiting: Waiting) -> None:
        """Ask once; store what came of it, or when to try again."""
        key = waiting.id
        try:
            reply = await self._ask(waiting)
        except asyncio.CancelledError:
            now = self._clock.wall()
            await asyncio.shield(self._work(lambda database: table.postpone(database, key, now, None)))
            raise
        now = self._clock.wall()
        written = write_reply(reply)
        if not reply.final:
            due = now + self._pause(waiting.attempts, key)
            await self._work(lambda database: table.postpone(database, key, due, written))
            return
        state = "done" if reply.prediction is not None else "failed"
        until, post = now + float(self.settings.keep), self._webhook is not None
        if await self._work(lambda database: table.finish(database, key, state, written, now, until, post=post)):
            self.completed += 1

    async def _post(self, webhook: Webhook, result: Result, posts: int) -> None:
        taken = await webhook.post(result)
        due = None if taken else self._clock.wall() + self._pause(posts, f"post/{result.id}")
        await self._work(lambda database: table.posted(database, result.id, due))
        self._wake.set()

    def _pause(self, tries: int, key: str) -> float:
        longest = min(self._longest_s, self._first_s * 2.0 ** min(tries, 30))
        return longest * (0.5 + chance(f"later/{tries}", key))

    async def _work(self, work: Callable[[Any], Any]) -> Any:
        return await self.store.run(work, _PATIENCE_S)
