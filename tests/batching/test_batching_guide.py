"""The guide to batching shows a config that loads, settings that exist and numbers that are counted."""

from __future__ import annotations

import re
from pathlib import Path

from rheostat.clock import SystemClock
from rheostat.config import load_config
from rheostat.pool.batching import Batched
from rheostat.resilience.batch import REASONS, BatchSettings
from rheostat.telemetry.batches import batch_families
from rheostat.testing import Scripted

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "batching.md").read_text()


def test_its_config_loads(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml batching\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "rheostat.yaml").write_text(block)
    batch = load_config(str(tmp_path / "rheostat.yaml")).config.models["sentiment"].batch
    assert batch is not None
    assert (batch.max_rows, batch.max_wait) == (32, 0.005)


def test_its_table_is_the_settings() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", GUIDE, re.MULTILINE)) == BatchSettings.__struct_fields__


def test_its_metrics_and_reasons_are_there() -> None:
    known = {family.name for family in batch_families({"m": Batched(Scripted(), BatchSettings(), SystemClock())})}
    assert set(re.findall(r"`(rheostat_\w+)`", GUIDE)) <= known
    assert all(f"`{reason}`" in GUIDE for reason in REASONS)
