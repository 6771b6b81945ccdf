"""Types, as the file sees them: their fields, their shape and their name in words."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Struct, UnsetType, structs

from rheostat.types.duration import Duration

LISTS = (tuple, list, set, frozenset, Sequence)
_NAMES: dict[Any, str] = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}


@lru_cache(maxsize=256)
def fields_of(cls: type[Struct]) -> dict[str, structs.FieldInfo]:
    """Return the fields of a struct by the name they have in the file."""
    return {field.encode_name: field for field in structs.fields(cls)}


def expected(hint: Any) -> str:
    """Say in words what a value of this type looks like."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    origin, args = get_origin(hint), get_args(hint)
    if hint in _NAMES:
        return _NAMES[hint]
    if origin is Literal:
        return "one of " + ", ".join(map(str, args))
    if origin in (Union, types.UnionType):
        return " or ".join(expected(option) for option in args if option not in (type(None), UnsetType))
    if (origin or hint) in LISTS:
        if origin is tuple and Ellipsis not in args:
            return f"a list of {len(args)} items, each {expected(args[0])}" if args else "a list"
        return f"a list, each item {expected(args[0])}" if args and args[0] is not Any else "a list"
    if isinstance(origin or hint, type):
        if issubclass(origin or hint, Struct):
            return f"a mapping with {', '.join(list(fields_of(hint))[:6])}" if fields_of(hint) else "a mapping"
        if issubclass(origin or hint, Mapping):
            return "a mapping"
        if hint is Duration:
            return "a duration such as 300ms, 2s or 5m (or a number of seconds)"
        return "a policy" if hint.__name__ == "Policy" else hint.__name__
    return "a value"


def shape_of(hint: Any) -> str:
    """Return whether values of this type are written as a `list`, a `map` or a `scalar`."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    kind = get_origin(hint) or hint
    if kind in LISTS:
        return "list"
    return "map" if isinstance(kind, type) and issubclass(kind, Struct | Mapping) else "scalar"
