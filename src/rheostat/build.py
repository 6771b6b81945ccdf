"""From a checked config to something that serves: the only place that chooses concrete parts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, structs

from rheostat.cache.answers import Answers, Question
from rheostat.cache.redis import RedisStore
from rheostat.cache.semantic import Semantic, open_semantic
from rheostat.cache.settings import CacheSettings
from rheostat.cache.shared import Shared
from rheostat.clock import Clock, SystemClock
from rheostat.config import Config, Loaded, RecordSettings, RouteSettings
from rheostat.engine.caching import Caching
from rheostat.engine.engine import Lane, Plan
from rheostat.engine.fitting import Summarising
from rheostat.engine.inner import bind, unusable
from rheostat.engine.journey import Route
from rheostat.errors import ConfigError, Problem, RheostatError
from rheostat.opening import open_model, preload
from rheostat.policies import ByLabel, Policy, answering_of, live_of, signals_of, steering_of, walk
from rheostat.policies.reads import EVERYTHING, reads_of
from rheostat.policies.stand_in import averaged_of
from rheostat.pool import Model, Pool
from rheostat.pool.residency import Residency
from rheostat.pool.stamp import Stamp, stamp
from rheostat.resilience.spend import allowances_of, spends_of
from rheostat.sessions.settings import RouteSession
from rheostat.signals import FEATURES, TextFeatures
from rheostat.signals.base import AnswerScorer, Scorer
from rheostat.telemetry import JsonlSink, Masker, Recorder, Sink, SqliteSink
from rheostat.watch import Watch

_log = logging.getLogger("rheostat.build")


class Wiring(Struct, frozen=True, kw_only=True):
    """A plan and what it was made of, so that the next one can keep what did not change.

    `completing` is the plan for requests that are asked again later: only what a model says now counts there.
    """

    plan: Plan
    completing: Plan
    loaded: Loaded
    residency: Residency
    model_stamps: Mapping[str, Stamp]
    scorers: Mapping[str, tuple[Stamp, Scorer | AnswerScorer]]


async def build(loaded: Loaded, previous: Wiring | None = None) -> Wiring:
    """Load, check and wire everything a config names; models and scorers that did not change are kept as they are.

    A model keeps its breaker, its counters and its connections across a reload as long as neither its settings nor its
    files changed.

    Raises:
        ConfigError: something could not be loaded or broke its contract; all such parts are named. What was opened for
            this config only is closed again.
    """
    config = loaded.config
    problems: list[Problem] = []
    residency = previous.residency if previous is not None else Residency(config.memory)
    models: dict[str, Model] = {}
    stamps: dict[str, Stamp] = {}
    opened: list[Model] = []
    for name, settings in config.models.items():
        stamps[name] = stamp(settings, loaded.base)
        before = previous.plan.pool.models.get(name) if previous is not None else None
        same = previous is not None and previous.model_stamps.get(name) == stamps[name]
        if same and before is not None and not before.outdated:
            models[name] = before
            continue
        try:
            models[name] = await open_model(name, settings, loaded, residency, before)
            opened.append(models[name])
        except Exception as error:
            problems.extend(_problems(loaded, f"models.{name}", error))
    scorers: dict[str, tuple[Stamp, Scorer | AnswerScorer]] = {}
    for name, scorer in config.signals.items():
        now = stamp(scorer, loaded.base)
        if previous is not None and name in previous.scorers and previous.scorers[name][0] == now:
            scorers[name] = previous.scorers[name]
            continue
        try:
            scorers[name] = (now, await asyncio.to_thread(scorer.open, name, loaded.base))
        except Exception as error:
            problems.extend(_problems(loaded, f"signals.{name}", error))
    for name, (_, made) in scorers.items():
        unknown = [model for model in made.needs if model not in config.models] if isinstance(made, AnswerScorer) else []
        if unknown:
            told = f"it reads the answers of {', '.join(unknown)}, which the config does not have"
            problems.extend(loaded.placed(f"signals.{name}", [Problem("", None, told)]))
    semantics: dict[str, Semantic] = {}
    for name, route in config.routes.items():
        wanted = route.cache.semantic if route.cache is not None else None
        if wanted is None:
            continue
        made_of = (stamp(wanted, loaded.base), loaded.base)
        lane = previous.plan.lanes.get(name) if previous is not None else None
        if lane is not None and lane.semantic is not None and lane.semantic.made_of == made_of:
            semantics[name] = lane.semantic
            continue
        try:
            semantics[name] = await asyncio.to_thread(open_semantic, wanted, loaded.base, made_of)
        except Exception as error:
            problems.extend(_problems(loaded, f"routes.{name}.cache.semantic", error))
    problems += _unmapped(loaded, models)
    problems += loaded.placed("models", [*await preload(opened, residency), *unusable(models)])
    if problems:
        for model in opened:
            await model.aclose()
        raise ConfigError(problems, loaded.path)
    bind(models, SystemClock())
    pool = Pool(models, tuple(route.models or tuple(models) for route in config.routes.values()), config.health)
    lanes = {name: _lane(name, loaded, pool, scorers, semantics.get(name)) for name in config.routes}
    most, tenants = config.server.max_in_flight, _tenants(config)
    plan = Plan(version=loaded.version, lanes=lanes, pool=pool, max_in_flight=most, tenants=tenants)
    again = structs.replace(plan, lanes={name: _completing(lane) for name, lane in lanes.items()})
    return Wiring(plan=plan, completing=again, loaded=loaded, residency=residency, model_stamps=stamps, scorers=scorers)


def _tenants(config: Config) -> dict[str, int]:
    """Return the tenants that may have only so many requests in flight."""
    return {key.tenant: key.max_in_flight for key in config.keys if key.tenant is not None and key.max_in_flight}


def _unmapped(loaded: Loaded, models: Mapping[str, Model]) -> list[Problem]:
    """Name every label that a route decides by and its model does not have, such as after an upgrade of the model."""
    found = []
    for route, policy in loaded.policies.items():
        for part in walk(policy):
            model = models.get(part.model) if isinstance(part, ByLabel) else None
            if model is None or not model.labels:
                continue
            for label in part.map:
                if label not in model.labels:
                    start, end = f"routes.{route}.policy", f".by_label.map.{label}"
                    path = next((each for each in loaded.lines if each.startswith(start) and each.endswith(end)), start)
                    has = ", ".join(model.labels[:20])
                    told = f"`{label}` is no label of `{model.name}` version {model.settings.version}, which has {has}"
                    found.append(Problem(path, loaded.lines.get(path), told))
    return found


def unchanged(loaded: Loaded, wiring: Wiring) -> bool:
    """True when neither the config, nor any file it names, nor the code of a model's processes differs from what `wiring`
    was made of."""
    stamps = {name: stamp(settings, loaded.base) for name, settings in loaded.config.models.items()}
    scorers = {name: stamp(settings, loaded.base) for name, settings in loaded.config.signals.items()}
    return (
        loaded.version == wiring.loaded.version
        and loaded.base == wiring.loaded.base
        and stamps == wiring.model_stamps
        and scorers == {name: then for name, (then, _) in wiring.scorers.items()}
        and not any(model.outdated for model in wiring.plan.pool.models.values())
    )


def _lane(
    name: str, loaded: Loaded, pool: Pool, scorers: Mapping[str, tuple[Stamp, Scorer | AnswerScorer]],
    semantic: Semantic | None = None,
) -> Lane:  # fmt: skip
    settings = loaded.config.routes[name]
    policy = loaded.policies[name]
    allowed = settings.models or tuple(pool)
    named = tuple(model for model in answering_of(policy) if model in pool)
    needed = signals_of(policy)
    features = tuple(signal for signal in needed if signal in FEATURES and signal not in scorers)
    wanted = [scorer for _, scorer in scorers.values() if not set(needed).isdisjoint(scorer.names)]
    own: list[Scorer] = [scorer for scorer in wanted if not isinstance(scorer, AnswerScorer)]
    if features:
        own.append(TextFeatures(features))
    links = {model: pool[model].link() for model in allowed}
    if loaded.config.task != "chat":
        links = {model: structs.replace(link, kinds=None) for model, link in links.items()}
    route = Route(
        policy=policy,
        fallback=settings.fallback,
        links=links,
        default=settings.fallback.default or (named[0] if named else allowed[0]),
        answer_scorers=tuple(scorer for scorer in wanted if isinstance(scorer, AnswerScorer)),
        steering=steering_of(policy),
    )
    costs = [model.cost for model in loaded.config.models.values()]
    held = tuple((part.name, part.key) for part in walk(policy) if getattr(part, "hysteresis", None) is not None)
    return Lane(
        name=name,
        route=route,
        deadline_s=float(settings.deadline),
        max_cost=settings.limit,
        scorers=tuple(own),
        held=held,
        spends=tuple(spends_of(loaded.config.budgets, costs, needed).values()),
        allowances=allowances_of(loaded.config.budgets, name, min(link.cost for link in route.links.values())),
        live=bool(live_of(policy)),
        averaged=averaged_of(policy),
        question=_question(name, settings, policy, pool, loaded, bool(wanted)),
        cache=settings.cache,
        semantic=semantic,
        policy_version=loaded.policy_versions.get(name, ""),
        raw_input=loaded.config.records.input == "raw",
        is_chat=loaded.config.task == "chat",
        session=settings.session,
        summarising=_summarising(settings.session),
    )


def _summarising(session: RouteSession | None) -> Summarising | None:
    if session is None or session.summary_by is None:
        return None
    return Summarising(session.summary_by, session.summary_tokens)


def _question(
    name: str, settings: RouteSettings, policy: Policy, pool: Pool, loaded: Loaded, scored: bool
) -> Question | None:
    """What makes two requests of this route the same; scorers of one's own (`scored`) may read anything of a request."""
    cache = settings.cache
    if not (settings.fallback.cached or settings.fallback.later or cache):
        return None
    reads = EVERYTHING if scored else reads_of(policy)
    links = loaded.config.routes[name].models or tuple(pool)
    versions = ",".join(f"{model}={pool[model].settings.version}" for model in links)
    salt = f"{name}/{loaded.policy_versions.get(name, '')}/{versions}"
    apart = cache is None or not cache.across_tenants
    return Question(salt=salt, tenant=apart, meta=reads.meta, headers=reads.headers, session=reads.session)


