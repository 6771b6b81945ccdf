"""Conditions so plain that Python answers them: a field, an operator, a literal, joined by `&&`.

CEL decides what a condition means. To hand it a request costs ten times as much as one comparison, so those whose outcome
leaves no doubt (text against text, a number against a number) are worked out here; where there is doubt, CEL is asked.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from rheostat.types import Context

Plain = Callable[[Context], bool | None]
"""Says whether a condition holds; None: ask CEL. A field that the request does not have makes it false."""
_Test = Callable[[Any], bool | None]
_ABSENT: Final = "absent"
_EXACT: Final = 2.0**53
"""Below it, whole numbers are the same as floating-point ones."""
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_TERM: Final = re.compile(
    r"""\s*(?:(?P<size>text\.size\(\))|(?P<name>session|tenant|route)"""
    r"""|(?P<root>meta|headers|signals|data)(?:\.(?P<field>[A-Za-z_]\w*)|\[\s*(?P<mark>['"])(?P<key>[^'"\\]*)(?P=mark)\s*\]))"""
    r"""\s*(?P<sign>==|!=|<=|>=|<|>)\s*"""
    r"""(?:'(?P<single>[^'\\]*)'|"(?P<double>[^"\\]*)"|(?P<number>-?\d{1,15}(?:\.\d{1,15})?))\s*""",
    re.ASCII,
)


def plain_condition(source: str) -> Plain | None:
    """Return what works the condition out, or None when it is none of the plain ones."""
    matches = [_TERM.fullmatch(part) for part in source.split("&&")]
    terms = [_term(match) for match in matches if match is not None]
    known = [term for term in terms if term is not None]
    if len(known) < len(matches):
        return None
    if len(known) == 1:
        (only,) = known

        def holds(ctx: Context) -> bool | None:
            found = only(ctx)
            return False if found is _ABSENT else found  # type: ignore[return-value]

        return holds

    def all_hold(ctx: Context) -> bool | None:
        """As in CEL, one that is false outweighs others that cannot be worked out."""
        found = [term(ctx) for term in known]
        if False in found:
            return False
        return None if None in found else _ABSENT not in found

    return all_hold


def _term(match: re.Match[str]) -> Callable[[Context], bool | str | None] | None:
    test = _test(match["sign"], match)
    if test is None:
        return None
    if match["size"]:
        return None if match["number"] is None else _size(test)
    if match["name"]:
        return _named(operator.attrgetter(f"request.{match['name']}"), test)
    root = match["root"]
    name = match["field"] if match["field"] is not None else match["key"]
    return _field(operator.attrgetter("signals" if root == "signals" else f"request.{root}"), name, test)


def _test(sign: str, match: re.Match[str]) -> _Test | None:
    compare = _OPERATORS[sign]
    if match["number"] is not None:
        number = float(match["number"]) if "." in match["number"] else int(match["number"])

        def of_number(value: Any) -> bool | None:
            kind = type(value)
            return compare(value, number) if (kind is float or kind is int) and -_EXACT < value < _EXACT else None

        return of_number
    text = match["single"] if match["single"] is not None else match["double"]
    if sign not in ("==", "!="):
        return None

    def of_text(value: Any) -> bool | None:
        return compare(value, text) if type(value) is str else None

    return of_text


def _size(test: _Test) -> Callable[[Context], bool | None]:
    def holds(ctx: Context) -> bool | None:
        text = ctx.request.text
        return test(len(text)) if text.isascii() else None

    return holds


def _named(get: Callable[[Context], Any], test: _Test) -> Callable[[Context], bool | None]:
    def holds(ctx: Context) -> bool | None:
        value = get(ctx)
        return test("" if value is None else value)

    return holds


def _field(get: Callable[[Context], Any], name: str, test: _Test) -> Callable[[Context], bool | str | None]:
    def holds(ctx: Context) -> bool | str | None:
        fields = get(ctx)
        if type(fields) is not dict and not isinstance(fields, Mapping):
            return None
        return test(fields[name]) if name in fields else _ABSENT

    return holds
