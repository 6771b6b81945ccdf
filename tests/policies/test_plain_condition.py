"""What plain conditions say is what CEL says, whatever a request carries."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.policies.plain_condition import plain_condition
from rheostat.policies.rules import Rule, Rules, _context_class, _variables
from rheostat.types import Context, Request

LITERALS = ("'high'", '"a b"', "''", "3", "-2", "0.5", "3.0", "-0.0", "900719925474099")
VALUES = st.one_of(
    st.none(), st.booleans(), st.sampled_from(("high", "a b", "", "3", "é", "\U0001f600")), st.integers(-5, 5),
    st.sampled_from((2**53, -(2**53), 2**62, 900719925474099, 3.0, 0.5, -0.0, float("inf"), float("-inf"))),
    st.floats(allow_nan=False), st.lists(st.integers(), max_size=2),
    st.dictionaries(st.just("a"), st.integers(), max_size=1),
)  # fmt: skip
SUBJECTS = (
    "meta.a",
    "meta['a']",
    'meta[ "b" ]',
    "signals.s",
    "headers['x-a']",
    "data.a",
    "session",
    "tenant",
    "route",
    "text.size()",
)
TERMS = st.tuples(st.sampled_from(SUBJECTS), st.sampled_from(("==", "!=", "<", "<=", ">", ">=")), st.sampled_from(LITERALS))
CONDITIONS = st.lists(TERMS.map(" ".join), min_size=1, max_size=3).map(" && ".join)
FIELDS = st.dictionaries(st.sampled_from(("a", "b")), VALUES, max_size=2)
REQUESTS = st.builds(
    Request, id=st.just("r"), data=st.one_of(st.just("text"), FIELDS), text=st.text("aé\U0001f600", max_size=4), meta=FIELDS,
    headers=st.dictionaries(st.just("x-a"), st.sampled_from(("high", "3", "")), max_size=1),
    session=st.sampled_from((None, "", "high", "3")), tenant=st.sampled_from((None, "high")),
)  # fmt: skip
SIGNALS = st.dictionaries(st.just("s"), st.floats(allow_nan=False), max_size=1)


@settings(max_examples=1_500, deadline=None)
@given(CONDITIONS, REQUESTS, SIGNALS)
def test_a_plain_condition_says_what_cel_says(source: str, request: Request, signals: dict[str, float]) -> None:
    plain = plain_condition(source)
    if plain is None:
        return
    ctx = Context(request, signals, {}, {}, {})
    said = plain(ctx)
    if said is None:
        return
    try:
        rules = Rules(rules=(Rule(use="m", when=source),))  # type: ignore[arg-type]
    except ValueError:  # CEL finds that it can never be worked out
        return
    compiled = rules.compiled[0]  # type: ignore[attr-defined]
    scope = _context_class()(variables=_variables(ctx, rules.roots))  # type: ignore[attr-defined]
    assert said is compiled.holds(scope)


@pytest.mark.parametrize(
    "source",
    [
        "meta.a == 'x' || meta.b == 'y'", "!(meta.a == 'x')", "meta.a.b == 'x'", "meta.a in ['x']", "meta.a == r'x'",
        "meta.a == 'it\\'s'", "meta.a == 'a && b'", "meta.a < 'x'", "meta.a == 1u", "meta.a == 9007199254740993",
        "text.size() == 'x'", "text == 'x'", "pool.m.queued > 3", "has(meta.a)", "meta.a == true", "meta.a == meta.b",
        "3 < meta.a",
        "meta.a() == 'x'", "(meta.a == 'x')", "meta.a == 1.", "meta.é == 'x'",
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_cel(source: str) -> None:
    assert plain_condition(source) is None


@pytest.mark.parametrize(
    ("source", "meta", "said"),
    [
        ("meta.a == 'x'", {"a": "x"}, True), ("meta.a == 'x'", {}, False), ("meta.a == 'x'", {"a": 1}, None),
        ("meta.a != 'x'", {}, False), ("meta.a > 3", {"a": 3.5}, True), ("meta.a > 3", {"a": True}, None),
        ("meta.a > 3", {"a": float("nan")}, None), ("meta.a == 'x' && meta.b == 'y'", {"b": "z"}, False),
        ("meta.a == 'x' && meta.b == 'y'", {"b": "y"}, False), ("meta.a == 'x' && meta.b == 'y'", {"a": [], "b": "y"}, None),
        ("meta.a == 'x' && meta.b == 'y'", {"a": [], "b": "z"}, False),
    ],
)  # fmt: skip
def test_it_decides_only_what_is_beyond_doubt(source: str, meta: dict[str, Any], said: bool | None) -> None:
    plain = plain_condition(source)
    assert plain is not None
    assert plain(Context(Request(id="r", data="", meta=meta))) is said
