"""What a storm draws: the pool of one config, and for each of its routes the policy and the ladder."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from msgspec import structs

from rheostat.cache.settings import CacheSettings, RouteCache
from rheostat.config import Config, Loaded
from rheostat.config.schema import KeySettings, RouteSettings, ServerSettings
from rheostat.policies import parse_policy
from rheostat.pool import ModelSettings
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.health import HealthSettings
from rheostat.resilience.ladder import FallbackSettings, Preset
from rheostat.resilience.limit import LimitSettings
from rheostat.resilience.ramp import RampSettings
from rheostat.resilience.retry import RetryBudgetSettings
from rheostat.resilience.stream import StreamLimits
from rheostat.results.settings import ResultSettings
from rheostat.testing.weathered import FAULTS, Sky, StormModel
from rheostat.types.duration import Duration

NAMES = ("a", "b", "c", "d")
ROUTES = ("default", "second")
DEADLINE_S = 5.0
TOTAL_S = 3.0
"""Longest time of a streamed answer."""
RESULTS = ResultSettings(path="results.sqlite", pending=20)
CACHE = CacheSettings(entries=40, max_age=Duration(10.0))
TTL_S = 4.0
"""How long an answer is given again, on the routes that do so."""
_KINDS = ("elsewhere", "elsewhere", "streaming", "thread", "inline")


def first_config(dice: Random, sky: Sky, policy: Any = None) -> Loaded:
    """Draw a config; with a `policy`, in its form in the config, it is the policy of all routes over all four models."""
    names = NAMES[: dice.randint(1, len(NAMES))] if policy is None else NAMES
    return _loaded(dice, {name: _model(dice, sky, name, names) for name in names}, 0, policy)


def next_config(dice: Random, sky: Sky, before: Loaded, number: int, policy: Any = None) -> Loaded:
    """Draw the config after `before`: some models are as they were, others are new, changed or gone."""
    names = NAMES[: dice.randint(1, len(NAMES))] if policy is None else NAMES
    models = dict(before.config.models)
    for name in NAMES:
        if name in names and (name not in models or dice.random() < 0.4):
            models[name] = _model(dice, sky, name, names, version=str(number + 1))
    kept = {name: _linked(settings, names) for name, settings in models.items() if name in names}
    return _loaded(dice, kept, number, policy)


def _linked(settings: ModelSettings, names: Sequence[str]) -> ModelSettings:
    """Return the settings without peers that are gone; unchanged ones stay the same, so that the model is kept."""
    peers = tuple(peer for peer in settings.peers if peer in names)
    lighter = settings.lighter if settings.lighter in names else None
    same = peers == settings.peers and lighter == settings.lighter
    return settings if same else structs.replace(settings, peers=peers, lighter=lighter)


def _loaded(dice: Random, models: dict[str, ModelSettings], number: int, policy: Any) -> Loaded:
    routes = {name: _route(dice, tuple(models), policy) for name in ROUTES}
    return Loaded(
        config=Config(
            models=models, routes=routes, results=RESULTS, cache=CACHE,
            server=ServerSettings(max_in_flight=dice.choice((0, 0, 5, 12))),
            keys=(KeySettings(key="of acme", tenant="acme", max_in_flight=dice.choice((0, 2))),),
        ),
        path="storm", base="/no/such/folder", version=f"storm-{number}", text="",
        policies={name: parse_policy(route.policy) for name, route in routes.items()},
        policy_versions={name: f"{name}-{number}" for name in routes},
    )  # fmt: skip


def _route(dice: Random, names: Sequence[str], policy: Any) -> RouteSettings:
    fallback = FallbackSettings(
        retry=dice.randint(0, 2), max_attempts=dice.choice((0, 0, 2, 4)), peer=dice.random() < 0.7,
        lighter=dice.random() < 0.7, cached=dice.random() < 0.4, later=dice.random() < 0.4,
        preset=Preset(label="preset") if dice.random() < 0.3 else None,
    )  # fmt: skip
    drawn = _policy(dice, names)
    again = RouteCache(ttl=Duration(TTL_S), coalesce=dice.random() < 0.6) if dice.random() < 0.4 else None
    return RouteSettings(policy=policy or drawn, deadline=Duration(DEADLINE_S), fallback=fallback, cache=again)


def _model(dice: Random, sky: Sky, name: str, names: Sequence[str], version: str = "1") -> ModelSettings:
    now = sky.loop.time()
    changes = [(0.0, dice.choice(FAULTS))]
    while changes[-1][0] < now + 60.0:
        at = max(changes[-1][0], now) + dice.uniform(0.5, 12.0)
        changes.append((at, dice.choice(("ok", "ok", "ok", *FAULTS))))
    others = [other for other in names if other != name]
    kind, most = dice.choice(_KINDS), dice.choice((0, 0, 1, 3))
    adaptive: LimitSettings | None = None
    if not most and kind in ("elsewhere", "streaming") and dice.random() < 0.5:
        adaptive = LimitSettings(kind=dice.choice(("aimd", "gradient")), most=dice.choice((2, 6)))
    limits = StreamLimits(first=Duration(dice.choice((0.3, 2.0))), gap=Duration(1.0), total=Duration(TOTAL_S))
    return StormModel(
        sky=sky, called=name, kind=kind, changes=tuple(changes), version=version,
        run="inline" if kind == "inline" else "thread", stream=limits if kind == "streaming" else None,
        cost=float(NAMES.index(name) + 1), timeout=Duration(dice.choice((0.0, 0.1, 1.0))),
        max_concurrency=most, adaptive=adaptive, queue=dice.choice((0, 2, 10)), max_input=dice.choice((0, 0, 0, 3)),
        peers=tuple(dice.sample(others, dice.randint(0, len(others)))),
        lighter=dice.choice((None, *others)), side_effects=dice.random() < 0.15,
        breaker=BreakerSettings(failure_threshold=dice.choice((0, 1, 3, 5)), success_threshold=dice.randint(1, 3),
                                timeout_seconds=Duration(dice.uniform(0.5, 5.0))),
        retry_budget=RetryBudgetSettings(share=dice.choice((0.0, 0.2)), least=dice.choice((0.0, 0.3, 10.0))),
        ramp=RampSettings(seconds=Duration(dice.choice((0.0, 5.0, 20.0)))),
        health=HealthSettings(interval=Duration(dice.choice((0.0, 0.0, 1.0))), timeout=Duration(0.2), unhealthy=2),
    )  # fmt: skip


def _policy(dice: Random, names: Sequence[str]) -> Any:
    kinds: list[Any] = [names[0], {"balance": list(names)}]
    if len(names) > 1:
        kinds.append({"cascade": {"stages": list(names), "threshold": 0.5}})
        kinds.append({"blend": {"weights": dict.fromkeys(names, 1.0)}})
        kinds.append({"delegate": {"weak": names[0], "strong": names[1], "parallel": True, "low": 0.2}})
        kinds.append({"by_label": {"model": names[0], "map": {"x": names[1]}, "default": names[-1], "on_error": names[1]}})
    return dice.choice(kinds)
