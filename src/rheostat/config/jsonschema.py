"""The config as JSON Schema, for editors (yaml-language-server) that complete and check while one types."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import NODEFAULT, Meta, Struct, UnsetType

from rheostat.config.hints import LISTS, fields_of
from rheostat.config.parts import Parts
from rheostat.config.schema import Config, RouteSettings
from rheostat.policies import KINDS, Policy
from rheostat.pool import ModelSettings
from rheostat.signals.base import ScorerSettings
from rheostat.types.duration import Duration

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_POLICY = {"$ref": "#/$defs/Policy"}
_VARIABLE = {"type": "string", "pattern": r"^\$\{[A-Za-z_][A-Za-z0-9_]*(:-.*)?\}$"}
_DURATION = {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|h)\s*$"}
_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_OWN_CLASS = r"^[A-Za-z_][\w.]*[.:][A-Za-z_]\w*$"
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}


def json_schema(parts: Parts | None = None) -> dict[str, Any]:
    """Return the schema (draft 2020-12) of a config file.

    Args:
        parts: the backends and scorers to choose from; default: those that come with the package.
    """
    known = parts or Parts.builtin()
    writer = _Writer({ModelSettings: known.backends, ScorerSettings: known.scorers})
    root = writer.mapping(Config)
    writer.defs["Policy"] = writer.policy()
    return {"$schema": DIALECT, "title": "Rheostat config", **root, "$defs": dict(sorted(writer.defs.items()))}


class _Writer:
    """Writes schemas of types; every struct once, under `$defs`. `registries` hold the structs chosen by a key."""

    def __init__(self, registries: Mapping[type[Struct], Mapping[str, type[Struct]]]) -> None:
        self.registries = registries
        self.defs: dict[str, Any] = {}
        self.names: dict[type, str] = {}

    def of(self, hint: Any) -> dict[str, Any]:
        """Return the schema of one type."""
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            bounds = {_BOUNDS[key]: value for meta in args[1:] for key, value in _bounds(meta)}
            return _or_variable({**_scalar(args[0]), **bounds}) if args[0] in _SCALARS else self.of(args[0])
        if hint is Duration:
            return {"anyOf": [_DURATION, {"type": "number", "minimum": 0}, _VARIABLE], "description": Duration.__doc__ or ""}
        if hint is Policy:
            return _POLICY
        if hint in _SCALARS:
            return _or_variable(_scalar(hint))
        if origin is Literal:
            return {"enum": list(args)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(option) for option in args if option is not UnsetType]}
        if (origin or hint) in LISTS:
            return self._list(origin or hint, args)
        if isinstance(origin or hint, type) and issubclass(origin or hint, Mapping):
            return {"type": "object", "additionalProperties": self.of(args[1]) if args else True}
        return self.ref(hint) if isinstance(hint, type) and issubclass(hint, Struct) else {}

    def ref(self, cls: type[Struct]) -> dict[str, Any]:
        """Return a reference to a struct's schema, written when it is first asked for."""
        if cls not in self.names:
            name = self._name(cls)
            registry = self.registries.get(cls)
            self.defs[name] = self.mapping(cls) if registry is None else self._chosen(cls, registry)
        return {"$ref": f"#/$defs/{self.names[cls]}"}

    def mapping(self, cls: type[Struct], tag: str = "", choice: str = "") -> dict[str, Any]:
        """Return the schema of a struct; `tag` is the key that names it, as `choice`."""
        properties: dict[str, Any] = {tag: {"const": choice}} if tag else {}
        for key, field in fields_of(cls).items():
            schema = _POLICY if cls is RouteSettings and key == "policy" else self.of(field.type)
            default = field.default_factory() if field.default_factory is not NODEFAULT else field.default
            if isinstance(default, bool | int | float | str):
                schema = {**schema, "default": float(default) if isinstance(default, Duration) else default}
            properties[key] = schema
        required = [tag] if tag else []
        required += [key for key, field in fields_of(cls).items() if field.required]
        return {
            "type": "object",
            "description": _described(cls),
            "properties": {**properties, "<<": {}},
            "required": required,
            "additionalProperties": False,
        }

    def policy(self) -> dict[str, Any]:
        """A model's name, or a mapping with one key: a kind, `file`, or the dotted name of a user's class."""
        kinds: dict[str, Any] = {}
        for name, cls in KINDS.items():
            forms = [self.ref(cls)]
            first = self.of(next(iter(fields_of(cls).values())).type)
            if first.get("type") == "array":
                forms.append(first)
            kinds[name] = {"anyOf": forms, "description": _described(cls)}
        kinds["file"] = {"type": "string", "description": "A policy file that `rheostat tune` wrote."}
        mapping = {
            "type": "object",
            "properties": kinds,
            "patternProperties": {_OWN_CLASS: {"description": "Your own policy class, with its fields."}},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }
        return {"anyOf": [{"type": "string", "description": "One model, always."}, mapping]}

    def _name(self, cls: type) -> str:
        """Reserve the name of a struct; two of the same name are told apart."""
        name = cls.__name__
        while name in self.defs:
            name += "_"
        self.names[cls] = name
        self.defs[name] = {}
        return name

    def _list(self, origin: Any, args: tuple[Any, ...]) -> dict[str, Any]:
        if origin is tuple and args and Ellipsis not in args:
            items = [self.of(item) for item in args]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        return {"type": "array", "items": self.of(args[0]) if args else {}}

    def _chosen(self, base: type[Struct], registry: Mapping[str, type[Struct]]) -> dict[str, Any]:
        """A mapping of which one key says what else it may hold."""
        tag = base.__struct_config__.tag_field or ""
        choices = []
        for name, cls in registry.items():
            own = self._name(cls)
            self.defs[own] = self.mapping(cls, tag, name)
            condition = {"properties": {tag: {"const": name}}, "required": [tag]}
            choices.append({"if": condition, "then": {"$ref": f"#/$defs/{own}"}})
        schema = {"type": "object", "description": _described(base), "properties": {tag: {"enum": list(registry)}}}
        return {**schema, "required": [tag], **({"allOf": choices} if choices else {})}


def _scalar(hint: Any) -> dict[str, Any]:
    return {"type": _SCALARS[hint]}


def _or_variable(schema: dict[str, Any]) -> dict[str, Any]:
    """A variable may stand for any number or switch."""
    return {"anyOf": [schema, _VARIABLE]} if schema["type"] in ("integer", "number", "boolean") else schema


def _bounds(meta: Any) -> list[tuple[str, Any]]:
    if not isinstance(meta, Meta):
        return []
    return [(key, getattr(meta, key)) for key in _BOUNDS if getattr(meta, key) is not None]


def _described(cls: type) -> str:
    return re.sub(r"\s+", " ", cls.__doc__ or "").strip()
