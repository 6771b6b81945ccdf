"""Calibration from a table: fitted on one split, judged on another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lab_tables import columns, synthetic, table
from typer.testing import CliRunner

from rheostat.cli.app import app
from rheostat.lab.calibration import METHODS, CalibrationError, calibrate
from rheostat.lab.outcomes import ModelInfo, OutcomesTable
from rheostat.lab.outcomes_file import save
from rheostat.signals.calibrator import load_calibrator


def overconfident(n: int = 3_000, **info: object) -> OutcomesTable:
    """A model that says .5 to 1 and is right only as often as the square of that."""
    rng = np.random.default_rng(3)
    said = rng.uniform(0.5, 1.0, n)
    right = rng.random(n) < said**2
    other = rng.uniform(0.5, 1.0, n)
    split = ["train", "dev", "test"] * (n // 3)
    models = {"small": columns(right.astype(int).tolist(), said.tolist()), "large": columns([1] * n, other.tolist())}
    return table([1] * n, models, split=split, info={"small": ModelInfo(**info)})  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [method for method in METHODS if method != "quantile"])
def test_an_overconfident_model_is_put_right_on_rows_it_never_saw(method: str) -> None:
    found = calibrate(overconfident(), "small", method)
    assert found.ece_before > 0.12
    # a temperature cannot bring confidences above .5 under it, and this model needs that
    assert found.ece_after < found.ece_before * (0.8 if method == "temperature" else 0.5)
    assert found.brier_after < found.brier_before
    assert (found.fitted_on, found.reported_on) == (1_000, 1_000)


def test_a_distribution_is_calibrated_as_a_whole() -> None:
    sharp = synthetic(6_000, small=0.8)
    columns_ = sharp.columns["small"]
    assert columns_.scores is not None
    scores = columns_.scores.astype(float) ** 3
    scores /= scores.sum(axis=1, keepdims=True)
    sharper = replace(columns_, scores=scores.astype(np.float32), confidence=scores.max(axis=1))
    found = calibrate(replace(sharp, columns={**sharp.columns, "small": sharper}), "small", "temperature")
    assert found.fitted.t == pytest.approx(3.0, abs=0.4)  # type: ignore[union-attr]
    assert found.ece_after < found.ece_before / 3


def test_what_cannot_be_done_is_said() -> None:
    good = overconfident()
    with pytest.raises(CalibrationError, match="no model 'smal'"):
        calibrate(good, "smal")
    with pytest.raises(CalibrationError, match="unknown method"):
        calibrate(good, "small", "magic")
    with pytest.raises(CalibrationError, match="another model"):
        calibrate(good, "large", "quantile")
    with pytest.raises(CalibrationError, match="evaluate again"):
        calibrate(overconfident(calibrated=True), "small")
    with pytest.raises(CalibrationError, match="large on dev"):
        calibrate(good, "large")  # always right: one class


def test_the_verb_writes_a_file_that_a_model_can_name(tmp_path: Path) -> None:
    save(overconfident(), tmp_path / "o.parquet")
    out = tmp_path / "small.json"
    arguments = ["calibrate", str(tmp_path / "o.parquet"), "--model", "small", "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "ECE" in done.output
    assert load_calibrator(str(out)).value(0.9) < 0.88
    wrong = CliRunner().invoke(app, [*arguments[:3], "nobody"])
    assert wrong.exit_code != 0
