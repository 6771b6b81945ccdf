"""distil and quantize, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rheostat.lab.outcomes_file import load
from tests.cli.conftest import Run

pytest.importorskip("skl2onnx")


def test_distil_writes_a_student_that_tune_and_predict_take(place: Path, run: Run) -> None:
    said = run(["distil", "outcomes.parquet", "--teacher", "large", "--out", "s.onnx", "--table-out", "wide.parquet"]).stdout
    assert "the same answer" in said
    assert "backend: onnx, path: s.onnx" in said
    assert load("wide.parquet").models[0] == "student"
    (place / "s.yaml").write_text("models: {student: {backend: onnx, path: s.onnx}}\nroutes: {default: {policy: student}}\n")
    assert run(["predict", "s.yaml", "a string of characters"]).stdout
    assert "is there already" in run(["distil", "outcomes.parquet", "--out", "s.onnx"], code=2).stderr
    found = json.loads(run(["distil", "outcomes.parquet", "--out", "s.onnx", "--force", "--json"]).stdout)
    assert found["rows"] == len(load("outcomes.parquet").select(split="test"))


def test_distil_names_an_unknown_teacher(place: Path, run: Run) -> None:
    told = run(["distil", "outcomes.parquet", "--teacher", "nobody"], code=2).stderr
    assert "no model 'nobody'" in " ".join(told.replace("│", " ").split())
    assert not (place / "student.onnx").exists()


def test_quantize_compares_the_file_with_the_model_it_was_made_from(place: Path, run: Run) -> None:
    found = run(["quantize", "rheostat.yaml", "fast", "--outcomes", "outcomes.parquet"])
    assert (place / "fast-int8.onnx").exists()
    assert "the same answer: 100.0%" in found.stdout
    assert "hardly anything in this file could be made smaller" in found.stderr
    refused = run(["quantize", "rheostat.yaml", "large", "--outcomes", "outcomes.parquet"], code=2).stderr
    assert "no model of backend onnx" in " ".join(refused.replace("│", " ").split())
