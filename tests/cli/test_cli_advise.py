"""advise and retune, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_advise_on_one_model_says_it_needs_two(place: Path, run: Run) -> None:
    said = run(["advise", "outcomes.parquet", "--stages", "fast"], code=2).stderr
    assert "at least two models" in " ".join(said.replace("│", " ").split())
