"""The guide to processes shows a config that loads, settings that exist, numbers that are counted and limits that hold."""

from __future__ import annotations

import re
from pathlib import Path

from rheostat.config import load_config
from rheostat.opening import APART_S
from rheostat.pool.worker.arena import SHARED_FROM
from rheostat.pool.worker.seat import REASONS
from rheostat.pool.worker.settings import WorkerSettings
from rheostat.pool.worker.workers import PATIENCE_S
from rheostat.resilience.restart import STEADY_S, RestartState, pause_s
from rheostat.telemetry.workers import worker_families

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "worker-processes.md").read_text()


def test_its_config_loads(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml workers\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "rheostat.yaml").write_text(block)
    worker = load_config(str(tmp_path / "rheostat.yaml")).config.models["scorer"].processes
    assert worker is not None
    assert (worker.count, worker.memory_bytes, worker.stuck, worker.nice) == (2, 2**30, 5.0, 5)


def test_its_table_is_the_settings() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", GUIDE, re.MULTILINE)) == WorkerSettings.__struct_fields__


def test_its_numbers_are_the_codes() -> None:
    known = {family.name for family in worker_families({})}
    assert set(re.findall(r"`(rheostat_\w+)`", GUIDE)) == known
    assert all(f"`{reason}`" in GUIDE for reason in REASONS)
    said = " ".join(GUIDE.split())
    assert f"a row takes {1000 * APART_S:.0f} ms or more" in said
    assert f"Parts of {SHARED_FROM >> 10} KiB and more" in said
    assert f"for {PATIENCE_S:.0f} seconds, or half of its own time" in said
    assert [pause_s(RestartState(ends), 30.0) for ends in (1, 2, 3, 4)] == [0.0, 0.5, 1.0, 2.0]
    assert STEADY_S == 10.0
    assert "ten good seconds" in said
