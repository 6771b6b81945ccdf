"""What a config can choose from, and where each of its words belongs."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, Union, get_args, get_origin

from msgspec import Struct

from rheostat.config.decode import BAD, Decoder, Special
from rheostat.config.document import UNKNOWN, Node
from rheostat.config.hints import fields_of
from rheostat.config.schema import Config, RouteSettings
from rheostat.policies import KINDS, Rule
from rheostat.pool import ModelSettings
from rheostat.signals.base import ScorerSettings


class Parts(NamedTuple):
    """Backends and scorers by the name they have in the file, and the names of the built-in text features."""

    backends: Mapping[str, type[ModelSettings]]
    scorers: Mapping[str, type[ScorerSettings]]
    features: tuple[str, ...]

    @classmethod
    def builtin(cls) -> Parts:
        """Return those that come with the package."""
        from rheostat.backends import BACKENDS
        from rheostat.signals import FEATURES, SCORERS

        return cls(BACKENDS, SCORERS, tuple(FEATURES))


def chosen(base: type[Struct], registry: Mapping[str, type[Any]]) -> Special:
    """Return the reader of structs of which one key (`backend`, `scorer`) says which struct it is."""
    tag = base.__struct_config__.tag_field or ""

    def read(decoder: Decoder, node: Node, path: str) -> Any:
        if not isinstance(node.value, dict):
            return decoder.problem(path, decoder.lines[path], f"expected a mapping with `{tag}`, got {node.shown()}")
        choice = node.value.get(tag)
        if choice is None:
            return decoder.problem(path, decoder.lines[path], f"`{tag}` is missing; it is one of {', '.join(registry)}")
        if choice.value is UNKNOWN:
            return BAD
        where, line = f"{path}.{tag}", node.keys[tag]
        decoder.lines[where] = line
        cls = registry.get(choice.value) if isinstance(choice.value, str) else None
        if cls is None:
            near = get_close_matches(str(choice.value), registry, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(registry)}"
            return decoder.problem(where, line, f"unknown {tag}, got {choice.shown()}; {hint}")
        return decoder.struct(node, cls, path, skip=tag)

    return read


def places(parts: Parts) -> dict[str, list[str]]:
    """Return, for every word of the config, the places it belongs to."""
    found: dict[str, list[str]] = {}
    _gather(Config, "", found)
    for tag, cls in parts.backends.items():
        extra = set(fields_of(cls)) - set(fields_of(ModelSettings))
        for key in fields_of(cls):
            if key in extra:
                found.setdefault(key, []).append(f"models.NAME with `backend: {tag}`")
    for tag, scorer in parts.scorers.items():
        for key in fields_of(scorer):
            found.setdefault(key, []).append(f"signals.NAME with `scorer: {tag}`")
    for kind, policy in KINDS.items():
        for key in fields_of(policy):
            found.setdefault(key, []).append(f"a `{kind}` policy")
    for key in fields_of(Rule):
        found.setdefault(key, []).append("a rule of a `rules` policy")
    return found


def _gather(cls: type[Struct], path: str, found: dict[str, list[str]]) -> None:
    for key, field in fields_of(cls).items():
        found.setdefault(key, []).append(path or "the top level of the file")
        if cls is RouteSettings and key == "policy":
            continue
        inner, suffix = _inside(field.type)
        if inner is not None:
            _gather(inner, f"{path}.{key}{suffix}" if path else f"{key}{suffix}", found)


def _inside(hint: Any) -> tuple[type[Struct] | None, str]:
    """Return the struct that a field's type holds, and how its place is written."""
    origin = get_origin(hint)
    options: Sequence[Any] = get_args(hint)
    if origin in (Union, types.UnionType):
        return next((option for option in options if _is_struct(option)), None), ""
    if origin is not None and options:
        inner = options[-1] if origin is dict else options[0]
        return (inner, ".NAME" if origin is dict else "[]") if _is_struct(inner) else (None, "")
    return (hint, "") if _is_struct(hint) else (None, "")


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)
