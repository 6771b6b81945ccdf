"""YAML read with its places: words that are not switches, variables, syntax errors, bombs."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from config_files import GOOD, load, problems, with_model

from rheostat.config.document import MAX_DEPTH, read_document
from rheostat.config.scalars import resolve
from rheostat.errors import Problem


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("on", "on"), ("Yes", "Yes"), ("true", True), ("False", False), ("~", None), ("null", None),
        ("12", 12), ("-3", -3), ("010", "010"), ("0x1F", 31), ("0o17", 15), ("1_000", "1_000"), ("1:30", "1:30"),
        ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("1.", 1.0), ("2026-11-01", "2026-11-01"), (".inf", float("inf")),
        ("1.2.3", "1.2.3"), ("9" * 19, float("9" * 19)), ("=", "="),
    ],
)  # fmt: skip
def test_unquoted_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)
    document = read_document(f"a: {text}\n", {})
    assert document.root is not None
    assert document.root.data() == {"a": value}


def test_quoted_and_tagged_scalars_stay_text() -> None:
    document = read_document("a: '12'\nb: !!str 12\nc: \"no\"\nd: |\n  1\n", {})
    assert document.root is not None
    assert document.root.data() == {"a": "12", "b": "12", "c": "no", "d": "1\n"}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: [1, 2\nb: 3\n", 2, "a list [...] is not closed, or lacks a comma (it began in line 1)"),
        ("x: 1\na: {b: 1\nc: 2", 3, "a mapping {...} is not closed"),
        ("a: 1\n\tb: 2\n", 2, "a tab; indent with spaces"),
        ("a: b: c\n", 1, "a `:` where no key can stand"),
        ("a: 1\nb: 'text\n", 3, "a quote that is opened here is never closed (it began in line 2)"),
        ("a: @x\n", 1, "text that starts with @ must be quoted"),
        ("a: *x\n", 1, "needs an `&name` above it"),
        ("a: 1\n---\nb: 2\n", 2, "only one document"),
        ("a:\n  b: 1\n c: 2\n", 3, "indentation does not fit"),
        ("- a\nb: 1\n", 2, "indentation does not fit"),
        ("a: 1\nb: x\x00y\n", 2, "the character U+0000 is not allowed"),
    ],
)
def test_a_syntax_error_has_its_line_and_remedy(tmp_path: pathlib.Path, text: str, line: int, said: str) -> None:
    (problem,) = problems(tmp_path, text)
    assert problem.line == line
    assert said in problem.message


def test_a_key_that_stands_twice_is_refused(tmp_path: pathlib.Path) -> None:
    found = problems(tmp_path, with_model("cost: 1") + "routes: {}\n")
    assert found == [Problem("routes", 4, "`routes` stands twice, first in line 3")]
    found = problems(tmp_path, with_model("cost: 1, cost: 2"))
    assert [problem.path for problem in found] == ["models.a.cost"]


def test_variables_are_replaced_in_values_only() -> None:
    text = "a: ${X}/v1\nb: {c: ${X}, d: ${Y:-z}, e: '${Z:-}', f: '$${X}y'}\n${X}: ${X}\n# ${NONE}\n"
    document = read_document(text, {"X": "12", "Z": ""})
    assert document.problems == []
    assert document.root is not None
    assert document.root.data() == {"a": "12/v1", "b": {"c": "12", "d": "z", "e": "", "f": "${X}y"}, "${X}": "12"}
    assert document.variables == {"X": "12"}


def test_a_variable_that_is_not_set_is_named_once(tmp_path: pathlib.Path) -> None:
    (problem,) = problems(tmp_path, GOOD, {"LARGE_KEY": "sk-large-0123456789"})
    assert (problem.path, problem.line) == ("models.large.base_url", 7)
    assert "LARGE_URL is not set" in problem.message
    (problem,) = problems(tmp_path, with_model("version: '${1X}'"))
    assert "is not a variable" in problem.message


def test_an_unquoted_variable_may_be_a_number(tmp_path: pathlib.Path) -> None:
    text = with_model("version: ${V}, cost: ${COST}, each: ${EACH}")
    model = load(tmp_path, text, {"V": "12", "COST": "2.5", "EACH": "true"}).config.models["a"]
    assert (model.version, model.cost, model.each) == ("12", 2.5, True)  # type: ignore[attr-defined]
    (problem,) = problems(tmp_path, text.replace("${COST}", "'${COST}'"), {"V": "12", "COST": "2.5", "EACH": "true"})
    assert problem.message == "expected a number, got the text '${COST}'"


def test_no_message_shows_what_a_variable_or_a_secret_holds(tmp_path: pathlib.Path) -> None:
    value = "hush-hush-0123456789-0123456789-0123456789"
    text = (
        f"models:\n  a: {{backend: ${{S}}, callable: x, cost: ${{S}}, peers: [${{S}}], lighter: ${{S}}}}\n"
        f"  b: {{backend: onnx, path: ${{S}}, timeout: ${{S}}, run: ${{S}}, breaker: ${{S}}}}\n"
        f"  c: {{backend: openai, base_url: x, model: m, api_key: [{value}], lighter: ${{S}}}}\n"
        f"routes:\n  default:\n    policy: {{rules: [{{when: '${{S}} ==', use: ${{S}}}}, {{matches: '(${{S}}', use: b}}]}}\n"
        f"  second: {{policy: {{${{S}}: x}}}}\n  third: {{policy: {{file: ${{S}}}}}}\n  fourth: {{policy: ${{S}}}}\n"
        f"  fifth: {{policy: {{blend: {{weights: {{b: 1}}, mode: ${{S}}}}}}, fallback: {{default: ${{S}}}}}}\n"
        f"admin: {{secret: 1234567}}\nkeys: [{{key: [{value}]}}, {{key: {value}, tenant: [], routes: [${{S}}]}}]\n"
    )
    found = problems(tmp_path, text, {"S": value})
    assert len(found) >= 15
    for problem in found:
        assert "hush" not in str(problem)
        assert "1234567" not in str(problem)


def test_merge_keys_and_anchors(tmp_path: pathlib.Path) -> None:
    text = (
        'models:\n  a: &base {backend: python, callable: "m:f", cost: 3, tags: [no]}\n'
        "  b: {<<: *base, cost: 4}\n  c: {<<: [*base, {cost: 5, tier: 2}]}\n"
        "routes: {default: {policy: {chain: [a, b, c]}}}\n"
    )
    models = load(tmp_path, text).config.models
    assert [models[name].cost for name in "abc"] == [3, 4, 3]
    assert (models["c"].tier, models["b"].tags) == (2, ("no",))
    assert "`<<` merges mappings" in problems(tmp_path, with_model("<<: [3]"))[0].message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("&a [*a]\n", "inside what it refers to"),
        ("a: &x [*x]\n", "inside what it refers to"),
        ("a: &x {b: {c: *x}}\n", "inside what it refers to"),
        ("a: " + "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), "levels deep"),
        ("[" * 30_000, "nested too deep"),
        ("- " * 30_000 + "a", "nested too deep"),
        ("a: !!python/object/apply:os.system ['true']\n", "tags such as `!!python/object/apply:os.system`"),
        ("a: !secret x\n", "tags such as `!secret`"),
        ("? [a]\n: b\n", "a key must be a word"),
        ("'': b\n", "a key must be a word"),
    ],
)
def test_what_yaml_can_but_a_config_may_not(tmp_path: pathlib.Path, text: str, said: str) -> None:
    assert any(said in problem.message for problem in problems(tmp_path, text)), problems(tmp_path, text)


def test_aliases_of_aliases_stop_at_a_limit(tmp_path: pathlib.Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert any("expands to more than" in problem.message for problem in problems(tmp_path, "\n".join(lines)))
