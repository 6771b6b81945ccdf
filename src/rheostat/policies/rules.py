"""Readable conditions, checked when loaded; the first that holds decides."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import re2
from msgspec import Struct

from rheostat.policies.base import History, Policy, left_to, require
from rheostat.policies.plain_condition import plain_condition
from rheostat.types import Context, Decision, Decline
from rheostat.types.text import normalise_text

VARIABLES = ("text", "data", "meta", "headers", "signals", "session", "tenant", "route", "pool")
"""What a condition may speak of; `pool.NAME` has what `_pool` names of a model's view."""


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One rule: where everything it states holds, `use` (a model or a policy) decides.

    `when` is a CEL condition over `text`, `data`, `meta`, `headers`, `signals`, `session`, `tenant`, `route` and `pool`
    (`pool.NAME` has `available`, `loaded`, `cost`, `tier`, `quality`, `latency_s`, `in_flight`, `queued`, `limit`, `ramp`,
    `error_rate` and `throughput`, in calls a second); a field that the request does not have makes it false. `contains`
    holds when the text has any of the words, `matches` when the pattern (RE2, linear time) is found in it. Rules of higher
    `priority` are tried first, equal ones in the order written.
    """

    use: Policy
    name: str = ""
    when: str | None = None
    contains: tuple[str, ...] | str = ()
    matches: str | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        stated = (self.when is not None, bool(self.words()), self.matches is not None)
        require(any(stated), "a rule needs at least one of `when`, `contains`, `matches`")
        self.__dict__["program"] = compile_condition(self.when) if self.when is not None else None

    def words(self) -> tuple[str, ...]:
        """Return the words of `contains`."""
        return (self.contains,) if isinstance(self.contains, str) else self.contains


class Rules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Rules by priority, first match wins; where none holds the next policy of the chain is asked.

    With `normalise` (the default) `contains` and `matches` read the text in compatibility form (NFKC), case-folded
    without regard to locale and without invisible characters, and so do the words and patterns; the models always get
    the original.
    """

    rules: tuple[Rule, ...]
    normalise: bool = True
    name: str = "rules"

    def __post_init__(self) -> None:
        require(len(self.rules) > 0, "`rules` is empty")
        ordered = sorted(self.rules, key=lambda rule: -rule.priority)
        self.__dict__["compiled"] = tuple(_Compiled(rule, index, self.normalise) for index, rule in enumerate(ordered))
        programs = [rule.__dict__["program"] for rule in self.rules]
        roots = {root for program in programs if program is not None for root in program.variables()}
        sources = [rule.when for rule in self.rules if rule.when is not None]
        self.__dict__["roots"] = tuple((root, fields_read(sources, root)) for root in VARIABLES if root in roots)
        self.__dict__["load"] = load_read(sources) if "pool" in roots else ()
        self.__dict__["scope"] = _context_class() if roots else None
        self.__dict__["memo_key"] = f"rules:{id(self)}"
        self.__dict__["reads_text"] = any(rule.words() or rule.matches for rule in self.rules)

    def signals(self) -> tuple[str, ...]:
        return tuple(sorted({name for rule in self.rules if rule.when for name in _signals_in(rule.when)}))

    def live(self) -> tuple[str, ...]:
        """Return what the conditions read of the models' load."""
        return self.load  # type: ignore[attr-defined, no-any-return]

    def decide(self, ctx: Context, history: History) -> Decision:
        memo, key = ctx.memo, self.memo_key  # type: ignore[attr-defined]
        hit: _Compiled | None = memo[key] if key in memo else memo.setdefault(key, self._first(ctx))
        if hit is None:
            return _NONE
        return left_to(hit.use, ctx, history, hit.reason, self.name)

    def _first(self, ctx: Context) -> _Compiled | None:
        text = ctx.request.text
        if self.normalise and self.reads_text:  # type: ignore[attr-defined]
            text = normalise_text(text)
        scope: Any = None
        rule: _Compiled
        for rule in self.compiled:  # type: ignore[attr-defined]
            if not rule.fits(text):
                continue
            holds = rule.plain(ctx) if rule.plain is not None else None
            if holds is None and rule.program is not None:
                if scope is None:
                    scope = self.scope(variables=_variables(ctx, self.roots))  # type: ignore[attr-defined]
                holds = rule.holds(scope)
            if holds is not False:
                return rule
        return None


_NONE: Final = Decline("no rule holds")


class _Compiled:
    """A rule ready to be tried."""

    __slots__ = ("pattern", "plain", "program", "reason", "use", "words")

    def __init__(self, rule: Rule, index: int, normalise: bool) -> None:
        self.use = rule.use
        self.program = rule.__dict__["program"]
        self.plain = plain_condition(rule.when) if rule.when is not None else None
        self.words = tuple(normalise_text(word) if normalise else word for word in rule.words())
        self.pattern = compile_pattern(rule.matches, normalise) if rule.matches is not None else None
        self.reason = f"rule '{rule.name or index + 1}'"

    def fits(self, text: str) -> bool:
        """Whether the text has what `contains` and `matches` ask for."""
        if self.words and not any(word in text for word in self.words):
            return False
        return self.pattern is None or self.pattern.search(text.encode("utf-8", "replace").decode()) is not None

    def holds(self, scope: Any) -> bool:
        """Whether `when` holds."""
        try:
            return self.program.execute(scope) is True
        except KeyError:  # the request does not carry the field
            return False
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{self.reason}: {str(error).partition('. ')[0]}") from None


