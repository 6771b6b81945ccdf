"""From the tree to the structs, keeping every mistake with its place."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct, UnsetType, structs

from rheostat.config.document import UNKNOWN, Node
from rheostat.config.hints import LISTS, expected, fields_of, shape_of
from rheostat.config.scalars import resolve
from rheostat.errors import Problem
from rheostat.types.duration import Duration

BAD: Any = object()
"""What decoding returns where a problem was noted."""

Special = Callable[["Decoder", Node, str], Any]

_BOUND = re.compile(r"Expected `\w+`( of length)? (>=|>|<=|<) (\S+)")
_BOUNDS = {">=": "{} or more", ">": "more than {}", "<=": "{} or less", "<": "less than {}"}
_FIELD = re.compile(r"`([^`]+)`")
_CUT = 24
_SWITCHES = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


class Decoder:
    """Decodes nodes by type. `special` says how types that are chosen by name (models, policies) are read.

    `problems` collects mistakes, `lines` the line of every path, `decoded` every struct by path; one with
    mistakes has the defaults in their place (None where there is no default), so that the rest of it can be checked.
    `hidden` maps texts that no message may show to what stands there instead.
    """

    def __init__(self, special: Mapping[Any, Special], places: Callable[[], Mapping[str, Sequence[str]]]) -> None:
        self.special = special
        self.places = places
        self.problems: list[Problem] = []
        self.lines: dict[str, int] = {}
        self.decoded: dict[str, Any] = {}
        self.hidden: dict[str, str] = {}

    def problem(self, path: str, line: int, message: str) -> Any:
        """Note a mistake; return BAD."""
        self.problems.append(Problem(path, line, self.hushed(message)))
        return BAD

    def decode(self, node: Node, hint: Any, path: str) -> Any:
        """Return the value of `node` as a `hint`, or BAD."""
        self.lines.setdefault(path, node.line)
        if node.value is UNKNOWN:
            return BAD
        bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        origin = get_origin(bare)
        if bare in (Any, object):
            return BAD if _unknown_inside(node) else node.data()
        if bare in self.special:
            return self.special[bare](self, node, path)
        if origin in (Union, types.UnionType):
            return self._union(node, bare, path)
        if isinstance(bare, type) and issubclass(bare, Struct):
            return self.struct(node, bare, path)
        if (origin or bare) in LISTS:
            return self._list(node, bare, path)
        if isinstance(origin or bare, type) and issubclass(origin or bare, Mapping):
            return self._mapping(node, bare, path)
        return self._leaf(node, hint, path)

    def struct(self, node: Node, cls: type[Struct], path: str, skip: str | None = None, short: str | None = None) -> Any:
        """Return `cls` made from a mapping, or BAD. `skip` is a key that was read already, `short` one that is not written
        and so has no place in paths."""
        if not isinstance(node.value, dict):
            return self.problem(path, self.lines[path], f"expected {expected(cls)}, got {node.shown()}")
        fields = fields_of(cls)
        values: dict[str, Any] = {}
        complete = True
        for key, child in node.value.items():
            if key == skip:
                continue
            where = path if key == short else f"{path}.{key}" if path else key
            self.lines[where] = node.keys[key]
            field = fields.get(key)
            if field is None:
                self.problem(where, node.keys[key], self._stranger(key, fields, path))
                complete = False
                continue
            values[field.name] = self.decode(child, field.type, where)
        for key, field in fields.items():
            if field.required and key not in node.value:
                message = f"`{key}` is missing; it is {expected(field.type)}"
                self.problem(path, self.lines.get(path, node.line), message)
                complete = False
        if not complete or any(value is BAD for value in values.values()):
            self.decoded[path] = _partial(fields, values)
            return BAD
        try:
            made = cls(**values)
        except Exception as error:  # a user's own class may raise anything
            self.decoded[path] = _partial(fields, values)
            return self.refused(node, path, error)
        self.decoded[path] = made
        return made

    def refused(self, node: Node, path: str, error: Exception) -> Any:
        """Note that a struct's own check said no; its message begins with the field it is about."""
        message = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        line = self.lines[path]
        match = _FIELD.match(message)
        rest = match[1] if match else ""
        while rest:
            step, rest = _step(node, rest)
            if isinstance(node.value, dict) and step in node.value:
                line, node, path = node.keys[step], node.value[step], f"{path}.{step}"
            elif isinstance(node.value, list) and step.isdigit() and int(step) < len(node.value):
                node, path = node.value[int(step)], f"{path}[{step}]"
                line = node.line
            else:
                break
        return self.problem(path, line, message)

    def _union(self, node: Node, hint: Any, path: str) -> Any:
        options = [option for option in get_args(hint) if option is not UnsetType]
        if node.value is None and type(None) in options:
            return None
        shape = _shape_of(node)
        fitting = [each for each in options if each in self.special or (each is not type(None) and shape_of(each) == shape)]
        if len(fitting) == 1:
            return self.decode(node, fitting[0], path)
        if fitting and all(shape_of(option) == "scalar" for option in fitting):
            return self._leaf(node, Union[tuple(fitting)], path)  # noqa: UP007
        return self.problem(path, self.lines[path], f"expected {expected(hint)}, got {node.shown()}")

    def _list(self, node: Node, hint: Any, path: str) -> Any:
        if not isinstance(node.value, list):
            hint_text = f"; write [{node.source}]" if _shape_of(node) == "scalar" and node.value is not None else ""
            return self.problem(path, self.lines[path], f"expected {expected(hint)}, got {node.shown()}{hint_text}")
        origin, items = get_origin(hint) or hint, get_args(hint) or (Any, ...)
        fixed = origin is tuple and Ellipsis not in items
        if fixed and len(node.value) != len(items):
            return self.problem(path, self.lines[path], f"expected {expected(hint)}, got {len(node.value)} of them")
        kinds = items if fixed else (items[0],) * len(node.value)
        pairs = enumerate(zip(node.value, kinds, strict=True))
        values = [self.decode(child, kind, f"{path}[{index}]") for index, (child, kind) in pairs]
        if any(value is BAD for value in values):
            return BAD
        return values if origin in (list, Sequence) else origin(values)

    def _mapping(self, node: Node, hint: Any, path: str) -> Any:
        if not isinstance(node.value, dict):
            return self.problem(path, self.lines[path], f"expected {expected(hint)}, got {node.shown()}")
        names, kind = get_args(hint) or (str, Any)
        values: dict[Any, Any] = {}
        for key, child in node.value.items():
            where = f"{path}.{key}"
            self.lines[where] = node.keys[key]
            if names is int and not key.isdecimal():
                return self.problem(where, node.keys[key], f"expected a whole number before the colon, got {key!r}")
            values[int(key) if names is int else key] = self.decode(child, kind, where)
        return BAD if any(value is BAD for value in values.values()) else values

    def _leaf(self, node: Node, hint: Any, path: str) -> Any:
        value = node.value
        if isinstance(value, dict | list):
            return self.problem(path, self.lines[path], f"expected {expected(hint)}, got {node.shown()}")
        if node.variables and node.plain and hint is not str:
            value = resolve(value)  # a variable can hold nothing but text, so the type asked for decides
        parse = getattr(hint, "parse", None)
        try:
            return parse(value) if parse is not None else msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            return self.problem(path, self.lines[path], self._mistyped(node, hint, str(error)))
        except (ValueError, TypeError) as error:
            shown = f"expected {expected(hint)}, got {node.shown()}" if node.variables or hint is Duration else str(error)
            return self.problem(path, self.lines[path], shown)

    def _mistyped(self, node: Node, hint: Any, said: str) -> str:
        text, written = node.value, resolve(node.value) if isinstance(node.value, str) else node.value
        bound = _BOUND.match(said)
        if bound is not None and "got" not in said:
            what = "its length must be" if bound[1] else "must be"
            return f"{what} {_BOUNDS[bound[2]].format(bound[3])}, got {node.shown()}"
        message = f"expected {expected(hint)}, got {node.shown()}"
        if node.variables:
            return message
        if isinstance(text, str):
            options = [str(option) for option in get_args(hint)] if get_origin(hint) is Literal else []
            if near := get_close_matches(text, options, n=1):
                return f"{message}; did you mean `{near[0]}`?"
            if hint is bool and text.lower() in _SWITCHES:
                return f"{message}; write {_SWITCHES[text.lower()]}"
            if isinstance(written, int | float) and hint in (int, float, bool):
                return f"{message}; write it without quotes: {text}"
            if hint in (int, float) and re.fullmatch(r"[-+]?[0-9][0-9_]*", text):
                return f"{message}; write {int(text)}"
        elif hint is str and node.value is not None:
            return f'{message}; write it in quotes: "{node.source}"'
        return message

    def _stranger(self, key: str, fields: Mapping[str, Any], path: str) -> str:
        near = get_close_matches(key.replace("-", "_").lower(), fields, n=1, cutoff=0.6)
        close = get_close_matches(key, fields, n=1, cutoff=0.85)
        elsewhere = [place for place in self.places().get(key, ()) if place != path]
        if elsewhere and not close:
            return f"unknown key; `{key}` belongs under {' or '.join(elsewhere[:3])}"
        if near:
            return f"unknown key; did you mean `{near[0]}`?"
        known = self.places()
        if far := get_close_matches(key, known, n=1, cutoff=0.75):
            return f"unknown key; did you mean `{far[0]}`, which belongs under {' or '.join(known[far[0]][:3])}?"
        return f"unknown key; known here: {', '.join(fields)}" if fields else "unknown key; nothing more can be said here"

    def hushed(self, message: str) -> str:
        """Return a message without what it must not show."""
        for text, instead in self.hidden.items():
            message = message.replace(text, instead).replace(repr(text)[1:-1], instead)
            if text[:_CUT] in message:  # a message may show only how a long text begins
                return f"this value is not accepted here (from {instead}, so it is not shown)"
        return message


