"""The live driver: it gives a journey what it asks for, concurrently, and lets nothing leak."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct, structs

from rheostat.cache.answers import Question
from rheostat.cache.semantic import Semantic
from rheostat.cache.settings import RouteCache
from rheostat.clock import Clock
from rheostat.engine.admission import Admission
from rheostat.engine.allowing import Allowing
from rheostat.engine.averaging import Fields, note_means, with_means
from rheostat.engine.caching import Caching
from rheostat.engine.ending import Ending
from rheostat.engine.execute import Executor
from rheostat.engine.fitting import Summarising, history_of, run_summarised
from rheostat.engine.journey import SIGNAL_ERROR, Journey, Route
from rheostat.engine.progress import Progress
from rheostat.engine.record import closed, record_of
from rheostat.engine.stream import Outlet, may_stream, settle
from rheostat.errors import BadRequest, ModelError, NotFound, RheostatError, TooLarge, TooMany
from rheostat.pool import Pool
from rheostat.resilience.allowance import Allowance
from rheostat.resilience.holds import Holds
from rheostat.resilience.means import Means
from rheostat.resilience.spend import Spend, Spends
from rheostat.results.result import Promise
from rheostat.sessions.settings import RouteSession
from rheostat.signals.base import Scorer
from rheostat.types import Context, Outcome, Prediction, Recalled, Request, RouteRecord

_log = logging.getLogger("rheostat.engine")
NOTHING_HELD: Mapping[str, str] = {}
NOTHING_GOING: Mapping[str, Progress] = {}


class Lane(Struct, frozen=True, kw_only=True):
    """A route made ready to serve. `held` lists (policy name, key kind) of its policies with hysteresis, `spends` the
    budgets that its policy reads, `allowances` those with limits.

    With `live` the policy decides by how busy the models are, so that every request needs a view of its own. `averaged`
    names the models whose running means it reads. `question` says which requests ask the same, where answers are cached or
    come later; with a `cache` they are given again while they are fresh, with `semantic` to similar questions too. With
    `is_chat` a row is a conversation, and its record holds nothing of the answer. With a `session` conversations are kept;
    `summarising` says who sums up what is too long."""

    name: str
    route: Route
    deadline_s: float = 0.0
    max_cost: float = float("inf")
    scorers: tuple[Scorer, ...] = ()
    held: tuple[tuple[str, str], ...] = ()
    spends: tuple[Spend, ...] = ()
    allowances: tuple[Allowance, ...] = ()
    live: bool = False
    averaged: Fields = {}
    question: Question | None = None
    cache: RouteCache | None = None
    semantic: Semantic | None = None
    policy_version: str = ""
    raw_input: bool = False
    is_chat: bool = False
    session: RouteSession | None = None
    summarising: Summarising | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """One version of the configuration, wired: what a request takes hold of when it arrives and keeps to its end.

    `max_in_flight` requests are served at a time (0: any number), and of the `tenants` named so many each.
    """

    version: str
    lanes: Mapping[str, Lane]
    pool: Pool
    max_in_flight: int = 0
    tenants: Mapping[str, int] = {}


class Served(Struct, frozen=True):
    """A finished request: its record, and either a prediction or the error to raise. `later` asks for its completion in the
    background, `promise` says what came of that."""

    record: RouteRecord
    prediction: Prediction | None = None
    error: RheostatError | None = None
    later: bool = False
    promise: Promise | None = None


class Engine:
    """Serves requests over a plan. `observers` get every record; they must be quick and must not raise. `caching` gives the
    answers of routes again that may."""

    def __init__(
        self,
        clock: Clock,
        holds: Holds,
        observers: Sequence[Callable[[RouteRecord], None]] = (),
        caching: Caching | None = None,
    ) -> None:
        self.clock = clock
        self.holds = holds
        self.spends = Spends()
        self.allowing = Allowing(clock)
        self.means = Means()
        self.observers = tuple(observers)
        self.caching = caching
        self.executor = Executor(clock)
        self.admission = Admission()

    @property
    def in_flight(self) -> int:
        """Requests being served now."""
        return self.admission.in_flight

    async def serve(self, plan: Plan, request: Request, outlet: Outlet | None = None) -> Served:
        """Take one request from arrival to answer; never raises except when cancelled.

        With an `outlet` the model that has the last word streams into it, where it can.
        """
        lane: Lane | None = None
        try:
            lane = _lane(plan, request)
            tenant = self.admission.enter(request, plan.max_in_flight, plan.tenants)
        except RheostatError as error:
            return self._finished(plan, lane, request, None, Ending(error=error), 0.0)
        if lane.allowances:
            request = self.allowing.bounded(lane.allowances, request)
        try:
            if lane.cache is not None and not (request.no_cache or request.is_directed):
                return await self._past_the_cache(plan, lane, request, outlet)
            served = await self._decided(plan, lane, request, outlet)
            if self.caching is not None and lane.question is not None and (lane.cache or lane.route.fallback.cached):
                self.caching.keep(lane, request, served, lane.question.key(request))
            return served
        finally:
            self.admission.leave(tenant, self.clock.monotonic() - request.received)

    async def _past_the_cache(self, plan: Plan, lane: Lane, request: Request, outlet: Outlet | None) -> Served:
        """Give the answer to the same question; only without one are the models asked."""
        if self.caching is None or lane.cache is None or lane.question is None:
            return await self._decided(plan, lane, request, outlet)
        try:
            turn = await self.caching.enter(lane.cache, lane.question, request, lane.semantic, whole=outlet is None)
        except asyncio.CancelledError:
            gone = Ending(error=ModelError("cancelled", "the client left"))
            self._finished(plan, lane, request, None, gone, self.clock.monotonic() - request.received)
            raise
        served: Served | None = None
        try:
            if turn.ending is not None:
                waited = self.clock.monotonic() - request.received if turn.ending.cache == "shared" else 0.0
                served = self._finished(plan, lane, request, None, turn.ending, waited)
            else:
                served = await self._decided(plan, lane, request, outlet)
                self.caching.keep(lane, request, served, turn.key, turn.near)
            return served
        finally:
            turn.leave(served)

    async def _decided(self, plan: Plan, lane: Lane, request: Request, outlet: Outlet | None) -> Served:
        """Have the route's policy decide."""
        journey: Journey | None = None
        waited = 0.0
        going: dict[str, Progress] = {}
        outcomes: list[Outcome] = []
        try:
            if lane.allowances:
                self.allowing.enter(lane.allowances, request)
            context = self._context(plan, lane, request)
            if lane.route.fallback.cached:
                journey = Journey(lane.route, context, partial(self._recall, lane))
            else:
                journey = Journey(lane.route, context)
            now = self.clock.monotonic()
            fresh = journey.start(now - request.received)
            while journey.ending is None:
                began = self.clock.monotonic()
                if began >= request.deadline:
                    journey.expire(began - request.received)
                    break
                if len(fresh) != 1 or going:
                    outcomes = await self._advance(plan, lane, journey, fresh, going)
                elif (model := plan.pool.models[name := fresh[0]]).inline:
                    outcomes = [self.executor.run_now(model, request, journey.tries(name))]
                else:
                    flow = outlet if outlet is not None and may_stream(journey, model) else None
                    going[name] = progress = Progress(model)
                    tries = journey.tries(name)
                    run = self.executor.run
                    if lane.summarising is not None:
                        run = partial(run_summarised, self.executor, plan.pool, lane.summarising)
                    outcomes = [await run(model, request, tries, lane.deadline_s, flow, progress)]
                    del going[name]
                now = self.clock.monotonic()
                waited += now - began
                if outlet is not None and outlet.pieces:
                    settle(journey, outlet, outcomes.pop(), now - request.received)
                    break
                if now >= request.deadline and all(_cut(outcome) for outcome in outcomes):
                    journey.expire(now - request.received)
                    break
                fresh = ()
                while outcomes and journey.ending is None:
                    fresh += journey.arrived(outcomes.pop(0), now - request.received)
            ending = journey.ending or Ending(error=RheostatError("the journey has no ending"))
            if ending.hold is not None:
                self._hold(lane, request, ending.hold)
            return self._finished(plan, lane, request, journey, ending, waited, going, outcomes)
        except asyncio.CancelledError:
            gone = Ending(error=ModelError("cancelled", "the client left"))
            self._finished(plan, lane, request, journey, gone, waited, going, outcomes)
            raise
        except (TooMany, TooLarge) as error:
            return self._finished(plan, lane, request, None, Ending(error=error), waited)
        except Exception as error:  # a fault of ours: this request's 500, with a record, and nobody else's
            _log.exception("request %s failed inside", request.id)
            fault = RheostatError(f"{type(error).__name__}: {error}")
            return self._finished(plan, lane, request, journey, Ending(error=fault), waited, going, outcomes)
        finally:
            for progress in going.values():
                if progress.task is not None:
                    progress.task.cancel()

    def _context(self, plan: Plan, lane: Lane, request: Request) -> Context:
        signals: dict[str, float] = {}
        memo: dict[str, object] = {}
        for scorer in lane.scorers:
            try:
                signals.update(scorer.score(request))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # the policy that needs it will miss it, and say so
                memo[SIGNAL_ERROR] = f"{scorer.names[0]}: {type(error).__name__}: {error}"
        if lane.spends:
            signals.update(self.spends.signals(lane.spends, request.tenant, self.clock.wall()))
        held = NOTHING_HELD
        if lane.held:
            now = self.clock.monotonic()
            pairs = ((name, self.holds.get(f"{lane.name}/{name}/{request.key(kind)}", now)) for name, kind in lane.held)
            held = {name: value for name, value in pairs if value is not None}
        view = plan.pool.view(request.received, lane.live)
        if lane.averaged:
            view = with_means(view, self.means, lane.averaged, request, plan.pool)
        return Context(request, signals, view, held, memo)

    async def _advance(
        self, plan: Plan, lane: Lane, journey: Journey, fresh: tuple[str, ...], going: dict[str, Progress]
    ) -> list[Outcome]:
        """Start `fresh` beside what runs, and return what is there next; nothing when the deadline passed.

        `going` holds the calls that have not come back.
        """
        pool, executor, request = plan.pool, self.executor, journey.ctx.request
        run = executor.run if lane.summarising is None else partial(run_summarised, executor, pool, lane.summarising)
        for name in fresh:  # what computes elsewhere starts first, so that it runs beside what computes here
            if not pool[name].inline:
                going[name] = progress = Progress(pool[name])
                call = run(pool[name], request, journey.tries(name), lane.deadline_s, None, progress)
                progress.task = asyncio.ensure_future(call)
        at_once = [executor.run_now(pool[name], request, journey.tries(name)) for name in fresh if pool[name].inline]
        if at_once:
            if going:
                await asyncio.sleep(0)  # let what was started begin
            return at_once
        left = request.deadline - self.clock.monotonic()
        done, _ = await asyncio.wait(
            [progress.task for progress in going.values() if progress.task is not None],
            timeout=max(0.0, left) if left != float("inf") else None, return_when=asyncio.FIRST_COMPLETED,
        )  # fmt: skip
        back = sorted(name for name, progress in going.items() if progress.task in done)
        return [task.result() for name in back if (task := going.pop(name).task) is not None]

    def _hold(self, lane: Lane, request: Request, hold: tuple[str, str]) -> None:
        for name, kind in lane.held:
            if name == hold[0]:
                self.holds.put(f"{lane.name}/{name}/{request.key(kind)}", hold[1], self.clock.monotonic())

    def _finished(
        self, plan: Plan, lane: Lane | None, request: Request, journey: Journey | None, ending: Ending, waited: float,
        going: Mapping[str, Progress] = NOTHING_GOING, unheard: Sequence[Outcome] = (),
    ) -> Served:  # fmt: skip
        """Tell of the request. The policy heard neither of the calls that are still `going`, which end with it, nor of the
        outcomes that came back just then."""
        if journey is not None and (going or unheard):
            now = self.clock.monotonic()
            journey.asked.cut_off((*unheard, *(going[name].outcome(request, now) for name in sorted(going))))
        record = record_of(plan, lane, request, journey, ending, waited, self.clock)
        if ending.similarity is not None:
            record = structs.replace(record, similarity=ending.similarity)
        if lane is not None and lane.is_chat:
            record = closed(record, ending.prediction, plan.pool.models, history_of(request), raw=lane.raw_input)
        if lane is not None and lane.spends and journey is not None:
            self.spends.note(lane.spends, request.tenant, journey.started, record.cost, record.wall)
        if lane is not None and lane.allowances:
            record = self.allowing.settled(record, request, journey.history if journey is not None else ())
        if lane is not None and lane.averaged and journey is not None:
            note_means(self.means, lane.averaged, request, journey.history)
        for observer in self.observers:
            observer(record)
        return Served(record, ending.prediction, ending.error, ending.later)

    def refuse(self, plan: Plan, request: Request, error: RheostatError) -> Served:
        """End a request that arrived with an error, on record."""
        waited = self.clock.monotonic() - request.received
        return self._finished(plan, plan.lanes.get(request.route), request, None, Ending(error=error), waited)

    def _recall(self, lane: Lane, request: Request) -> Recalled | None:
        """Return the last good answer to the same question."""
        if self.caching is None or lane.question is None:
            return None
        return self.caching.answers.recall(lane.question.key(request), self.clock.monotonic())


def _lane(plan: Plan, request: Request) -> Lane:
    lane = plan.lanes.get(request.route)
    if lane is None:
        raise NotFound(f"no route named {request.route[:80]!r}; known: {', '.join(plan.lanes)}", "route")
    if request.force_model is not None and request.force_model not in lane.route.links:
        known = ", ".join(lane.route.links)
        raise BadRequest(
            f"no model named {request.force_model[:80]!r} on the route {lane.name!r}; it has {known}",
            "route.force_model",
        )
    return lane


def _cut(outcome: Outcome) -> bool:
    """True when time, and not the model, ended the call."""
    return outcome.failure is not None and outcome.failure.kind in ("timeout", "deadline")