def compile_condition(source: str) -> Any:
    """Compile a CEL condition and check the names it uses.

    Raises:
        ValueError: a syntax error, or a name that is not one of VARIABLES.
    """
    import cel  # brings a command line of its own along; only those who have conditions wait for it

    try:
        program = cel.compile(source)
    except ValueError as error:
        raise ValueError(f"`when` is not a condition: {str(error).splitlines()[0]}") from None
    for root in program.variables():
        if root not in VARIABLES:
            near = difflib.get_close_matches(root, VARIABLES, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(VARIABLES)}"
            raise ValueError(f"`when` uses the unknown name `{root}`; {hint}")
    _try_out(program)
    return program


def _try_out(program: Any) -> None:
    """Refuse a condition that can never be worked out, such as `text.size > 3`, whose fields are not to blame."""
    told = ""
    alternatives: tuple[Any, ...] = ({}, "")
    for data in alternatives:  # data may be features or a text
        scope: dict[str, Any] = {name: {} for name in ("meta", "headers", "signals", "pool")}
        scope |= {"text": "", "data": data, "session": "", "tenant": "", "route": ""}
        try:
            program.execute(scope)
        except KeyError:  # a field that an empty request does not have
            return
        except (TypeError, ValueError, RuntimeError) as error:
            told = str(error).partition(". ")[0]
        else:
            return
    raise ValueError(f"`when` can never be worked out: {told} (a method is called with parentheses: `text.size()`)")


def _context_class() -> Any:
    import cel

    return cel.Context


def compile_pattern(source: str, normalise: bool) -> Any:
    """Compile a text pattern for a linear-time engine; case is ignored when text is normalised.

    Raises:
        ValueError: RE2 does not accept the pattern (look-around and back-references are not linear).
    """
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not normalise
    try:
        return re2.compile(source, options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        raise ValueError(f"`matches` is not a pattern RE2 accepts: {reason}") from None


def _signals_in(source: str) -> tuple[str, ...]:
    """Names used as `signals.NAME` or `signals["NAME"]`; found as text, so that loading can check them and nothing is scored
    in vain."""
    return fields_read([source], "signals") or ()


_FIELD: Final = r"""\s*\.\s*([A-Za-z_]\w*)\b(?!\s*\()|\s*\[\s*"([^"\\]*)"\s*\]|\s*\[\s*'([^'\\]*)'\s*\]"""
"""`.NAME`, `["NAME"]` or `['NAME']`; what is called (`.size()`), raw or escaped is not."""


def fields_read(sources: Sequence[str], root: str) -> tuple[str, ...] | None:
    """Return the fields of `root` that the conditions read, or None when one of them uses it as a whole.

    Handing a value to CEL costs a copy of it, so only what is read is handed over. A word inside a string literal may add
    a field too many, never one too few.
    """
    fields: set[str] = set()
    for source in sources:
        for match in re.finditer(rf"\b{root}\b(?:{_FIELD})?", source):
            if match.lastindex is None:
                return None
            fields.add(match[match.lastindex])
    return tuple(sorted(fields))


LOAD: Final = frozenset(("latency_s", "in_flight", "queued", "limit", "ramp", "error_rate", "throughput"))
"""What `pool.NAME` says of how busy and how well a model is; a table has none of it."""


def load_read(sources: Sequence[str]) -> tuple[str, ...]:
    """Return what of the models' load the conditions read, as it is written; where a model, or the pool, is used as a whole,
    that."""
    found: dict[str, None] = {}
    for source in sources:
        for match in re.finditer(rf"\bpool\b(?:(?:{_FIELD})(?:{_FIELD})?)?", source):
            field = match[match.lastindex] if match.lastindex is not None and match.lastindex > 3 else None
            if field is None or field in LOAD:
                found[match[0]] = None
    return tuple(found)


def _variables(ctx: Context, roots: tuple[tuple[str, tuple[str, ...] | None], ...]) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    for root, fields in roots:
        value = _pool(ctx) if root == "pool" else ctx.signals if root == "signals" else getattr(ctx.request, root)
        if isinstance(value, Mapping):
            names = value if fields is None else fields
            scope[root] = {name: value[name] for name in names if name in value}
        else:
            scope[root] = "" if value is None else value
    return scope


def _pool(ctx: Context) -> dict[str, Any]:
    return {
        name: {
            "available": view.available,
            "loaded": view.loaded,
            "cost": view.cost,
            "tier": view.tier,
            "quality": view.quality,
            "latency_s": view.latency_s,
            "in_flight": view.in_flight,
            "queued": view.queued,
            "limit": view.limit,
            "ramp": view.ramp,
            "error_rate": view.error_rate,
            "throughput": view.throughput,
        }
        for name, view in ctx.pool.items()
    }
