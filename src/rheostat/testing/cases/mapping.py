"""The one place where the neutral words of a case's config become Rheostat's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rheostat.config.check_access import SECRET_LENGTH
from rheostat.testing.cases.config_words import BreakerWords, ConfigWords, Key, ModelWords, RouteWords
from rheostat.testing.cases.form import CaseError
from rheostat.testing.cases.mapping_policies import SIGNAL, given, header_in, policy_of, way_of

OPERATOR = "the secret of a case's operator"
"""Opens the status page where a case names no secret of its own."""
LONG_S = 60.0
"""Deadline of a route where a case names none: the case says what ends sooner."""
DEFAULT = "default"


class Mapped(NamedTuple):
    """A config of Rheostat, and the header whose value is the session in this case, if one is."""

    config: dict[str, Any]
    session_header: str | None


def mapped(words: ConfigWords, urls: Mapping[str, str]) -> Mapped:
    """Map a case's config; `urls` says where each model's scripted upstream answers.

    Raises:
        CaseError: words that do not go together.
    """
    routes = dict(words.routes)
    if words.route is not None:
        routes[DEFAULT] = words.route
    if not routes:
        routes = {name: RouteWords(primary=name) for name in words.models}
    config: dict[str, Any] = {
        "models": {name: _model(name, model, words, urls[name]) for name, model in words.models.items()},
        "routes": {},
        "records": {"jsonl": "records.jsonl"},
        "server": {"port": 0},
        "admin": {"secret": secret_of(words), "port": 0},
    }
    headers = set()
    reached: dict[str, tuple[str, ...]] = {}
    for name, route in routes.items():
        reached[name] = _reached(route, words)
        headers |= _session_headers(route)
        _link_peers(config["models"], route, words, reached[name])
        config["routes"][name] = _route(route, words, reached[name])
    if len(headers) > 1:
        raise CaseError(f"a case has one session header, not {sorted(headers)}")
    if any(route.difficulty is not None and route.difficulty.model is None for route in routes.values()):
        config["signals"] = {SIGNAL: {"scorer": "python", "callable": "rheostat.testing.cases.given:difficulty"}}
    _limits(config, words)
    keys = _keys(words, reached)
    if keys:
        config["keys"] = keys
    if words.cache is not None:
        for route in config["routes"].values():
            route["cache"] = {"ttl": words.cache.ttl_s, "coalesce": words.cache.coalesce}
    return Mapped(_laid_over(config, words.rheostat), next(iter(headers), None))


def secret_of(words: ConfigWords) -> str:
    """Return the admin secret; one that is shorter than Rheostat allows is made longer."""
    secret = words.admin_secret or OPERATOR
    return secret.ljust(SECRET_LENGTH, "-")


def _model(name: str, model: ModelWords, words: ConfigWords, url: str) -> dict[str, Any]:
    if model.type == "kserve_v2":
        tensor = {"name": model.input or "input"}
        made: dict[str, Any] = {
            "backend": "inference_protocol", "base_url": url, "model": name, "input": tensor,
            "output": model.output or "output",
        }  # fmt: skip
    elif model.input is not None or model.output is not None or model.n is not None:
        raise CaseError(f"models.{name}: `input`, `output` and `n` belong to `type: kserve_v2`")
    elif model.batch is not None:
        together = "rheostat.testing.cases.together:Together"
        made = {"backend": "python", "callable": together, "args": {"url": f"{url}/predict"}}
    else:
        made = {"backend": "http", "url": f"{url}/predict"}
    if model.n is not None:
        made["input"] |= {"datatype": "FP32", "features": [f"x{index}" for index in range(model.n)]}
    made |= given(
        api_key=model.key, labels=list(model.labels), tags=list(model.tags), max_input=model.max_input,
        timeout=model.timeout_s if model.timeout_s is not None else words.timeouts.attempt_s,
    )  # fmt: skip
    made["ramp"] = {"seconds": 0}  # none unless a case names one
    if model.side_effects:
        made["side_effects"] = True
    places = [limit for limit in (model.concurrency, model.pool) if limit is not None]
    if places:
        made["max_concurrency"] = min(places)
    if model.queue is not None:
        made["queue"] = model.queue
    elif model.pool is not None:
        made["queue"] = 1_000  # who finds no free connection waits for one
    if model.batch is not None:
        made["batch"] = {"max_rows": model.batch.max, "max_wait": model.batch.wait_ms / 1_000.0}
    if isinstance(words.breaker, BreakerWords):
        made["breaker"] = given(
            failureThreshold=words.breaker.failures, timeoutSeconds=words.breaker.open_s,
            maxProbes=words.breaker.half_open_max, successThreshold=words.breaker.half_open_successes,
        )  # fmt: skip
    elif words.breaker is False:
        made["breaker"] = {"failureThreshold": 0}
    stream = given(first=words.timeouts.first_token_s, gap=words.timeouts.gap_s, total=words.timeouts.total_s)
    if made["backend"] == "http":
        made["stream"] = stream
    return made


def _route(route: RouteWords, words: ConfigWords, models: tuple[str, ...]) -> dict[str, Any]:
    way = way_of(route)
    fallback: dict[str, Any] = given(retry=words.retries)
    if way not in ("cascade", "blend"):
        fallback["lighter"] = False  # what is not named as a fallback does not answer
    if route.difficulty is not None and route.difficulty.on_error is not None:
        fallback["default"] = route.difficulty.on_error
    forced = tuple(words.models) if any(isinstance(key, Key) and key.may_force for key in words.keys.values()) else ()
    made = {
        "policy": policy_of(way, route, words),
        "models": list(dict.fromkeys((*models, *forced))),
        "deadline": words.timeouts.request_s if words.timeouts.request_s is not None else LONG_S,
        "fallback": fallback,
    }
    if route.shadow is not None:
        made["shadow"] = given(model=route.shadow.model, share=route.shadow.share, max_in_flight=route.shadow.max_in_flight)
    return made


def _reached(route: RouteWords, words: ConfigWords) -> tuple[str, ...]:
    """Return the models a route may use: those it names, then their fallbacks."""
    named = [*route.pool, *route.cascade, *route.blend, *route.map.values(), *(rule.use for rule in route.rules)]
    named += [name for name in (route.primary, route.by_label, route.default) if name is not None]
    if route.difficulty is not None:
        named += [name for name in words.models if name not in route.fallback]
    reached = list(dict.fromkeys(named))
    own = len(reached)
    reached += [name for name in route.fallback if name not in reached]
    for name in reached:
        model = words.models.get(name)
        further = (model.fallback if model is not None else ()) or words.default_fallback
        reached += [other for other in further if other not in reached]
    return tuple(reached if words.max_fallbacks is None else reached[: own + words.max_fallbacks])


def _link_peers(models: dict[str, Any], route: RouteWords, words: ConfigWords, reached: tuple[str, ...]) -> None:
    """Say who answers in whose place: on this route each fallback may follow every model before it."""
    chain = [name for name in route.fallback if name in reached]
    for name in reached:
        if name not in words.models:
            continue
        after = chain[chain.index(name) + 1 :] if name in chain else chain
        further = [other for other in (words.models[name].fallback or words.default_fallback) if other != name]
        peers = list(dict.fromkeys((*models[name].get("peers", ()), *after, *(p for p in further if p in reached))))
        if peers:
            models[name]["peers"] = peers


def _limits(config: dict[str, Any], words: ConfigWords) -> None:
    limits = words.limits
    config["server"] |= given(max_body=limits.body_bytes, max_in_flight=limits.in_flight, max_batch=limits.rows)
    if limits.sessions is not None:
        config["holds"] = {"limit": limits.sessions}
    if words.workers != 1:
        config["server"]["workers"] = words.workers


def _keys(words: ConfigWords, reached: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    made = []
    for name in dict.fromkeys((*words.keys, *words.access)):
        told = words.keys.get(name, Key())
        key = Key(tenant=told) if isinstance(told, str) else told
        allowed = key.models or words.access.get(name, ())
        routes = [route for route, models in reached.items() if set(models) <= set(allowed)] if allowed else []
        if allowed and not routes:
            raise CaseError(f"the key {name!r} may use no route")
        made.append({"key": name, "may_force": key.may_force, "routes": routes, **given(tenant=key.tenant)})
    return made


def _session_headers(route: RouteWords) -> set[str]:
    keys = [route.sticky, route.key, route.difficulty.key if route.difficulty is not None else None]
    return {header_in(key, "key") for key in keys if key is not None}


def _laid_over(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `below` with what `above` says instead, mapping by mapping."""
    whole = dict(below)
    for name, value in above.items():
        old = whole.get(name)
        whole[name] = _laid_over(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return whole