def _shape_of(node: Node) -> str:
    return "list" if isinstance(node.value, list) else "map" if isinstance(node.value, dict) else "scalar"


def _step(node: Node, place: str) -> tuple[str, str]:
    """Split the first step off a place such as `weights.large-b` or `arms[1].share`; keys may have dots."""
    known = node.value if isinstance(node.value, dict) else {}
    keys = [key for key in known if (place + ".").startswith((f"{key}.", f"{key}["))]
    step = max(keys, key=len) if keys else re.split(r"[.\[\]]+", place.strip("[]."))[0]
    return step, place.lstrip("[")[len(step) :].lstrip("].")


def _partial(fields: Mapping[str, structs.FieldInfo], values: Mapping[str, Any]) -> types.SimpleNamespace:
    found: dict[str, Any] = {}
    for field in fields.values():
        made = field.default_factory() if field.default_factory is not NODEFAULT else field.default
        found[field.name] = values.get(field.name, BAD)
        if found[field.name] is BAD:
            found[field.name] = None if made is NODEFAULT else made
    return types.SimpleNamespace(**found)


def _unknown_inside(node: Node) -> bool:
    if isinstance(node.value, dict | list):
        return any(_unknown_inside(child) for child in (node.value.values() if isinstance(node.value, dict) else node.value))
    return node.value is UNKNOWN
