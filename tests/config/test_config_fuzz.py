"""Whatever stands in the file: a config, or a ConfigError that names problems."""

from __future__ import annotations

import copy
import pathlib
from typing import Any

import pytest
import yaml
from config_files import ENV, GOOD, PARTS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rheostat.config.document import read_document
from rheostat.config.load import read_config

_ROOT = read_document(GOOD, ENV).root
assert _ROOT is not None
DATA: dict[str, Any] = _ROOT.data()

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["fast", "0.5", "${X}", "2s", "<<"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [found for key, item in items for found in [(*path, key), *places(item, (*path, key))]]


PLACES = places(DATA)


def outcome_of(folder: pathlib.Path, blob: bytes) -> list[str]:
    path = folder / "fuzzed.yaml"
    path.write_bytes(blob)
    reading = read_config(str(path), ENV, PARTS)
    if reading.loaded is not None:
        assert reading.error is None
        return []
    assert reading.error is not None
    assert reading.error.problems
    assert "sk-large-0123456789" not in str(reading.error)
    return [str(problem) for problem in reading.error.problems]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("fuzz")


CHANGE = st.tuples(st.sampled_from(PLACES), st.sampled_from(["drop", "rename", "retype", "nest"]), VALUES)
BYTES = st.one_of(st.binary(max_size=8), st.text(max_size=8).map(str.encode))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=st.lists(CHANGE, max_size=3))
def test_a_mutated_config_never_crashes(folder: pathlib.Path, changes: list[tuple[tuple[Any, ...], str, Any]]) -> None:
    data = copy.deepcopy(DATA)
    for place, kind, value in changes:
        mutate(data, place, kind, value)
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    found = outcome_of(folder, text.encode("utf-8", "surrogatepass"))
    if not changes:
        assert found == []


def mutate(data: Any, place: tuple[Any, ...], kind: str, value: Any) -> None:
    inner = data
    for step in place[:-1]:
        try:
            inner = inner[step]
        except (KeyError, IndexError, TypeError):  # an earlier change took it away
            return
    key = place[-1]
    if isinstance(inner, dict) and key in inner:
        if kind == "rename":
            inner[value if isinstance(value, str) else str(key) + "x"] = inner.pop(key)
            return
    elif not (isinstance(inner, list) and isinstance(key, int) and key < len(inner)):
        return
    if kind == "drop":
        del inner[key]
    else:
        inner[key] = {"x": inner[key]} if kind == "nest" else value


def test_a_file_cut_off_anywhere_never_crashes(folder: pathlib.Path) -> None:
    blob = GOOD.encode()
    refused = [bool(outcome_of(folder, blob[:end])) for end in range(0, len(blob), 7)]
    assert sum(refused) > len(refused) // 2


@settings(max_examples=150, deadline=None)
@given(start=st.integers(0, len(GOOD)), length=st.integers(0, 40), put=BYTES)
def test_damaged_bytes_never_crash(folder: pathlib.Path, start: int, length: int, put: bytes) -> None:
    blob = GOOD.encode()
    outcome_of(folder, blob[:start] + put + blob[start + length :])
