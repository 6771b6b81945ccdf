"""train weights: from an outcomes table to a file and the lines that serve it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rheostat import open_router
from rheostat.lab.outcomes_file import save
from rheostat.lab.weights import predictor
from tests.cli.conftest import Run
from tests.lab.weights.weight_tables import live_config, specialists

FEATURES = ("--feature", "meta.kind=k0", "--feature", "meta.kind=k1")
SPLITS = ("--fit-on", "train", "--choose-on", "dev")


def test_weights_are_learned_and_the_lines_shown_serve_them(place: Path, run: Run) -> None:
    pytest.importorskip("torch")
    table = specialists(3000)
    save(table, place / "o.parquet")
    said = run(["train", "weights", "o.parquet", *FEATURES, *SPLITS, "--past", "meta.user", "--cluster", "meta.user"])
    for words in ("fixed blend", "stack", "the largest weight is", "verdict: weights per request pay", "scorer: answers"):
        assert words in said.stdout, words
    assert "training on 1,500 rows of train" in said.stderr
    shown = [line.strip() for line in said.stdout.splitlines()]
    signal = next(line for line in shown if line.startswith("weights: {scorer"))
    policy = next(line for line in shown if line.startswith("default:")).removeprefix("default: {policy: ").removesuffix("}")
    with open_router(live_config(place, table, policy, signal)) as router:
        record = router.predict("row 7", meta={"kind": "k0", "user": "u7"}).record
        assert sum(record.weights.values()) == pytest.approx(1.0)
        assert record.weights["one"] > 0.4
    said = run(["train", "weights", "o.parquet"], code=2)
    assert "weights.onnx is there already" in " ".join(said.stderr.replace("│", " ").split())


def test_two_models_get_two_cuts_that_keep_a_goal(place: Path, run: Run) -> None:
    pytest.importorskip("torch")
    save(specialists(1200, labels=2, models=2), place / "o.parquet")
    command = ["train", "weights", "o.parquet", *FEATURES[:2], *SPLITS, "--goal", "max-share=0.6"]
    said = run([*command, "--answers", "none", "--json"])
    found = json.loads(said.stdout)
    policy = found["config"][-1]
    assert "delegate: {weak: one, strong: two, weight: weights.two, low: " in policy
    assert found["rows"] == {"fit": 600, "report": 300}
    flat = " ".join(run([*command, "--force"], code=2).stderr.replace("│", " ").split())
    assert "--answers first or none" in flat


def test_without_torch_it_says_what_to_install(place: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor, "find_spec", lambda _: None)
    save(specialists(600), place / "o.parquet")
    said = run(["train", "weights", "o.parquet", *SPLITS], code=1)
    assert "pip install 'rheostat[torch]'" in said.stderr
