"""The configs of the guides about clients and kept conversations are configs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rheostat.config import load_config

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


@pytest.mark.parametrize("name", ["clients", "sessions"])
def test_the_guides_config_is_one(name: str, tmp_path: Path) -> None:
    blocks = (GUIDES / f"{name}.md").read_text().split("```yaml\n")[1:]
    assert len(blocks) == 1
    path = tmp_path / "rheostat.yaml"
    path.write_text(blocks[0].split("```")[0])
    assert load_config(str(path)).config.task == "chat"
