"""The guide to images, done as it is written; its tables and names are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rheostat.clock import SystemClock
from rheostat.config import load_config
from rheostat.pool.batching import Batched
from rheostat.pool.prepared_beside import PreparedBeside
from rheostat.pool.preparing import ImageSettings
from rheostat.resilience.batch import BatchSettings
from rheostat.telemetry.preparations import prepare_families
from rheostat.testing import Scripted
from tests.cli.test_pages_run import follow, shell

__all__ = ["shell"]
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "images.md"
TEXT = PAGE.read_text()


def test_the_guide_goes_through_from_a_folder_to_a_gateway(shell: object) -> None:
    said = follow(PAGE, shell)  # type: ignore[arg-type]
    assert "outcomes.parquet: 1797 rows" in said
    assert "answered, on the route 'default'" in said
    assert re.search(r'"final_label":"\d"', said)


def test_its_table_is_the_settings() -> None:
    rows = re.findall(r"^\| (`.+?`) \| ", TEXT, re.MULTILINE)
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(ImageSettings.__struct_fields__)


def test_its_config_of_work_beside_loads(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml beside\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "rheostat.yaml").write_text(block)
    for name in ("photos.onnx", "encoder.onnx", "head.onnx", "tokenizer.json"):
        (tmp_path / name).touch()
    models = load_config(str(tmp_path / "rheostat.yaml")).config.models
    photos, intent = models["photos"].prepare, models["intent"].prepare
    assert photos is not None
    assert photos.image is not None
    assert (photos.threads, photos.image.size) == (2, (224, 224))
    assert intent is not None
    assert intent.tokens


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(rheostat_\w+)`", TEXT))))
def test_its_metrics_are_there(name: str) -> None:
    clock = SystemClock()
    beside = PreparedBeside(Batched(Scripted(), BatchSettings(), clock), lambda row: row, clock, threads=1, ahead=1)
    assert name in {family.name for family in prepare_families({"m": beside})}
