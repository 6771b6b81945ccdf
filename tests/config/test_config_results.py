"""The `results` section: what it needs, and what makes no sense."""

from __future__ import annotations

import pathlib

import pytest
from config_files import load, problems

BASE = """
models:
  a: {{backend: http, url: "http://127.0.0.1:9/x"}}
routes:
  default: {{policy: a, fallback: {{{fallback}}}}}
records: {{sqlite: records.db}}
"""


@pytest.mark.parametrize(
    ("fallback", "results", "path", "told"),
    [
        ("later: true", "", "routes.default.fallback.later", "add `results: {path: results.sqlite}`"),
        ("later: true", "results: {path: ./records.db}", "results.path", "the same file as `records.sqlite`"),
        ("cached: true", "cache: {max_age: 0}", "cache", "`max_age` must be more than 0"),
        ("cached: true", "cache: {entries: 0}", "cache.entries", "1 or more"),
        ("later: true", "results: {path: r.db, keep: 0}", "results", "`keep` must be more than 0"),
        ("cached: true", "cache: {entrys: 1}", "cache.entrys", "did you mean `entries`"),
    ],
)
def test_mistakes_are_named(tmp_path: pathlib.Path, fallback: str, results: str, path: str, told: str) -> None:
    found = problems(tmp_path, BASE.format(fallback=fallback) + results + "\n")
    assert [(problem.path.startswith(path), told in problem.message) for problem in found] == [(True, True)], found


def test_a_section_that_changes_nothing_is_doubtful(tmp_path: pathlib.Path) -> None:
    loaded = load(tmp_path, BASE.format(fallback="retry: 1") + "results: {path: r.db}\n")
    assert [warning.path for warning in loaded.warnings] == ["results"]
    assert load(tmp_path, BASE.format(fallback="later: true") + "results: {path: r.db}\n").warnings == ()


def test_the_webhooks_secrets_are_kept_out_of_everything(tmp_path: pathlib.Path) -> None:
    hook = 'results: {path: r.db, webhook: {url: "https://shop:passw0rd@x/hook", secret: "a secret of some length"}}\n'
    loaded = load(tmp_path, BASE.format(fallback="later: true") + hook)
    assert {"a secret of some length", "passw0rd"} <= set(loaded.secrets)
    assert "a secret of some length" not in repr(loaded.config)
    assert "passw0rd" not in repr(loaded.config.results)
