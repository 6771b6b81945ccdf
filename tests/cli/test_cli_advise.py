"""advise and retune, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_advise_says_what_to_use_and_writes_its_policy(place: Path, run: Run) -> None:
    said = run(["advise", "outcomes.parquet", "--max-share", "0.5", "--out", "advised.yaml"]).stdout
    assert "route" in said.splitlines()[0].lower()
    found = json.loads(run(["advise", "outcomes.parquet", "--max-share", "0.5", "--json"]).stdout)
    assert found["use"]
    assert (place / "advised.yaml").exists() == (found["policy"] is not None)
    assert {flag["kind"] for flag in found["flags"]} >= {"too few rows"}


def test_advise_writes_over_nothing(place: Path, run: Run) -> None:
    (place / "mine.yaml").write_text("kept", encoding="utf-8")
    assert "is there already" in run(["advise", "outcomes.parquet", "--out", "mine.yaml"], code=2).stderr
    assert (place / "mine.yaml").read_text(encoding="utf-8") == "kept"


@pytest.mark.usefixtures("place")
def test_advise_on_one_model_says_it_needs_two(run: Run) -> None:
    said = run(["advise", "outcomes.parquet", "--stages", "fast"], code=2).stderr
    assert "at least two models" in " ".join(said.replace("│", " ").split())


def test_retune_reads_a_policy_file_or_a_config_and_keeps_what_did_not_change(place: Path, run: Run) -> None:
    run(["tune", "outcomes.parquet", "--goal", "max-share=0.5", "--out", "tuned.yaml"])
    same = ["--before", "outcomes.parquet", "--after", "outcomes.parquet"]
    said = run(["retune", "tuned.yaml", *same, "--out", "again.yaml"]).stdout
    assert "Keep the setting" in said
    assert "at most 50.0% calls" in said
    assert (place / "again.yaml").exists()
    assert json.loads(run(["retune", "rheostat.yaml", *same, "--json"]).stdout)["act"] in ("keep", "retune")
