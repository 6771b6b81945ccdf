"""The cascade benchmark: skips with a clear word, and its table and report come from the product's own lab."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

_ROOT = Path(__file__).parents[2]


def _run(folder: Path, *sets: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "RHEOSTAT_DATA": str(folder), "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-m", "bench.cascade", *sets]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def _made_up(place: Path) -> None:
    """A set in which only trees can learn whether two signs agree."""
    rng = np.random.default_rng(0)
    folder = place / "datasets" / "online_shoppers"
    folder.mkdir(parents=True)
    for split, count in (("train", 800), ("dev", 400), ("test", 400)):
        with gzip.open(folder / f"{split}.jsonl.gz", "wb") as file:
            for _ in range(count):
                x, y = rng.normal(size=2).round(3)
                row = {
                    "x": float(x),
                    "y": float(y),
                    "month": str(rng.choice(["May", "Nov"])),
                    "label": int((x * y > 0) != (rng.random() < 0.1)),
                }
                file.write(msgspec.json.encode(row) + b"\n")


def test_sets_that_are_not_there_are_skipped_by_name(tmp_path: Path) -> None:
    done = _run(tmp_path, "banking77", "sst2")
    assert done.returncode == 0, done.stderr
    assert "banking77 skipped: Banking77 (Casanueva et al. 2020) is not shipped" in done.stdout
    assert "sst2 skipped" in done.stdout
    assert "RHEOSTAT_DATA" in done.stdout


def test_an_unknown_set_is_refused_with_those_there_are(tmp_path: Path) -> None:
    done = _run(tmp_path, "bank77")
    assert done.returncode == 2
    assert "unknown set 'bank77'; known: banking77," in done.stdout


def test_a_table_set_is_trained_judged_and_reported(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    _made_up(tmp_path)
    done = _run(tmp_path, "online_shoppers")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("online_shoppers  "))
    small, large = float(line.split()[2]), float(line.split()[3])
    assert small < 65  # only trees can learn whether two signs agree
    assert large > 80
    assert "Escalation does not pay here: use large alone" in done.stdout
    assert "AUC / log loss: small 0." in done.stdout
    report = tmp_path / "bench-out" / "online_shoppers.html"
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")
    again = _run(tmp_path, "online_shoppers")
    assert "training" not in again.stderr
    assert line in again.stdout


def test_budgets_calibration_and_thresholds_are_carried_over(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    _made_up(tmp_path)
    env = {**os.environ, "RHEOSTAT_DATA": str(tmp_path), "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-m", "bench.transfer", "online_shoppers"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| online_shoppers |")]
    assert len(lines) == 4  # the budget, two models, the threshold
    absent = subprocess.run([*command[:3], "sst2"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "sst2 skipped" in absent.stdout
