"""train router: from an outcomes table to a file that a config serves, or to no file at all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rheostat.lab.learned_file import read_card
from rheostat.lab.outcomes import ModelColumns, ModelInfo, OutcomesTable
from rheostat.lab.outcomes_file import save
from tests.cli.conftest import Run


def outcomes(path: Path, need: float, n: int = 400) -> None:
    """Long texts, and those of kind b, need `large` more often, by `need`."""
    rng = np.random.default_rng(0)
    length, kind = rng.integers(1, 200, n), rng.choice(["a", "b"], n)
    wrong = rng.random(n) < 0.3 + need * ((length > 100) - 0.5) + 0.3 * need * ((kind == "b") - 0.5)
    right = {"fast": ~wrong, "large": rng.random(n) < 0.9}
    costs = {"fast": 1.0, "large": 20.0}

    def columns(name: str) -> ModelColumns:
        none = np.full(n, np.nan)
        return ModelColumns(
            right[name].astype(np.int32), none, np.full(n, 0.01), np.full(n, costs[name]), np.zeros(n, np.int8)
        )

    save(
        OutcomesTable(
            ids=np.array([f"r{row}" for row in range(n)], dtype=object),
            split=rng.choice(3, n, p=[0.5, 0.2, 0.3]).astype(np.int8),
            truth=np.ones(n, np.int32),
            labels=("no", "yes"),
            columns={name: columns(name) for name in right},
            model_info={name: ModelInfo(cost=cost) for name, cost in costs.items()},
            inputs=np.array([json.dumps(f"{row} {'x' * int(size)}") for row, size in enumerate(length)], dtype=object),
            meta=np.array([json.dumps({"kind": each}) for each in kind.tolist()], dtype=object),
        ),
        path,
    )


def test_a_router_is_learned_confirmed_and_served(place: Path, run: Run) -> None:
    outcomes(place / "o.parquet", need=0.5)
    command = ["train", "router", "o.parquet", "--learner", "tree", "--features", "length", "--group", "meta.kind"]
    said = run([*command, "--goal", "max-share=0.5"])
    for words in (
        "longest first",
        "group mean",
        "verdict: a signal",
        "test rows",
        "rules:",
        "length >",
        "wrote router.onnx",
    ):
        assert words in said.stdout, words
    assert "tree: fold 5 of 5" in said.stderr
    assert read_card("router.onnx").features == ("length", "meta.kind=a", "meta.kind=b")
    lines = said.stdout.split("in the config:\n")[1].splitlines()
    config = (place / "rheostat.yaml").read_text()
    policy = lines[4].strip().removeprefix("policy: ")
    config = config.replace("{cascade: {stages: [fast, large], threshold: 0.8}}", policy)
    (place / "rheostat.yaml").write_text(config + "\n".join(line.removeprefix("  ") for line in lines[:2]) + "\n")
    run(["check"])
    served = [run(["predict", "rheostat.yaml", "x" * size, "--meta", "kind=a"]).stdout for size in (150, 20)]
    assert "gain" in served[0]
    assert [f"answer with {name}, because gain" in said for said, name in zip(served, ("large", "fast"), strict=True)] == [
        True,
        True,
    ]
    assert "is there already" in " ".join(run(command, code=2).stderr.split())
    found = json.loads(run([*command, "--force", "--json"]).stdout)
    assert found["signal"] is True
    assert found["file"] == "router.onnx"
    assert set(found["importance"]) == {"length", "meta.kind"}


def test_without_a_signal_nothing_is_written(place: Path, run: Run) -> None:
    outcomes(place / "o.parquet", need=0.0)
    command = ["train", "router", "o.parquet", "--learner", "ridge", "--features", "length"]
    said = run(command, code=1)
    assert "verdict: no signal" in said.stdout
    assert not (place / "router.onnx").exists()
    run([*command, "--force"])
    assert (place / "router.onnx").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--learner", "oracle"], "--learner is one of mean"),
        (["--weak", "large", "--strong", "fast"], "is no better than"),
        (["--on", "dev,holdout"], "--on takes train, dev, test"),
        (["--goal", "max-cost=3"], "--goal takes max-share"),
        (["--group", "meta.task"], "no value of meta.task"),
        (["--features", "lenght"], "did you mean 'length'"),
    ],
)
def test_what_is_wrong_is_said(place: Path, run: Run, options: list[str], words: str) -> None:
    outcomes(place / "o.parquet", need=0.5)
    said = run(["train", "router", "o.parquet", "--features", "length", "--learner", "ridge", *options], code=2)
    assert words in " ".join(said.stderr.replace("│", " ").split())
