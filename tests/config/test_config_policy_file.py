"""Policy files: what tuning wrote is taken as it is, and nothing else."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import yaml
from config_files import load, problems

from rheostat.config.document import read_document
from rheostat.config.policy_file import version_of
from rheostat.policies import Cascade, Chain

CONFIG = """\
models:
  a: {backend: python, callable: "m:a", version: "1"}
  b: {backend: python, callable: "m:b", version: "2"}
routes:
  default:
    policy: {file: tuned.yaml}
"""
CONTENT: dict[str, Any] = {
    "kind": "rheostat-policy",
    "format": 1,
    "policy": {"cascade": {"stages": ["a", "b"], "threshold": 0.1 + 0.2}},
    "goal": {"kind": "share", "at_most": 0.2},
    "data_hash": "12e5",
    "models": [{"name": "a", "version": "1"}, {"name": "b", "version": "2"}],
    "expected": {"quality": {"mean": 0.9, "low": 1e-7, "high": 1.0}, "n": 100},
    "notes": ["no", "~", "2026-11-01", "${HOME}", "é\n"],
}


def write(folder: pathlib.Path, **changes: Any) -> None:
    content = {**CONTENT, **changes}
    content.setdefault("version", version_of(content))
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None, width=60)
    (folder / "tuned.yaml").write_text(text, encoding="utf-8")


def test_a_policy_file_is_the_routes_policy(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    loaded = load(tmp_path, CONFIG)
    assert loaded.policies["default"] == Cascade(stages=("a", "b"), threshold=0.1 + 0.2)
    assert loaded.policy_versions == {"default": version_of(CONTENT)}
    assert loaded.files == (str(tmp_path / "config.yaml"), str(tmp_path / "tuned.yaml"))
    before = loaded.version
    write(tmp_path, notes=[])
    assert load(tmp_path, CONFIG).version != before


def test_what_was_written_is_read_back_as_it_was(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    root = read_document((tmp_path / "tuned.yaml").read_text(encoding="utf-8"), None).root
    assert root is not None
    assert root.data() == {**CONTENT, "version": version_of(CONTENT)}


def test_a_policy_file_inside_another_policy(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    text = CONFIG.replace("{file: tuned.yaml}", "{chain: [{rules: [{contains: x, use: b}]}, {file: tuned.yaml}]}")
    loaded = load(tmp_path, text)
    policy = loaded.policies["default"]
    assert isinstance(policy, Chain)
    assert isinstance(policy.policies[1], Cascade)
    first = loaded.policy_versions["default"]
    write(tmp_path, policy={"cascade": {"stages": ["a", "b"], "threshold": 0.5}})
    assert load(tmp_path, text).policy_versions["default"] != first


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"models": [{"name": "a", "version": "9"}]}, "`a` version 9, the config has version 1"),
        ({"models": [{"name": "z", "version": "1"}]}, "the model `z`, which is not in this config; tune again"),
        ({"version": "0000"}, "was changed after it was written; tune again, or write `version: "),
        ({"kind": "other"}, "not a policy file: it has no `kind: rheostat-policy`"),
        ({"format": 2}, "format: expected one of 1, got `2`"),
        ({"policy": {"cascade": {"stages": ["a", "z"], "threshold": 0.5}}}, "unknown model `z`"),
        ({"policy": {"cascade": {"stages": ["a", "b"], "threshold": 5}}}, "policy.cascade.threshold: "),
        ({"policy": {"cascade": {"stages": ["a", "b"], "treshold": 0.5}}}, "did you mean `threshold`?"),
        ({"policy": {"file": "tuned.yaml"}}, "cannot name another policy file"),
        ({"extra": 1}, "extra: unknown key"),
    ],
)
def test_a_policy_file_that_does_not_fit(tmp_path: pathlib.Path, changes: dict[str, Any], said: str) -> None:
    write(tmp_path, **changes)
    found = problems(tmp_path, CONFIG)
    assert [problem.line for problem in found] == [6] * len(found)
    assert any(said in problem.message and "tuned.yaml" in problem.message for problem in found) or (
        "unknown model" in said and any(said in problem.message for problem in found)
    ), found


def test_a_policy_file_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    (problem,) = problems(tmp_path, CONFIG)
    assert (problem.path, problem.line) == ("routes.default.policy.file", 6)
    assert "tuned.yaml cannot be read: No such file" in problem.message
    (tmp_path / "tuned.yaml").write_text("a: [")
    assert "tuned.yaml line 2: not YAML" in problems(tmp_path, CONFIG)[0].message
    (tmp_path / "tuned.yaml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in problems(tmp_path, CONFIG)[0].message
    (tmp_path / "tuned.yaml").write_text("")
    assert "the file is empty" in problems(tmp_path, CONFIG)[0].message
    assert "expected the name of a policy file" in problems(tmp_path, CONFIG.replace("tuned.yaml", "[x]"))[0].message
