"""What stands between a router and its promises: which requests are promised an answer, and how they are asked again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from rheostat.errors import NotFound
from rheostat.policies import models_of
from rheostat.results.later import Later, Room
from rheostat.results.result import Promise, Reply, Result, Waiting
from rheostat.results.store import Store
from rheostat.results.webhook import Webhook
from rheostat.types import ModelView

if TYPE_CHECKING:
    from rheostat.build import Wiring
    from rheostat.clock import Clock
    from rheostat.config import Loaded
    from rheostat.engine.engine import Lane, Served
    from rheostat.telemetry import Masker
    from rheostat.types import Request

LONGEST_S = 600.0
"""How long one try may take, in seconds, on a route without a shorter deadline."""
_SLACK_S = 30.0  # beyond its deadline, after which a try that was not finished counts as dead


class Completing:
    """The promises of one router.

    Args:
        loaded: the config that the router started with; its `results.path` is set.
        wiring: returns what is in force.
        request: makes a request that arrives now.
        serve: serves one.
    """

    def __init__(
        self,
        loaded: Loaded,
        clock: Clock,
        masker: Masker,
        wiring: Callable[[], Wiring],
        request: Callable[..., Request],
        serve: Callable[[Request], Awaitable[Served]],
    ) -> None:
        settings = loaded.config.results
        store = Store(str(Path(loaded.base) / (settings.path or "")), clock, mask=masker.mask)
        webhook = Webhook(settings.webhook, mask=masker.mask) if settings.webhook is not None else None
        self.later = Later(store, settings, clock, self.ask, self.rooms, webhook=webhook)
        self._clock = clock
        self._wiring = wiring
        self._request = request
        self._serve = serve

    async def promise(self, request: Request) -> Promise:
        """Promise that the request will be completed later, or say why not."""
        lane = self._wiring().plan.lanes.get(request.route)
        if request.force_model is not None or request.skip_route:
            return self.later.refuse("forced", "its model was chosen by hand")
        if lane is not None:
            pool = self._wiring().plan.pool
            for name in lane.route.links:
                if pool[name].settings.side_effects:
                    return self.later.refuse("side_effects", f"the model {name!r} has side effects, which nobody repeats")
        question = lane.question if lane is not None else None
        headers: Mapping[str, str] = {}
        if question is not None:
            named = tuple(request.headers) if question.headers is None else question.headers
            headers = {name: request.headers[name] for name in named if name in request.headers}
        return await self.later.promise(request, headers)

    async def result(self, key: str, tenant: str | None) -> Result:
        """Return what came of a promise.

        Raises:
            NotFound: nothing of this id was promised to this tenant, or it is long over.
            StoreError: the store cannot be used now.
        """
        found = await self.later.find(key, tenant)
        if found is None:
            raise NotFound("there is no such result")
        return found

    async def ask(self, waiting: Waiting) -> Reply:
        """Ask the promise's route once more, for an answer by a model."""
        lane = self._wiring().completing.lanes.get(waiting.route)
        request = self._request(
            waiting.data,
            meta=waiting.meta,
            headers=waiting.headers,
            route=waiting.route,
            session=waiting.session,
            tenant=waiting.tenant,
            timeout_s=_longest(lane),
            max_cost=None if waiting.max_cost == float("inf") else waiting.max_cost,
            request_id=waiting.request_id,
        )
        served = await self._serve(structs.replace(request, completing=True, priority="low"))
        return Reply(served.record, served.prediction, served.error)

    def rooms(self, workers: int) -> dict[str, Room]:
        """Say how many promises of each route may be asked at a time now.

        None while no model that its policy may ask can be asked: its breaker is open or its places are taken. While models
        are only coming back, as many as their ramp gives them of the `workers`, and one at least.
        """
        wiring = self._wiring()
        view = wiring.plan.pool.view(self._clock.monotonic())
        rooms: dict[str, Room] = {}
        for name, lane in wiring.completing.lanes.items():
            share = max((_share(view[model]) for model in _askable(lane)), default=0.0)
            if share > 0.0:
                rooms[name] = Room(max(1, int(workers * share)), _longest(lane) + _SLACK_S)
        return rooms


def _share(view: ModelView) -> float:
    """How much of its usual traffic a model may have now, 0 to 1; requests whose client waits have its last places."""
    if not view.available or view.queued or (view.limit and view.in_flight >= view.limit):
        return 0.0
    return view.ramp


def _askable(lane: Lane) -> list[str]:
    """The models that may answer on this route, by its policy or as peers, or any of it where L3 is on."""
    links, fallback = lane.route.links, lane.route.fallback
    named = [model for model in models_of(lane.route.policy) if model in links] or [lane.route.default]
    if fallback.lighter:
        return list(links)
    peers = [peer for model in named for peer in links[model].peers if peer in links] if fallback.peer else []
    return [*named, *peers]


def _longest(lane: Lane | None) -> float:
    return min(LONGEST_S, lane.deadline_s or LONGEST_S) if lane is not None else LONGEST_S
