"""The settings shown in the guide are settings, and those said to be defaults are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rheostat.config import load_config
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.limit import LimitSettings
from rheostat.resilience.ramp import RampSettings

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "staying-up.md").read_text()
BLOCKS = {
    key: yaml.safe_load(block)
    for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    for key in ("breaker", "ramp", "health", "adaptive")
    if re.search(rf"^    {key}:", block, re.MULTILINE)
}


@pytest.mark.parametrize("key", ["breaker", "ramp", "health", "adaptive"])
def test_what_the_guide_shows_is_accepted(key: str, tmp_path: Path) -> None:
    config: dict[str, Any] = BLOCKS[key] | {"routes": {"default": {"policy": "large"}}}
    config["models"]["large"] |= {"backend": "http", "url": "http://large.internal:8000/predict"}
    (tmp_path / "rheostat.yaml").write_text(yaml.safe_dump(config))
    large = load_config(str(tmp_path / "rheostat.yaml")).config.models["large"]
    if key == "breaker":
        shown = large.breaker
        assert shown is not None
        assert shown.slow_seconds == 2.0
        assert all(
            getattr(shown, name) == getattr(BreakerSettings(), name)
            for name in BreakerSettings.__struct_fields__
            if name != "slow_seconds"
        )
    elif key == "ramp":
        assert large.ramp == RampSettings()
    elif key == "adaptive":
        assert large.adaptive == LimitSettings()
    else:
        assert large.health.interval == 5.0


def test_the_keys_that_the_guide_shows_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = (each for each in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL) if "keys:" in each)
    for name in re.findall(r"\$\{(\w+)\}", block):
        monkeypatch.setenv(name, f"the key for {name.lower()}")
    models = (
        "models: {large: {backend: http, url: 'http://large.internal:8000/predict'}}\nroutes: {default: {policy: large}}\n"
    )
    (tmp_path / "rheostat.yaml").write_text(models + block)
    config = load_config(str(tmp_path / "rheostat.yaml")).config
    assert [(key.tenant, key.priority, key.max_in_flight) for key in config.keys] == [
        ("shop", "normal", 40),
        ("nightly", "low", 0),
        ("alarms", "high", 0),
    ]
