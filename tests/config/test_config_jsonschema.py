"""The schema for editors says what the loader says."""

from __future__ import annotations

import copy
import pathlib
from typing import Any

import jsonschema
import pytest
from config_files import ENV, GOOD, PARTS, load, with_policy

from rheostat.config import json_schema
from rheostat.config.document import read_document
from rheostat.config.hints import fields_of
from rheostat.policies import KINDS


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json_schema(PARTS)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def data(text: str) -> Any:
    root = read_document(text, None).root
    assert root is not None
    return root.data()


def test_a_good_config_is_valid(validator: jsonschema.Draft202012Validator) -> None:
    assert [error.message for error in validator.iter_errors(data(GOOD))] == []


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every mapping of the settings."""
    if isinstance(value, list):
        return [found for index, item in enumerate(value) for found in paths(item, (*path, index))]
    if not isinstance(value, dict):
        return []
    below = [found for key, item in value.items() for found in paths(item, (*path, key))]
    return below if path and path[-1] in ("models", "routes", "signals", "weights") else [path, *below]


def test_a_misspelt_key_is_not_anywhere(validator: jsonschema.Draft202012Validator) -> None:
    good = data(GOOD)
    places = paths(good)
    assert len(places) > 18
    for place in places:
        wrong = copy.deepcopy(good)
        inner = wrong
        for step in place:
            inner = inner[step]
        inner["misspelt"] = 1
        assert not validator.is_valid(wrong), place


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cost: 1}", "cost: '1'}"),
        ("timeout: 2s", "timeout: 2 seconds"),
        ("port: 8081", "port: 70000"),
        ("backend: openai", "backend: opnai"),
        ("backend: python, ", ""),
        ("scorer: number", "scorer: nmber"),
        ("hysteresis: [0.88, 0.92]", "hysteresis: [0.88]"),
        ("peers: [large-b]", "peers: large-b"),
        ("retry: 1", "retry: often"),
        ("task: classify", "task: regress"),
    ],
)
def test_a_wrong_value_is_not(validator: jsonschema.Draft202012Validator, old: str, new: str) -> None:
    assert old in GOOD
    assert not validator.is_valid(data(GOOD.replace(old, new, 1)))


@pytest.mark.parametrize(
    "policy",
    [
        "a",
        "chain: [a, b]",
        "chain: {policies: [a]}",
        "rules: [{contains: x, use: a}, {contains: [x, y], use: {cascade: {stages: [a, b], threshold: [0.5]}}}]",
        "split: [{use: a, share: 1}, {use: b, share: 2}]",
        "delegate: {weak: a, strong: b, low: '${LOW:-0.2}'}",
        "cascade: {stages: [a, b], threshold: ${LARGE_T}}",
    ],
)
def test_every_way_to_write_a_policy_is_valid(
    tmp_path: pathlib.Path, validator: jsonschema.Draft202012Validator, policy: str
) -> None:
    text = with_policy(policy)
    assert [error.message for error in validator.iter_errors(data(text.replace("${LARGE_T}", "'${LARGE_T}'")))] == []
    load(tmp_path, text.replace("'${LOW:-0.2}'", "${LOW:-0.2}"), {**ENV, "LARGE_T": "0.5"})


def test_everything_is_described() -> None:
    schema = json_schema(PARTS)
    for name, definition in schema["$defs"].items():
        assert name == "Policy" or definition["description"], name
    for kind, cls in KINDS.items():
        named = schema["$defs"][cls.__name__]["properties"]
        assert set(fields_of(cls)) <= set(named)
        assert schema["$defs"]["Policy"]["anyOf"][1]["properties"][kind]["description"]
    assert schema["$defs"]["ServerSettings"]["properties"]["port"]["default"] == 8080
    assert schema["$defs"]["RouteSettings"]["properties"]["deadline"]["default"] == 10.0
