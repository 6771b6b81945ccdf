"""train quality: from an outcomes table of three models to signals that a config serves, or to one model alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rheostat.lab.learned_file import read_card
from rheostat.lab.outcomes import ModelColumns, ModelInfo, OutcomesTable
from rheostat.lab.outcomes_file import save
from rheostat.policies import parse_policy
from tests.cli.conftest import Run

COSTS = {"fast": 1.0, "coder": 5.0, "large": 20.0}


def outcomes(path: Path, signal: float, n: int = 400) -> None:
    """Short texts suit the fast model, kind b suits the coder; the large one is right on 85 %."""
    rng = np.random.default_rng(0)
    length, kind = rng.integers(1, 200, n), rng.choice(["a", "b"], n)
    chance = {
        "fast": 0.6 - signal * 0.35 * np.sign(length - 100.5),
        "coder": 0.6 + signal * 0.35 * np.where(kind == "b", 1, -1),
        "large": np.full(n, 0.85),
    }
    columns = {
        name: ModelColumns(
            (rng.random(n) < each).astype(np.int32), np.full(n, np.nan), np.full(n, 0.01), np.full(n, COSTS[name]),
            np.zeros(n, np.int8),
        )
        for name, each in chance.items()
    }  # fmt: skip
    save(
        OutcomesTable(
            ids=np.array([f"r{row}" for row in range(n)], dtype=object),
            split=rng.choice(3, n, p=[0.5, 0.2, 0.3]).astype(np.int8),
            truth=np.ones(n, np.int32),
            labels=("no", "yes"),
            columns=columns,
            model_info={name: ModelInfo(cost=cost) for name, cost in COSTS.items()},
            inputs=np.array([json.dumps(f"{row} {'x' * int(size)}") for row, size in enumerate(length)], dtype=object),
            meta=np.array([json.dumps({"kind": each}) for each in kind.tolist()], dtype=object),
        ),
        path,
    )


def test_qualities_are_learned_confirmed_and_ready_to_serve(place: Path, run: Run) -> None:
    outcomes(place / "o.parquet", 1.0)
    command = ["train", "quality", "o.parquet", "--method", "ridge", "--features", "length", "--group", "meta.kind"]
    said = run([*command, "--goal", "match"]).stdout
    for words in ("fast", "ridge, trade 0", "zero router", "verdict: route", "test rows", "wrote quality.onnx"):
        assert words in said, words
    card = read_card("quality.onnx")
    assert (card.meaning, card.outputs) == ("quality", ("fast", "coder", "large"))
    lines = said.split("in the config:\n")[1].splitlines()
    policy = parse_policy(json.loads(lines[4].strip().removeprefix("policy: ")))
    assert policy.of == ("fast", "coder", "large")  # type: ignore[attr-defined]
    assert 'outputs: ["fast","coder","large"]' in lines[1]
    told = json.loads(run([*command, "--goal", "budget=6", "--json", "--force"]).stdout)
    assert told["chosen"]["cost"] <= 6.0
    assert told["test"]["quality"] > 0.6


def test_the_lines_serve(place: Path, run: Run) -> None:
    outcomes(place / "o.parquet", 1.0)
    command = ["train", "quality", "o.parquet", "--method", "ridge", "--features", "length", "--models", "fast,large"]
    lines = run([*command, "--goal", "match"]).stdout.split("in the config:\n")[1].splitlines()
    config = (place / "rheostat.yaml").read_text()
    policy = lines[4].strip().removeprefix("policy: ")
    config = config.replace("{cascade: {stages: [fast, large], threshold: 0.8}}", policy)
    (place / "rheostat.yaml").write_text(config + "\n".join(line.removeprefix("  ") for line in lines[:2]) + "\n")
    run(["check"])
    served = [run(["predict", "rheostat.yaml", "x" * size]).stdout for size in (150, 20)]
    assert [f"best for the money: {name}" in said for said, name in zip(served, ("large", "fast"), strict=True)] == [
        True,
        True,
    ]


def test_without_a_signal_one_model_is_the_answer(place: Path, run: Run) -> None:
    outcomes(place / "o.parquet", 0.0)
    said = run(["train", "quality", "o.parquet", "--method", "ridge", "--features", "length"], 1).stdout
    assert "verdict: large alone" in said
    assert 'policy: "large"' in said
    assert not (place / "quality.onnx").exists()


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--method", "magic"], "--method is one of"),
        (["--goal", "budget=x"], "budget=COST"),
        (["--goal", "budget=0.1", "--method", "means"], "cheapest costs"),
        (["--models", "fast"], "at least two"),
        (["--on", "tests"], "--on takes"),
    ],
)
def test_mistakes_are_told(place: Path, run: Run, more: list[str], word: str) -> None:
    outcomes(place / "o.parquet", 1.0, 120)
    assert word in " ".join(run(["train", "quality", "o.parquet", *more], 2).stderr.split())