def _completing(lane: Lane) -> Lane:
    """The same route, with no rung below a model."""
    fallback = structs.replace(lane.route.fallback, cached=False, later=False, preset=None)
    return structs.replace(lane, cache=None, route=structs.replace(lane.route, fallback=fallback))


def open_caching(settings: CacheSettings, clock: Clock, masker: Masker) -> Caching:
    """Open where answers are kept; a shared store that is away is no hindrance.

    Raises:
        MissingExtra: the part that speaks to it is not installed.
    """
    answers = Answers(settings.entries, settings.max_bytes, float(settings.max_age))
    redis = settings.redis
    shared = None if redis is None else Shared(RedisStore(redis), clock, float(redis.timeout), masker.mask)
    return Caching(clock, answers, shared)


def open_recorder(settings: RecordSettings, base: str, masker: Masker, watch: Watch | None = None) -> Recorder:
    """Open the sinks that the config asks for and the recorder that feeds them, and `watch`.

    Raises:
        StoreError: a file cannot be used.
    """
    sinks: list[Sink] = []
    if settings.jsonl is not None:
        sinks.append(JsonlSink(str(Path(base) / settings.jsonl), mask=masker.mask))
    if settings.sqlite is not None:
        sinks.append(SqliteSink(str(Path(base) / settings.sqlite), max_rows=settings.keep_rows, mask=masker.mask))
    if watch is not None:
        sinks.append(watch)
    return Recorder(sinks, mask=masker.mask)


def _problems(loaded: Loaded, part: str, error: Exception) -> list[Problem]:
    """Say what is wrong with a part; a library's own error must not stop the others from being told, nor the old config."""
    told = str(error)
    if not isinstance(error, RheostatError):
        told = f"it could not be opened: {type(error).__name__}: {error}"
        _log.error("%s could not be opened", part, exc_info=error)
    found = error.problems if isinstance(error, ConfigError) else (Problem("", None, told),)
    return loaded.placed(part, found)
