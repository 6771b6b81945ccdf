"""The part of the map that is about how a route decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rheostat.testing.cases.config_words import ConfigWords, RouteWords, RuleWords
from rheostat.testing.cases.form import CaseError

SIGNAL = "given_difficulty"
_WAYS: Mapping[str, frozenset[str]] = {
    "primary": frozenset(),
    "pool": frozenset(("choose", "sticky", "by_tag")),
    "cascade": frozenset(("threshold",)),
    "by_label": frozenset(("map", "default")),
    "blend": frozenset(),
    "difficulty": frozenset(("key",)),
    "rules": frozenset(("default", "normalise")),
}
_WITH_ANY = frozenset(("fallback", "shadow"))
_CHOOSE = {"least_busy": "least_loaded", "power_of_two": "two_choices", "weighted": "weighted"}


def way_of(route: RouteWords) -> str:
    """Return the word that says how the route decides, and refuse words that do not belong to it."""
    ways = [way for way in _WAYS if getattr(route, way)]
    if len(ways) != 1:
        raise CaseError(f"a route has exactly one of {', '.join(_WAYS)}; this one has {ways or 'none'}")
    used = {name for name in route.__struct_fields__ if getattr(route, name) not in (None, (), {})}
    strange = used - _WAYS[ways[0]] - _WITH_ANY - {ways[0]}
    if strange:
        raise CaseError(f"{sorted(strange)} cannot stand beside `{ways[0]}`")
    return ways[0]


def policy_of(way: str, route: RouteWords, words: ConfigWords) -> Any:
    """Return the policy of a route that decides by `way`, in the config's form."""
    if way == "primary":
        return route.primary
    if way == "cascade":
        if route.threshold is None:
            raise CaseError("a `cascade` needs a `threshold`")
        return {"cascade": {"stages": list(route.cascade), "threshold": route.threshold}}
    if way == "blend":
        weights = {name: words.models[name].weight for name in route.blend}
        return {"blend": {"weights": {name: 1.0 if weight is None else weight for name, weight in weights.items()}}}
    if way == "rules":
        rules: Any = {"rules": {"rules": [_rule(rule) for rule in route.rules], **given(normalise=route.normalise)}}
        return {"chain": [rules, route.default]} if route.default is not None else rules
    if way == "by_label":
        return {"by_label": {"model": route.by_label, "map": dict(route.map), **given(default=route.default)}}
    if way == "pool":
        return _balance(route, words)
    return _difficulty(route, words)


def _difficulty(route: RouteWords, words: ConfigWords) -> Any:
    difficulty = route.difficulty
    assert difficulty is not None
    if difficulty.model is not None:
        others = [name for name in words.models if name != difficulty.model]
        use = {name: name for name in others}
        return {"by_label": {"model": difficulty.model, "map": use, **given(on_error=difficulty.on_error)}}
    if difficulty.border is None:
        raise CaseError("`difficulty` needs a `border` or a `model`")
    weak, strong = _weak_strong(words)
    made = {"signal": SIGNAL, "threshold": difficulty.border, "weak": weak, "strong": strong}
    if difficulty.band:
        made["hysteresis"] = [difficulty.border - difficulty.band, difficulty.border + difficulty.band]
    return {"binary": made}


def _weak_strong(words: ConfigWords) -> tuple[str, str]:
    names = tuple(words.models)
    if {"weak", "strong"} <= set(names):
        return "weak", "strong"
    if len(names) != 2:
        raise CaseError("`difficulty` needs two models, or two that are named weak and strong")
    return names[0], names[1]


def _balance(route: RouteWords, words: ConfigWords) -> Any:
    made: dict[str, Any] = {"models": list(route.pool)}
    if route.choose is not None:
        if route.choose not in _CHOOSE:
            raise CaseError(f"`choose: {route.choose}` is not known; known: {', '.join(_CHOOSE)}")
        made["choose"] = _CHOOSE[route.choose]
    if route.sticky is not None:
        made["sticky"] = "session"
    if route.by_tag is None:
        return {"balance": made}
    header = header_in(route.by_tag, "by_tag")
    by_tag: dict[str, list[str]] = {}
    for name in route.pool:
        for tag in words.models[name].tags:
            by_tag.setdefault(tag, []).append(name)
    default = by_tag.pop("default", None) or list(route.pool)
    rules = [
        {"when": f"headers['{header}'] == '{tag}'", "use": {"balance": {**made, "models": names}}, "name": f"tag {tag}"}
        for tag, names in by_tag.items()
    ]
    return {"chain": [{"rules": rules}, {"balance": {**made, "models": default, "name": "untagged"}}]}


def _rule(rule: RuleWords) -> dict[str, Any]:
    made: dict[str, Any] = {"use": rule.use, **given(matches=rule.if_regex)}
    if rule.if_contains is not None:
        made["contains"] = rule.if_contains if isinstance(rule.if_contains, str) else list(rule.if_contains)
    if rule.if_header is not None:
        made["when"] = " && ".join(f"headers['{name.lower()}'] == '{value}'" for name, value in rule.if_header.items())
    return made


def header_in(written: str, word: str) -> str:
    """Return the name of the header in `header:NAME`."""
    kind, _, name = written.partition(":")
    if kind != "header" or not name:
        raise CaseError(f"`{word}: {written}` is not known; known: header:NAME")
    return name.lower()


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None and value != []}


def kinds_in(policy: Any) -> Iterable[str]:
    """Yield the kinds of policies that stand in a policy's config form."""
    if isinstance(policy, dict):
        for kind, fields in policy.items():
            yield kind
            parts = fields if isinstance(fields, list) else (fields.get("rules", ()) if isinstance(fields, dict) else ())
            for part in parts:
                yield from kinds_in(part.get("use") if isinstance(part, dict) and "use" in part else part)
