"""The guide to caching: its configs are configs, its metrics and headers are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rheostat.config import load_config
from rheostat.telemetry.metrics import GAUGES, Metrics

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "caching.md").read_text()


def test_its_configs_are_taken_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "a long password")
    whole, *sections = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    assert len(sections) == 2
    for number, section in enumerate(["", *sections]):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(whole) | (yaml.safe_load(section) or {})))
        loaded = load_config(str(path))
        assert [warning for warning in loaded.warnings if "cache" in warning.path] == []
        assert loaded.config.routes["default"].cache is not None
    assert load_config(str(path)).config.cache.redis is not None
    assert "a long password" in load_config(str(path)).secrets


def test_its_metrics_are_there() -> None:
    names = set(re.findall(r"`(rheostat_\w+)`", GUIDE))
    assert names <= set(GAUGES) | {family.name for family in Metrics(models=(), routes=(), version="0").families()}


@pytest.mark.parametrize(
    ("change", "path", "told"),
    [
        ("side_effects: true", "routes.default.cache", "has side effects, which an answer from the cache would leave out"),
        ("cost: 2", "", ""),
    ],
)
def test_a_cache_that_would_leave_an_effect_out_is_refused(tmp_path: Path, change: str, path: str, told: str) -> None:
    from rheostat.errors import ConfigError

    text = f"models: {{a: {{backend: http, url: 'http://127.0.0.1:9/x', {change}}}}}\n"
    file = tmp_path / "r.yaml"
    file.write_text(text + "routes: {default: {policy: a, cache: {}}}\n")
    if not path:
        assert load_config(str(file)).config.routes["default"].cache is not None
        return
    with pytest.raises(ConfigError) as refused:
        load_config(str(file))
    assert [(problem.path, told in problem.message) for problem in refused.value.problems] == [(path, True)]


@pytest.mark.parametrize(
    ("section", "path"), [("cache: {entries: 5}", "cache"), ("cache: {redis: {url: 'redis://x'}}", "cache")]
)
def test_a_section_that_changes_nothing_is_doubtful(tmp_path: Path, section: str, path: str) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(
        "models: {a: {backend: http, url: 'http://127.0.0.1:9/x'}}\nroutes: {default: {policy: a}}\n" + section + "\n"
    )
    assert path in [warning.path for warning in load_config(str(file)).warnings]
